package pocketmq

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/store"
)

// replicaLog is the broker's log as package ha reads and writes it.
type replicaLog struct{ r *brokerRun }

var (
	_ ha.MasterLog = replicaLog{}
	_ ha.SlaveLog  = replicaLog{}
)

// Bounds implements ha.Log.
func (l replicaLog) Bounds() (first, end int64) {
	p := l.r.store().Positions()
	return p.Min, p.Written
}

// Epochs implements ha.Log.
func (l replicaLog) Epochs() []ha.Epoch {
	epochs := l.r.store().Epochs()
	list := make([]ha.Epoch, len(epochs))
	for i, e := range epochs {
		list[i] = ha.Epoch(e)
	}
	return list
}

// Read implements ha.Log.
func (l replicaLog) Read(from int64, maxBytes int) (ha.Batch, error) {
	b, err := l.r.store().ReadLog(from, maxBytes)
	return ha.Batch(b), err
}

// BytesBetween implements ha.MasterLog.
func (l replicaLog) BytesBetween(from, to int64) int64 { return l.r.store().BytesBetween(from, to) }

// Beginning implements ha.MasterLog.
func (l replicaLog) Beginning(lastFile bool) (position int64, state []byte, err error) {
	var b store.Beginning
	if lastFile {
		b, err = l.r.store().BeginningOfLastFile(l.r.ctx)
	} else {
		b = l.r.store().Beginning()
	}
	if err != nil || b.Position == 1 {
		return b.Position, nil, err
	}
	state, err = json.Marshal(b)
	return b.Position, state, err
}

// Confirmed implements ha.SlaveLog.
func (l replicaLog) Confirmed() int64 {
	if more := l.r.neverCut(); more != nil {
		return max(more(), l.r.replica.confirmed.Load())
	}
	return l.r.replica.confirmed.Load()
}

// neverCut tells what this life of a member that elects knows not to be cut: what was
// dispatched, and could be read. What was dispatched without elections is not that. nil
// without elections.
func (r *brokerRun) neverCut() func() int64 {
	if !r.cfg.Failover {
		return nil
	}
	return func() int64 {
		at := r.store().Positions().Dispatched
		if at <= r.replica.unled.Load() {
			return 0
		}
		return at
	}
}

// giveUp forgets, with failover, what was confirmed behind a position.
func (r *brokerRun) giveUp(behind int64) error {
	if !r.cfg.Failover {
		return nil
	}
	return r.replica.giveUp(behind)
}

// Append implements ha.SlaveLog.
func (l replicaLog) Append(ctx context.Context, b ha.Batch) error {
	err := l.r.store().Replicate(ctx, store.LogBatch(b))
	l.r.noteMoved()
	return err
}

// Confirm implements ha.SlaveLog.
func (l replicaLog) Confirm(position int64) error {
	if l.r.cfg.Failover {
		l.r.replica.led()
		err := l.r.store().SetConfirmed(position)
		l.r.noteMoved()
		return err
	}
	if l.r.cfg.Replication == SyncReplication {
		raise(&l.r.replica.confirmed, min(position, l.r.store().Positions().Written))
	}
	return nil
}

// raise makes v at least to.
func raise(v *atomic.Int64, to int64) {
	for at := v.Load(); at < to && !v.CompareAndSwap(at, to); at = v.Load() {
	}
}

// Cut implements ha.SlaveLog.
func (l replicaLog) Cut(ctx context.Context, last int64) error {
	if err := l.r.giveUp(last); err != nil {
		return err
	}
	return l.r.reopen(ctx, func(cfg *store.Config) error {
		_, err := store.CutEnd(*cfg, last)
		return err
	}, func() {
		if err := l.r.giveUp(last); err != nil { // it was read once more meanwhile
			l.r.log.Error("what is confirmed was not persisted", "err", err)
		}
		if n := l.r.offsets.Clamp(l.r.store().MaxOffset); n > 0 {
			l.r.log.Warn("committed offsets lay beyond what the log holds now and were lowered", "offsets", n)
		}
	})
}

// Begin implements ha.SlaveLog.
func (l replicaLog) Begin(ctx context.Context, position int64, state []byte) error {
	var b *store.Beginning
	if len(state) > 0 {
		b = new(store.Beginning)
		if err := json.Unmarshal(state, b); err != nil || b.Position != position {
			return fmt.Errorf("the master says that the log begins at %d, but not how: %q: %w", position, clip(string(state)), store.ErrDamaged)
		}
	}
	if err := l.r.giveUp(0); err != nil {
		return err
	}
	return l.r.reopen(ctx, func(cfg *store.Config) error {
		if err := store.Clear(*cfg); err != nil {
			return err
		}
		cfg.Begin = b
		return nil
	}, func() {
		if err := l.r.giveUp(position - 1); err != nil { // it was read once more meanwhile
			l.r.log.Error("what is confirmed was not persisted", "err", err)
		}
	})
}
