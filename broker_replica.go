package pocketmq

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/store"
)

// replica is what a broker has to remember as a member of its group, beside its log.
type replica struct {
	file      *statefile.File
	confirmed atomic.Int64 // what must not be cut off its log; with failover, what former lives knew of that, or more
	unled     atomic.Int64 // see replicaState

	turn  statefile.Turn               // one save at a time; held over its file calls
	saved atomic.Pointer[replicaState] // the content of the file, or what is to be; stored with the turn held, not to be changed
	// former is the content of the file while the present life could not be stored, else
	// nil: guarded by the turn. Until then the file tells of the life before, and has to.
	former *replicaState
}

// replicaState is the content of config/replication.json.
type replicaState struct {
	// Epoch is the highest that the broker knows of, without failover: no master of a
	// lower one is followed.
	Epoch int64 `json:"epoch,omitempty"`
	// Confirmed is a position up to which the log must not be cut.
	Confirmed int64 `json:"confirmed,omitempty"`

	// Unled is where the log ended when the broker began to take part in elections, until
	// it follows somebody, or is, who was elected. What was dispatched before may be cut.
	Unled int64 `json:"unled,omitempty"`

	Failover *ha.ReplicaState `json:"failover,omitempty"` // nil without
	// Boot names the time since the machine began to run. After another one, what was
	// written and not synced may be gone.
	Boot   string `json:"boot,omitempty"`
	Closed bool   `json:"closed,omitempty"` // the last life ended in good order
	Synced bool   `json:"synced,omitempty"` // what it acknowledged it had synced
}

// openReplica reads what was remembered.
func (b *Broker) openReplica() (*replica, error) {
	path := filepath.Join(b.cfg.Dir, "config", "replication.json")
	r := &replica{file: statefile.New(path, b.throwaway), turn: statefile.NewTurn()}
	r.file.On(b.wire.disk)
	data, found, err := r.file.Load()
	if err != nil {
		return nil, fmt.Errorf("replication: %w", err)
	}
	if err := r.file.Damaged(); err != nil {
		b.log.Warn("what is known of the group's epochs was restored from the backup", "err", err)
	}
	saved := new(replicaState)
	if found {
		if err := json.Unmarshal(data, saved); err != nil {
			return nil, fmt.Errorf("replication: %s: %w; put a good copy in its place", path, err)
		}
	}
	r.saved.Store(saved)
	r.confirmed.Store(saved.Confirmed)
	r.unled.Store(saved.Unled)
	return r, nil
}

// nextLife begins a life in a group with failover. synced tells that it syncs what it
// acknowledges, fresh that the log was made just now; end is its end, which may be lower
// than it was. Whether the life before has lost something is judged by what that one did.
// When the disk is full, and the log has been there, the life begins and is not stored: it
// takes no part before saveLife has stored it.
func (r *replica) nextLife(synced, fresh bool, end int64) (life ha.ReplicaState, stored bool, err error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	boot := bootID()
	s := *r.saved.Load()
	kept := s.Closed || s.Synced || boot != "" && s.Boot == boot
	life = ha.NextLife(s.Failover, newIncarnation(), kept && !fresh)
	if s.Failover == nil || s.Failover.Seen == 0 {
		s.Unled = end
	}
	s.Failover, s.Boot, s.Closed, s.Synced = &life, boot, false, synced
	s.Confirmed, s.Unled = min(s.Confirmed, end), min(s.Unled, end)
	r.confirmed.Store(s.Confirmed)
	r.unled.Store(s.Unled)
	err = r.saveLocked(s)
	// A log that was made just now must not look like an old one to the next life.
	if store.IsDiskFull(err) && !fresh {
		r.former = r.saved.Swap(&s)
		return life, false, nil
	}
	return life, err == nil, err
}

// led ends the time before elections: the log is that of one who was elected.
func (r *replica) led() { r.unled.Store(0) }

// mayBegin refuses a life without elections after one with them: there the broker with id
// 0 is the master, whatever it lacks, and what it lacks is cut off the others.
func (r *replica) mayBegin(elects bool) error {
	if f := r.saved.Load().Failover; !elects && f != nil && f.Seen > 0 {
		return fmt.Errorf("cannot start without Failover: its group has elected masters, up to epoch %d, and without elections broker 0 would be the master, whatever it lacks of what was acknowledged: set BrokerConfig.Failover (pocketmq serve -failover) again, or begin with an empty folder: %w", f.Seen, ErrNotMaster)
	}
	return nil
}

