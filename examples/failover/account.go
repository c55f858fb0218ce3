package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// pace is how often a sender sends: twenty messages a second, as long as answers come.
const pace = 50 * time.Millisecond

// account knows what was sent, what was acknowledged and what was consumed. Safe for
// concurrent use.
type account struct {
	clock walk.Clock
	log   *walk.Log

	mu       sync.Mutex // guards the fields below
	sends    []send
	consumed map[string]int // by message: how often
}

// send is one call of Producer.Send.
type send struct {
	message    string
	sender     string
	begin, end time.Duration
	group      string // that acknowledged it; "" = nobody has
	err        error
}

func newAccount(clock walk.Clock, log *walk.Log) *account {
	return &account{clock: clock, log: log, consumed: make(map[string]int)}
}

// sell sends messages, one after the other, until ctx ends. An error is no reason to
// stop, and nothing is sent a second time but by the producer itself.
func (a *account) sell(ctx context.Context, name string, p *pocketmq.Producer) {
	ticker := time.NewTicker(max(a.clock.Real(pace), time.Microsecond))
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		s := send{message: fmt.Sprintf("%s %d", name, n), sender: name, begin: a.clock.Now()}
		var result *pocketmq.SendResult
		result, s.err = p.Send(context.WithoutCancel(ctx), &pocketmq.Message{Topic: orders, Body: []byte(s.message)})
		s.end = a.clock.Now()
		if s.err == nil {
			s.group = result.Queue.BrokerName
		}
		a.mu.Lock()
		a.sends = append(a.sends, s)
		a.mu.Unlock()
		a.log.Wake()
	}
}

// handle is the Handler of the consumers.
func (a *account) handle(_ context.Context, messages []*pocketmq.MessageExt) error {
	a.mu.Lock()
	for _, m := range messages {
		a.consumed[string(m.Body)]++
	}
	a.mu.Unlock()
	a.log.Wake()
	return nil
}

// all returns the sends that have ended so far, in the order of their ends.
func (a *account) all() []send {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.sends)
}

// acknowledged counts the sends that a group acknowledged within a span of time; ""
// means any group.
func (a *account) acknowledged(group string, from, till time.Duration) (n int) {
	for _, s := range a.all() {
		if s.err == nil && (group == "" || s.group == group) && from <= s.end && s.end < till {
			n++
		}
	}
	return n
}

// firstAfter returns when a group acknowledged a send that began after a moment.
func (a *account) firstAfter(group string, at time.Duration) (time.Duration, bool) {
	for _, s := range a.all() {
		if s.group == group && s.begin > at {
			return s.end, true
		}
	}
	return 0, false
}

// since returns the sends of one sender that began after a moment.
func (a *account) since(sender string, at time.Duration) (list []send) {
	for _, s := range a.all() {
		if s.sender == sender && s.begin > at {
			list = append(list, s)
		}
	}
	return list
}

// lost returns what was acknowledged and not consumed.
func (a *account) lost() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sends {
		if s.err == nil && a.consumed[s.message] == 0 {
			list = append(list, s.message)
		}
	}
	return list
}

// failure returns the error of the first send that failed.
func (a *account) failure() error {
	for _, s := range a.all() {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// balance is the account in numbers.
type balance struct {
	sent, acknowledged     int
	open, survived         int // sends without an acknowledgement; of these consumed all the same
	consumed, twice, never int // messages consumed; more than once; of those that nobody has sent
	timeouts, refused      int // of those without: stored and not copied in time; everything else
}

func (a *account) balance() (b balance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := make(map[string]bool, len(a.sends))
	for _, s := range a.sends {
		known[s.message] = true
		b.sent++
		switch {
		case s.err == nil:
			b.acknowledged++
			continue
		case errors.Is(s.err, pocketmq.ErrFlushSlaveTimeout):
			b.timeouts++
		default:
			b.refused++
		}
		b.open++
		if a.consumed[s.message] > 0 {
			b.survived++
		}
	}
	for message, times := range a.consumed {
		b.consumed++
		if times > 1 {
			b.twice++
		}
		if !known[message] {
			b.never++
		}
	}
	return b
}
