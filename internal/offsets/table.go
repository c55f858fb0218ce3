package offsets

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/internal/statefile"
)

// Key names a queue of this broker within a group.
type Key struct {
	Topic string
	Queue int
}

// Options says where a Table lives.
type Options struct {
	File   string       // state file; "" = memory only
	NoSync bool         // survive a kill of the process but not a loss of power
	Logger *slog.Logger // nil = silent
}

// Table is the committed offsets of one broker. Safe for concurrent use.
type Table struct {
	file *statefile.File // nil = memory only

	mu     sync.RWMutex            // guards cells; the offsets in them are atomic
	cells  map[place]*atomic.Int64 // entries are never removed
	dirty  atomic.Bool             // something was committed since the last Persist began
	saving sync.Mutex              // one Persist at a time; held over file calls, taken before mu
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

// contents is the file's content.
type contents struct {
	OffsetTable map[string]map[int]int64 `json:"offsetTable"` // topic@group -> queue -> offset
}

// Open reads the table, empty when it was never persisted. A damaged file is
// replaced by the version before it, which is logged: some messages come again.
// With both versions damaged it is an error that names the files
// (statefile.ErrDamaged).
func Open(o Options) (*Table, error) {
	t := &Table{cells: make(map[place]*atomic.Int64)}
	if o.File == "" {
		return t, nil
	}
	t.file = statefile.New(o.File, o.NoSync)
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
	for name, queues := range c.OffsetTable {
		topic, group, ok := strings.Cut(name, separator)
		if !ok {
			return fmt.Errorf("entry %q is not topic%sgroup", name, separator)
		}
		for q, offset := range queues {
			t.Commit(group, topic, q, offset)
		}
	}
	t.dirty.Store(false)
	return nil
}

// Commit sets a group's offset of a queue, also to a lower one. A negative
// queue or offset is no offset and is ignored. It does not block on files.
// Java: ConsumerOffsetManager.commitOffset.
func (t *Table) Commit(group, topic string, queue int, offset int64) {
	if queue < 0 || offset < 0 {
		return
	}
	at := place{group, topic, queue}
	t.mu.RLock()
	cell := t.cells[at]
	t.mu.RUnlock()
	if cell == nil {
		cell = t.add(at)
	}
	// Stored first and marked afterwards: a Persist that misses the offset
	// leaves the mark for the next one.
	if cell.Swap(offset) != offset && !t.dirty.Load() {
		t.dirty.Store(true)
	}
}

func (t *Table) add(at place) *atomic.Int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
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
// and returns how many it lowered. limit is called without a lock, once per
// topic and queue. Without it, messages stored after a crash that cost the log
// its tail would count as consumed.
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
	if err := t.file.Save(t.encode()); err != nil {
		t.dirty.Store(true)
		return fmt.Errorf("consumer offsets: %w", err)
	}
	return nil
}

// encode writes one line per topic and group, sorted, so that people can read
// and compare files.
func (t *Table) encode() []byte {
	type line struct {
		place
		offset int64
	}
	var lines []line
	for at, offset := range t.all() {
		lines = append(lines, line{at, offset})
	}
	slices.SortFunc(lines, func(a, b line) int {
		if c := strings.Compare(a.topic, b.topic); c != 0 {
			return c
		}
		if c := strings.Compare(a.group, b.group); c != 0 {
			return c
		}
		return cmp.Compare(a.queue, b.queue)
	})
	out := []byte(`{"offsetTable":{`)
	for i, l := range lines {
		if i == 0 || lines[i-1].topic != l.topic || lines[i-1].group != l.group {
			if i > 0 {
				out = append(out, "},"...)
			}
			out = append(out, '\n')
			name, _ := json.Marshal(l.topic + separator + l.group) // a string always encodes
			out = append(out, name...)
			out = append(out, ":{"...)
		} else {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = strconv.AppendInt(out, int64(l.queue), 10)
		out = append(out, `":`...)
		out = strconv.AppendInt(out, l.offset, 10)
	}
	if len(lines) > 0 {
		out = append(out, "}\n"...)
	}
	return append(out, "}}"...)
}