// newIncarnation names a life of a replica: nobody else has the same.
func newIncarnation() int64 { return 1 + rand.Int64N(1<<62) }

// incarnation names the present life of the broker as a replica.
func (r *replica) incarnation() int64 { return r.saved.Load().Failover.Incarnation }

// saveLife stores what the broker has promised, and to whom it belongs.
func (r *replica) saveLife(life ha.ReplicaState) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	s := *r.saved.Load()
	s.Failover = &life
	return r.saveLocked(s)
}

// close is the end of a life in good order: everything was written and synced. One that
// was never stored has done nothing, and leaves the life before as it was.
func (r *replica) close() error {
	r.turn.Lock()
	defer r.turn.Unlock()
	s := *r.saved.Load()
	if s.Failover == nil || r.former != nil {
		return nil
	}
	s.Closed = true
	return r.saveLocked(s)
}

// losePower is what a loss of power does: another boot follows. It needs no space on the
// disk, even if a test says that there is none.
func (r *replica) losePower() error {
	r.turn.Lock()
	defer r.turn.Unlock()
	s := *r.saved.Load()
	if r.former != nil {
		s = *r.former
	}
	if s.Failover == nil {
		return nil
	}
	s.Boot, s.Closed = "", false
	r.file.On(nil) // it is not the broker who does this, nor its disk, which may be full
	return r.saveLocked(s)
}

// persist saves what is confirmed; more, when not nil, is what is known beside.
func (r *replica) persist(more func() int64) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	if more != nil {
		raise(&r.confirmed, more())
	}
	s := *r.saved.Load()
	confirmed, unled := r.confirmed.Load(), r.unled.Load()
	if confirmed == s.Confirmed && unled == s.Unled {
		return nil
	}
	s.Confirmed, s.Unled = confirmed, unled
	return r.saveLocked(s)
}

// giveUp forgets what was confirmed behind a position, durably: the log is about to be cut
// there, or was.
func (r *replica) giveUp(behind int64) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	s := *r.saved.Load()
	before := s.Confirmed
	s.Confirmed = min(r.confirmed.Load(), behind)
	r.confirmed.Store(s.Confirmed)
	if s.Confirmed == before {
		return nil
	}
	return r.saveLocked(s)
}

func (r *replica) saveLocked(s replicaState) error {
	data, err := json.Marshal(s)
	if err == nil {
		err = r.file.Save(data)
	}
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	r.saved.Store(&s)
	r.former = nil
	return nil
}

// ownPromises are those of a slave without failover: it follows whom the name servers
// call the master, but never an older epoch than before.
type ownPromises struct{ *replica }

var _ ha.Promises = ownPromises{}

// Highest implements ha.Promises.
func (r ownPromises) Highest() int64 { return r.saved.Load().Epoch }

// Promise implements ha.Promises.
func (r ownPromises) Promise(_ context.Context, epoch int64) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	s := *r.saved.Load()
	switch {
	case epoch < s.Epoch:
		return fmt.Errorf("epoch %d after %d: %w", epoch, s.Epoch, ha.ErrOldEpoch)
	case epoch == s.Epoch:
		return nil
	}
	s.Epoch, s.Confirmed = epoch, r.confirmed.Load()
	return r.saveLocked(s)
}

// toldPromises are those of a slave of a group with failover: the controller tells it
// whom to follow, and what it knows of is stored before it does.
type toldPromises struct{ p *ha.Participant }

var _ ha.Promises = toldPromises{}

// Highest implements ha.Promises.
func (t toldPromises) Highest() int64 { return t.p.Seen() }

// Promise implements ha.Promises.
func (t toldPromises) Promise(_ context.Context, epoch int64) error {
	if seen := t.p.Seen(); epoch != seen {
		return fmt.Errorf("epoch %d is not the one that the controller has told, %d: %w", epoch, seen, ha.ErrOldEpoch)
	}
	return nil
}
