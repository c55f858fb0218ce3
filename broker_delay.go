package pocketmq

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/pocketmq/pocketmq/internal/delay"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// arrived is called for each record that became readable, by the one who wrote it.
func (r *brokerRun) arrived(topic string, queueID int, offset int64, tagsCode int64) {
	if topic == message.ScheduleTopic {
		if d := r.delays.Load(); d != nil {
			d.Arrived(queueID, offset, tagsCode, time.Now())
		}
	}
	r.waiters.Notify(topic, queueID, offset, tagsCode)
	r.wire.watch.changed("")
}

// openDelays makes the service that delivers what has become due meanwhile, and
// goes on from there; nil when nothing can be delivered.
func (r *brokerRun) openDelays(progress *delay.Progress) *delay.Service {
	if errors.Is(r.store().Err(), store.ErrReadOnly) {
		return nil // its progress is kept for the time when it is repaired
	}
	levels := r.cfg.Timings.DelayLevels
	delays := append(make([]time.Duration, 0, len(levels)), levels...)
	for q := range r.store().Queues() { // of a longer table of levels
		for q.Topic == message.ScheduleTopic && q.ID >= len(delays) {
			delays = append(delays, message.LevelDelay(levels, len(delays)+1))
		}
	}
	d := delay.NewService(delays, delayLog{r}, progress, r.log)
	r.delays.Store(d)
	return d
}

// persistDelays saves how far delayed messages were delivered.
func (r *brokerRun) persistDelays(ctx context.Context) error {
	if d := r.delays.Load(); d != nil {
		return d.Persist(ctx)
	}
	return nil
}

// closeDelays is persistDelays at the end: it waits no longer than a sender would.
func (r *brokerRun) closeDelays() error {
	if r.store().Err() != nil {
		return nil // what was appended last may not be durable, and never will be
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.cfg.Timings.FlushTimeout)
	defer cancel()
	return r.persistDelays(ctx)
}

// deferRecord makes a record wait for a level.
func (r *brokerRun) deferRecord(rec *message.Record, level int) error {
	levels := len(r.cfg.Timings.DelayLevels)
	// It is nobody's to subscribe to: the next registration announces it.
	if _, err := r.topics.Make(time.Now(), ownTopic(message.ScheduleTopic, levels)); err != nil {
		return err
	}
	delay.Defer(rec, level, levels)
	return nil
}

// delayLevel reads the value of DELAY; 0 means at once.
func delayLevel(value string) (int, error) {
	level, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, protocol.Errorf(protocol.MessageIllegal, "property %s is %q, it must be a number: a level from 1 on, or 0 for no delay", message.PropDelay, value)
	}
	return max(int(level), 0), nil
}

// delayLog is the broker's store as its delay service sees it.
type delayLog struct{ r *brokerRun }

func (l delayLog) Bounds(level int) (first, end int64) {
	return l.r.store().MinOffset(message.ScheduleTopic, level), l.r.store().MaxOffset(message.ScheduleTopic, level)
}

func (l delayLog) Due(level int, offset int64, limit int) ([]int64, error) {
	units, err := l.r.store().Units(message.ScheduleTopic, level, offset, limit)
	due := make([]int64, len(units))
	for i, u := range units {
		due[i] = u.TagsCode
	}
	return due, err
}

func (l delayLog) Records(level int, offset int64, limit, maxBytes int) ([][]byte, int64, error) {
	got, err := l.r.store().Get(store.GetRequest{Topic: message.ScheduleTopic, QueueID: level, Offset: offset, MaxMessages: limit, MaxBytes: maxBytes})
	return got.Records, got.Next, err
}

func (l delayLog) Takes(topic string, queue int) bool {
	config, ok := l.r.topics.Get(topic)
	return ok && queue < max(config.ReadQueues, config.WriteQueues)
}

// Append does not wait for a sync: progress does, before it is saved.
func (l delayLog) Append(ctx context.Context, records []message.Record) error {
	batch := l.r.store().NewBatch()
	for i := range records {
		records[i].StoreHost = l.r.addr
		if err := batch.Add(&records[i]); err != nil {
			return err
		}
	}
	_, err := l.r.store().Append(ctx, batch, store.AppendOptions{NoWait: true})
	return err
}

// Sync makes what was delivered durable, and, in a group with failover, waits until it
// is on all members that may be elected: progress must not stand for messages that
// others may not have.
func (l delayLog) Sync(ctx context.Context) error {
	written := l.r.store().Positions().Written
	if err := l.r.store().Sync(ctx); err != nil || !l.r.cfg.Failover {
		return err
	}
	for l.r.store().Positions().Dispatched < written {
		select {
		case <-l.r.moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
