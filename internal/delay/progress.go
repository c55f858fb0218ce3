package delay

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/internal/statefile"
)

// Progress is the file of a broker that says how far each level was delivered.
// Safe for concurrent use. Java: ScheduleMessageService.persist.
type Progress struct {
	file *statefile.File // nil = memory only

	mu      sync.Mutex // guards the rest; one save at a time, held over its file calls
	offsets map[int]int64
	deleted deletions
	version version
}

// version is RocketMQ's DataVersion.
type version struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
}

// contents is the file's content. Levels count from 1 in it.
type contents struct {
	DataVersion version       `json:"dataVersion"`
	OffsetTable map[int]int64 `json:"offsetTable"`
	// Deleted says which messages are of topics that were deleted: topic -> level ->
	// offset before which they are. Not RocketMQ's, which passes over it.
	Deleted map[string]map[int]int64 `json:"deletedTopics,omitempty"`
}

// OpenProgress reads a state file; "" = memory only. With nosync saves survive a
// kill of the process but not a loss of power. A damaged file is replaced by the
// version before it, which is logged: some messages are delivered again. With
// both versions damaged it is an error that names the files
// (statefile.ErrDamaged). logger may be nil.
func OpenProgress(file string, nosync bool, logger *slog.Logger) (*Progress, error) {
	p := &Progress{offsets: make(map[int]int64)}
	if file == "" {
		return p, nil
	}
	p.file = statefile.New(file, nosync)
	data, found, err := p.file.Load()
	if err != nil {
		return nil, fmt.Errorf("delay offsets: %w", err)
	}
	if err := p.file.Damaged(); err != nil && logger != nil {
		logger.Warn("delay offsets restored from the backup: delayed messages delivered since come again", "err", err)
	}
	if !found {
		return p, nil
	}
	var c contents
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("delay offsets: %s: %w; put a good copy in its place, or move it away to deliver again what is still stored", file, err)
	}
	p.version = c.DataVersion
	for n, offset := range c.OffsetTable {
		if n >= 1 {
			p.offsets[n-1] = offset
		}
	}
	p.deleted = make(deletions, len(c.Deleted))
	for topic, levels := range c.Deleted {
		p.deleted[topic] = make(map[int]int64, len(levels))
		for n, end := range levels {
			if n >= 1 {
				p.deleted[topic][n-1] = end
			}
		}
	}
	return p, nil
}

// Deleted is what was saved of deleted topics. The caller owns the result.
func (p *Progress) Deleted() deletions {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deleted.clone()
}

// Offset is what was saved for a level, counted from 0; 0 when nothing was. It is
// whatever the file says, which may be no offset of the level's queue.
func (p *Progress) Offset(level int) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offsets[level]
}

// Save saves the offsets of all levels and what is known of deleted topics, unless
// that is what was saved last. It blocks for the file calls.
func (p *Progress) Save(now time.Time, next []int64, deleted deletions) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.savedLocked(next, deleted) {
		return nil
	}
	v := version{Counter: p.version.Counter + 1, StateVersion: p.version.StateVersion, Timestamp: now.UnixMilli()}
	if p.file != nil {
		if err := p.file.Save(encode(v, next, deleted)); err != nil {
			return fmt.Errorf("delay offsets: %w", err)
		}
	}
	p.version, p.deleted = v, deleted.clone()
	for level, offset := range next {
		p.offsets[level] = offset
	}
	return nil
}

// saved reports whether this is what was saved last.
func (p *Progress) saved(next []int64, deleted deletions) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.savedLocked(next, deleted)
}

func (p *Progress) savedLocked(next []int64, deleted deletions) bool {
	if !p.deleted.equal(deleted) {
		return false
	}
	for level, offset := range next {
		if p.offsets[level] != offset {
			return false
		}
	}
	return true
}

// encode leaves out levels that have not begun.
func encode(v version, next []int64, deleted deletions) []byte {
	head, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("delay offsets: %+v does not encode: %v", v, err)) // numbers only
	}
	out := slices.Concat([]byte(`{"dataVersion":`), head, []byte(`,"offsetTable":{`))
	some := false
	for level, offset := range next {
		if offset == 0 {
			continue
		}
		if some {
			out = append(out, ',')
		}
		some = true
		out = append(out, '"')
		out = strconv.AppendInt(out, int64(level)+1, 10)
		out = append(out, `":`...)
		out = strconv.AppendInt(out, offset, 10)
	}
	out = append(out, '}')
	if len(deleted) > 0 {
		file := make(map[string]map[int]int64, len(deleted))
		for topic, levels := range deleted {
			file[topic] = make(map[int]int64, len(levels))
			for level, end := range levels {
				file[topic][level+1] = end
			}
		}
		text, err := json.Marshal(file)
		if err != nil {
			panic(fmt.Sprintf("delay offsets: %v does not encode: %v", file, err)) // names and numbers only
		}
		out = append(append(out, `,"deletedTopics":`...), text...)
	}
	return append(out, '}')
}
