package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// mail is a message to each queue, so that one sees which are being read.
type mail struct {
	log *walk.Log

	mu   sync.Mutex // guards read
	read map[pocketmq.MessageQueue]time.Time
}

func newMail(log *walk.Log) *mail {
	return &mail{log: log, read: make(map[pocketmq.MessageQueue]time.Time)}
}

// handle is the Handler of the consumers.
func (m *mail) handle(_ context.Context, messages []*pocketmq.MessageExt) error {
	m.mu.Lock()
	for _, message := range messages {
		m.read[message.Queue] = time.Now()
	}
	m.mu.Unlock()
	m.log.Wake()
	return nil
}

// send sends one message to each queue. Mostly the producer chooses the queue;
// SendTo is for those who know which.
func (m *mail) send(ctx context.Context, p *pocketmq.Producer, queues []pocketmq.MessageQueue) error {
	for _, q := range queues {
		if _, err := p.SendTo(ctx, q, &pocketmq.Message{Topic: q.Topic, Body: []byte("for " + q.String())}); err != nil {
			return fmt.Errorf("send to %v: %w", q, err)
		}
	}
	return nil
}

// unread lists those of queues whose message nobody has consumed.
func (m *mail) unread(queues []pocketmq.MessageQueue) []pocketmq.MessageQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []pocketmq.MessageQueue
	for _, q := range queues {
		if _, ok := m.read[q]; !ok {
			out = append(out, q)
		}
	}
	return out
}

// last tells when the last of queues was read.
func (m *mail) last(queues []pocketmq.MessageQueue) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var last time.Time
	for _, q := range queues {
		if at := m.read[q]; at.After(last) {
			last = at
		}
	}
	return last
}
