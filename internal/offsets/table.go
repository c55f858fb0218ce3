package offsets

import (
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/protocol"
)

// Key names a queue of this broker within a group.
type Key struct {
	Topic string
	Queue int
}

// Options says where a Table lives.
type Options struct {
	File   string         // state file; "" = memory only
	NoSync bool           // survive a kill of the process but not a loss of power
	Disk   statefile.Disk // that the file is on, in a test of bad disks; nil = a good one
	Logger *slog.Logger   // nil = silent
}

// Table is the committed offsets of one broker. Safe for concurrent use.
type Table struct {
	file *statefile.File // nil = memory only

	mu        sync.RWMutex            // guards what follows up to state; the offsets in cells are atomic, and only changed under it
	cells     map[place]*atomic.Int64 // an entry that is removed is not committed to any more
	resets    map[place]int64         // offsets that the next pull is told, or restart
	moves     moves                   // changes made on purpose
	own       map[place]int64         // whose offset was committed here and not yet given to the master -> the last move known then
	following bool                    // offsets are committed at a master
	state     int64                   // version of the broker group's state, 0 without failover

	waiting atomic.Int64   // how many resets there are
	dirty   atomic.Bool    // something was committed since the last Persist began
	saved   atomic.Int64   // the last move that the file has
	saving  statefile.Turn // one Persist at a time; held over file calls, taken before mu
}

// place is whose offset of which queue. One flat map: every pull and commit
// looks one up, hardly anybody asks for a whole group.
type place struct {
	group, topic string
	queue        int
}

// separator joins topic and group in the file. Neither may contain it.
// Java: ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR.
const separator = "@"

// none is the offset of an entry that is being made.
const none = -1

// contents is the file's content. All but the first is not RocketMQ's, which passes
// over it.
type contents struct {
	OffsetTable  map[string]map[int]int64 `json:"offsetTable"`      // topic@group -> queue -> offset
	Resets       map[string]map[int]int64 `json:"resetOffsetTable"` // the same, of resets; -1 = restart
	Moves        map[string]map[int]int64 `json:"movedTable"`       // the same, with numbers of moves
	Own          map[string]map[int]int64 `json:"ownTable"`         // the same, with the last move that was known
	Moved        int64                    `json:"moved"`
	MovedBefore  int64                    `json:"movedBefore"`
	StateVersion int64                    `json:"stateVersion"`
}

// Open reads the table, empty when it was never persisted. A damaged file is
// replaced by the version before it, which is logged: some messages come again.
// With both versions damaged it is an error that names the files
// (statefile.ErrDamaged).
func Open(o Options) (*Table, error) {
	t := &Table{cells: make(map[place]*atomic.Int64), resets: make(map[place]int64), own: make(map[place]int64), moves: newMoves(), saving: statefile.NewTurn()}
	if o.File == "" {
		return t, nil
	}
	t.file = statefile.New(o.File, o.NoSync)
	t.file.On(o.Disk)
	data, found, err := t.file.Load()
	if err != nil {
		return nil, fmt.Errorf("consumer offsets: %w", err)
	}
	if err := t.file.Damaged(); err != nil && o.Logger != nil {
		o.Logger.Warn("consumer offsets restored from the backup: messages consumed since come again", "err", err)
	}
	if !found {
		return t, nil
	}
	if err := t.decode(data); err != nil {
		return nil, fmt.Errorf("consumer offsets: %s: %w; put a good copy in its place, or move it away to start without offsets", o.File, err)
	}
	return t, nil
}

func (t *Table) decode(data []byte) error {
	var c contents
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, part := range []struct {
		table map[string]map[int]int64
		lift  func(at place, n int64)
	}{
		{c.OffsetTable, func(at place, offset int64) {
			if at.queue >= 0 && offset >= 0 {
				t.cellLocked(at).Store(offset)
			}
		}},
		{c.Resets, func(at place, offset int64) {
			if at.queue >= 0 && offset >= restart {
				t.resets[at] = offset
			}
		}},
		{c.Moves, func(at place, number int64) { t.moves.last[at] = number }},
		{c.Own, func(at place, known int64) {
			if t.cells[at] != nil {
				t.own[at] = known
			}
		}},
	} {
		if err := each(part.table, part.lift); err != nil {
			return err
		}
	}
	t.moves.count, t.moves.floor, t.state = c.Moved, c.MovedBefore, c.StateVersion
	t.waiting.Store(int64(len(t.resets)))
	t.saved.Store(c.Moved)
	return nil
}

