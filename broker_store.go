package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/store"
)

// store is the broker's store. A slave whose log has to be cut replaces it: then a
// request that still has the old one gets an error that says so (see reopening).
func (r *brokerRun) store() *store.Store { return r.stored.Load() }

// openStore opens the store as it was left.
func (r *brokerRun) openStore() error {
	s, err := store.Open(r.storeConfig())
	if err != nil {
		return err
	}
	if n := s.Cut(); n > 0 {
		r.events.emit(r.node, func(e EventBase) Event { return StoreRepaired{e, n} })
	}
	r.stored.Store(s)
	return nil
}

func (r *brokerRun) storeConfig() store.Config {
	b := r.Broker
	return store.Config{
		Dir: b.cfg.Dir, Cluster: b.cfg.Cluster, Broker: b.cfg.Name, ID: b.cfg.ID,
		FileSize: b.cfg.CommitLogFileSize, CacheBytes: b.cfg.CacheBytes, SyncFlush: b.cfg.Flush == SyncFlush,
		FlushInterval: b.cfg.Timings.FlushInterval, FlushTimeout: b.cfg.Timings.FlushTimeout,
		Throwaway: b.throwaway, Logger: b.log,
		Arrived: r.arrived, Written: r.noteWritten, Synced: r.noteSynced, Dropped: r.topicDropped, DelayLevels: b.cfg.Timings.DelayLevels,
		Fenced: func(err error) {
			b.log.Error("store fenced", "err", err)
			r.events.emit(b.node, func(e EventBase) Event { return StoreFenced{e, fenced(err)} })
		},
		Repaired: func(cut int) {
			b.log.Info("store repaired", "refused", cut)
			if d := r.delays.Load(); d != nil {
				d.Hurry(time.Now())
			}
			r.events.emit(b.node, func(e EventBase) Event { return StoreRepaired{e, cut} })
		},
		Full: func(full *store.DiskFullError) {
			r.events.emit(b.node, func(e EventBase) Event {
				if full == nil {
					return StoreRepaired{EventBase: e}
				}
				return StoreFenced{e, fenced(full)}
			})
		},
		Deleted: func(d store.Deletion) {
			r.events.emit(b.node, func(e EventBase) Event { return MessagesDeleted{e, string(d.Reason), d.Files, d.First, d.Last} })
		},
		Damaged: func(err error) {
			r.events.emit(b.node, func(e EventBase) Event { return DamageFound{e, err} })
		},
		Confirming: b.cfg.Failover,
		Retention:  b.cfg.Retention, RetentionBytes: b.cfg.RetentionBytes,
		MinFreeBytes: b.cfg.MinFreeBytes, FreeBytes: b.cfg.FreeBytes, Disk: b.wire.disk,
	}
}

// reopen closes the store, changes its folder, and opens what is there then. Requests
// that run meanwhile fail as those at a broker that starts; reads that are held go on.
// Only one goroutine does it, which Close waits for. After an error the broker has a
// store that is closed: all that it is asked fails, until the next attempt. after runs
// when the store is open again.
func (r *brokerRun) reopen(ctx context.Context, change func(*store.Config) error, after func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan struct{})
	defer close(done)
	r.changing.Store(&done)
	switch err := hooked(r.store().Close()); {
	case errors.Is(err, ErrHandlersRunning):
		return fmt.Errorf("close the store to change it: %w", err)
	case err != nil && !errors.Is(err, store.ErrClosed):
		// It is closed all the same, and says this again each time. What it could not write
		// is made again when the store opens, as after a crash.
		r.log.Warn("the store that is to be changed was not closed in good order", "err", err)
	}
	cfg := r.storeConfig()
	if err := change(&cfg); err != nil {
		return err
	}
	s, err := store.Open(cfg)
	if err != nil {
		return fmt.Errorf("open the store that was changed: %w", err)
	}
	r.stored.Store(s)
	after()
	return nil
}
