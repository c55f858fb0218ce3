package walk

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
)

// Log keeps what has happened, and wakes those who wait for it. Safe for
// concurrent use.
type Log struct {
	mu     sync.Mutex // guards the fields below
	events []pocketmq.Event
	news   chan struct{} // closed and replaced by every piece of news
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{news: make(chan struct{})} }

// Record adds an event: it is a ClusterConfig.OnEvent.
func (l *Log) Record(e pocketmq.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	l.wakeLocked()
}

// Wake makes those who wait look again, for something that is no event.
func (l *Log) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeLocked()
}

func (l *Log) wakeLocked() {
	close(l.news)
	l.news = make(chan struct{})
}

// Len tells how many events there are.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// Since returns the events from number i on.
func (l *Log) Since(i int) []pocketmq.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]pocketmq.Event(nil), l.events[i:]...)
}

// Await returns once done says so. It asks now and after every piece of news,
// and gives up after limit, which is real time.
func (l *Log) Await(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		l.mu.Lock()
		news := l.news
		l.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("%s: did not happen within %v: %w", what, limit.Round(time.Millisecond), ctx.Err())
		}
	}
}