// each visits the entries of a table as the file has it.
func each(table map[string]map[int]int64, visit func(at place, offset int64)) error {
	for name, queues := range table {
		topic, group, ok := strings.Cut(name, separator)
		if !ok {
			return fmt.Errorf("entry %q is not topic%sgroup", name, separator)
		}
		for q, offset := range queues {
			visit(place{group, topic, q}, offset)
		}
	}
	return nil
}

// Commit sets a group's offset of a queue, also to a lower one. A negative
// queue or offset is no offset and is ignored, and so is every commit while a
// reset waits; then it returns false. It does not block on files.
// Java: ConsumerOffsetManager.commitOffset.
func (t *Table) Commit(group, topic string, queue int, offset int64) bool {
	return t.put(place{group, topic, queue}, offset, (*Table).setLocked)
}

// Advance is Commit, but ignores a lower offset, too.
func (t *Table) Advance(group, topic string, queue int, offset int64) bool {
	return t.put(place{group, topic, queue}, offset, (*Table).raiseLocked)
}

func (t *Table) put(at place, offset int64, store func(*Table, *atomic.Int64, int64) bool) bool {
	if at.queue < 0 || offset < 0 {
		return false
	}
	if done, taken := t.putKnown(at, offset, store); done {
		return taken
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, waits := t.resets[at]; waits {
		return false
	}
	if !store(t, t.cellLocked(at), offset) {
		return false
	}
	t.ownLocked(at)
	return true
}

// putKnown stores the offset if that needs no new entry.
func (t *Table) putKnown(at place, offset int64, store func(*Table, *atomic.Int64, int64) bool) (done, taken bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.resets) > 0 {
		if _, waits := t.resets[at]; waits {
			return true, false
		}
	}
	cell := t.cells[at]
	if cell == nil {
		return false, false
	}
	if t.following {
		if known, own := t.own[at]; !own || known != t.moves.count {
			return false, false
		}
	}
	return true, store(t, cell, offset)
}

// setLocked stores an offset. Stored first and marked afterwards: a Persist that
// misses the offset leaves the mark for the next one.
func (t *Table) setLocked(cell *atomic.Int64, offset int64) bool {
	if cell.Swap(offset) != offset && !t.dirty.Load() {
		t.dirty.Store(true)
	}
	return true
}

// raiseLocked is setLocked unless a higher offset is stored. Others may store at
// the same time.
func (t *Table) raiseLocked(cell *atomic.Int64, offset int64) bool {
	for {
		at := cell.Load()
		switch {
		case at > offset:
			return false
		case at == offset:
			return true
		case cell.CompareAndSwap(at, offset):
			if !t.dirty.Load() {
				t.dirty.Store(true)
			}
			return true
		}
	}
}

func (t *Table) cellLocked(at place) *atomic.Int64 {
	cell := t.cells[at]
	if cell == nil {
		cell = new(atomic.Int64)
		cell.Store(none)
		t.cells[at] = cell
	}
	return cell
}

// Query returns a group's committed offset of a queue, false without one.
// Java: ConsumerOffsetManager.queryOffset.
func (t *Table) Query(group, topic string, queue int) (int64, bool) {
	t.mu.RLock()
	cell := t.cells[place{group, topic, queue}]
	t.mu.RUnlock()
	if cell == nil {
		return 0, false
	}
	offset := cell.Load()
	return max(offset, 0), offset != none
}

// Group returns all committed offsets of a group in a map that belongs to the
// caller; an unknown group has an empty one. It looks at the whole table.
func (t *Table) Group(group string) map[Key]int64 {
	offsets := make(map[Key]int64)
	for at, offset := range t.all() {
		if at.group == group {
			offsets[Key{at.topic, at.queue}] = offset
		}
	}
	return offsets
}

// all iterates over the committed offsets, under the lock.
func (t *Table) all() iter.Seq2[place, int64] {
	return func(yield func(place, int64) bool) {
		t.mu.RLock()
		defer t.mu.RUnlock()
		for at, cell := range t.cells {
			if offset := cell.Load(); offset != none && !yield(at, offset) {
				return
			}
		}
	}
}

// Clamp lowers every offset that is above limit, the end of its queue, to it,
// those of resets and a slave's own too, and returns how many it lowered. limit is
// called without a lock. Without it, messages stored after a crash that cost the log
// its tail, or by a new master that never had it, would count as consumed.
func (t *Table) Clamp(limit func(topic string, queue int) int64) (n int) {
	cells := make(map[Key][]*atomic.Int64)
	t.mu.RLock()
	for at, cell := range t.cells {
		k := Key{at.topic, at.queue}
		cells[k] = append(cells[k], cell)
	}
	t.mu.RUnlock()
	for k, group := range cells {
		end := max(limit(k.Topic, k.Queue), 0)
		for _, cell := range group {
			for at := cell.Load(); at > end; at = cell.Load() {
				if cell.CompareAndSwap(at, end) {
					t.dirty.Store(true)
					n++
					break
				}
			}
		}
	}
	t.mu.RLock()
	resets := maps.Clone(t.resets)
	t.mu.RUnlock()
	for at, offset := range resets {
		if end := max(limit(at.topic, at.queue), 0); offset > end && t.lowerReset(at, offset, end) {
			n++
		}
	}
	return n
}

// Persist writes the table when it has changed since the last time. After an
// error the next Persist tries again. It blocks for the file calls; commits go
// on meanwhile. Java: ConsumerOffsetManager.persist.
func (t *Table) Persist() error {
	t.saving.Lock()
	defer t.saving.Unlock()
	if !t.dirty.Swap(false) || t.file == nil {
		return nil
	}
	all, own := t.snapshot()
	if err := t.file.Save(encode(all, own)); err != nil {
		t.dirty.Store(true)
		return fmt.Errorf("consumer offsets: %w", err)
	}
	t.saved.Store(all.Moved)
	return nil
}

// encode writes one line per topic and group, so that people can read and compare
// files.
func encode(t protocol.OffsetTable, own []protocol.GroupOffset) []byte {
	out := encodeTable([]byte(`{"offsetTable":{`), t.Offsets)
	if len(t.Resets) > 0 {
		out = encodeTable(append(out, `,"resetOffsetTable":{`...), t.Resets)
	}
	if t.Moved > 0 {
		out = encodeTable(append(out, `,"movedTable":{`...), t.Moves)
		out = fmt.Appendf(out, `,"moved":%d,"movedBefore":%d`, t.Moved, t.MovedBefore)
	}
	if len(own) > 0 {
		out = encodeTable(append(out, `,"ownTable":{`...), own)
	}
	if t.Version.StateVersion > 0 {
		out = fmt.Appendf(out, `,"stateVersion":%d`, t.Version.StateVersion)
	}
	return append(out, '}')
}

// encodeTable appends the lines of one sorted table and its closing brace.
func encodeTable(out []byte, lines []protocol.GroupOffset) []byte {
	for i, l := range lines {
		if i == 0 || lines[i-1].Topic != l.Topic || lines[i-1].Group != l.Group {
			if i > 0 {
				out = append(out, "},"...)
			}
			out = append(out, '\n')
			name, _ := json.Marshal(l.Topic + separator + l.Group) // a string always encodes
			out = append(out, name...)
			out = append(out, ":{"...)
		} else {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = strconv.AppendInt(out, int64(l.QueueID), 10)
		out = append(out, `":`...)
		out = strconv.AppendInt(out, l.Offset, 10)
	}
	if len(lines) > 0 {
		out = append(out, "}\n"...)
	}
	return append(out, '}')
}
