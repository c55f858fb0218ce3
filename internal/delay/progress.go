package delay

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/protocol"
)

// Progress is the file of a broker that says how far each level was delivered.
// Safe for concurrent use. Java: ScheduleMessageService.persist.
type Progress struct {
	file *statefile.File // nil = memory only

	turn statefile.Turn // one save at a time; held over its file calls, taken before mu

	mu      sync.Mutex // guards the rest, which is changed with the turn held only; a leaf
	offsets map[int]int64
	deleted deletions
	version protocol.DataVersion
}

// contents is the file's content. Levels count from 1 in it.
type contents struct {
	DataVersion protocol.DataVersion `json:"dataVersion"`
	OffsetTable map[int]int64        `json:"offsetTable"`
	// Deleted says which messages are of topics that were deleted: topic -> level ->
	// offset before which they are. Not RocketMQ's, which passes over it.
	Deleted map[string]map[int]int64 `json:"deletedTopics,omitempty"`
}

// On says on which disk the file is, for tests of bad ones; nil is a good one.
func (p *Progress) On(d statefile.Disk) {
	if p.file != nil {
		p.file.On(d)
	}
}

// OpenProgress reads a state file; "" = memory only. With nosync saves survive a
// kill of the process but not a loss of power. A damaged file is replaced by the
// version before it, which is logged: some messages are delivered again. With
// both versions damaged it is an error that names the files
// (statefile.ErrDamaged). logger may be nil.
func OpenProgress(file string, nosync bool, logger *slog.Logger) (*Progress, error) {
	p := &Progress{offsets: make(map[int]int64), turn: statefile.NewTurn()}
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
	p.version, p.offsets, p.deleted = c.DataVersion, levels(c.OffsetTable, -1), deletionsOf(c.Deleted)
	return p, nil
}

// levels returns offsets by level with levels that count from somewhere else: ours
// count from 0, those of RocketMQ from 1. What lies before is left out.
func levels(offsets map[int]int64, shift int) map[int]int64 {
	out := make(map[int]int64, len(offsets))
	for level, offset := range offsets {
		if level+shift >= 0 && level+shift < math.MaxInt32 {
			out[level+shift] = offset
		}
	}
	return out
}

func deletionsOf(file map[string]map[int]int64) deletions {
	d := make(deletions, len(file))
	for topic, offsets := range file {
		d[topic] = levels(offsets, -1)
	}
	return d
}

// Snapshot is what was saved last, for a slave: all that it stands for is durable.
// The position that it presumes has to be read afterwards. The caller owns the maps.
func (p *Progress) Snapshot() protocol.DelayProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := protocol.DelayProgress{Version: p.version, Offsets: levels(p.offsets, 1)}
	if len(p.deleted) > 0 {
		out.Deleted = p.deleted.file()
	}
	return out
}

// Replace saves what a slave's master has in place of what there is, and takes its
// version. It is for a broker that delivers nothing itself, and only once its log
// has, for good, what that presumes: what it says is delivered must not be lost. It
// blocks for the file calls.
//
// Errors: protocol.ErrStaleVersion for progress of a former master; what the save
// returned. Nothing has changed then.
func (p *Progress) Replace(all protocol.DelayProgress) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := all.Version.Follows(p.version, "delay offsets"); err != nil {
		return err
	}
	offsets, deleted := levels(all.Offsets, -1), deletionsOf(all.Deleted)
	if p.version == all.Version && maps.Equal(p.offsets, offsets) && p.deleted.equal(deleted) {
		return nil
	}
	return p.setLocked(all.Version, offsets, deleted)
}

// Clamp lowers what is beyond the end of a level's queue to it, and returns how many
// offsets it lowered: for a broker that becomes a master without the end of the log of
// the one before. Levels count from 0. limit is called while no other
// change goes on. The error is that of the save; nothing has changed then.
func (p *Progress) Clamp(now time.Time, limit func(level int) int64) (n int, err error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	offsets, deleted := maps.Clone(p.offsets), p.deleted.clone()
	for _, m := range append(slices.Collect(maps.Values(deleted)), offsets) {
		for level, at := range m {
			if end := max(limit(level), 0); at > end {
				m[level] = end
				n++
			}
		}
	}
	if n == 0 {
		return 0, nil
	}
	return n, p.setLocked(p.nextLocked(now), offsets, deleted)
}

// SetStateVersion makes versions from now on those of a later state of the broker
// group, its epoch; the present one too, which is saved. An earlier state is ignored.
func (p *Progress) SetStateVersion(now time.Time, state int64) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if state <= p.version.StateVersion {
		return nil
	}
	v := p.nextLocked(now)
	v.StateVersion = state
	return p.setLocked(v, p.offsets, p.deleted)
}

// nextLocked is the next version. Java: DataVersion.nextVersion.
func (p *Progress) nextLocked(now time.Time) protocol.DataVersion {
	return protocol.DataVersion{Counter: p.version.Counter + 1, StateVersion: p.version.StateVersion, Timestamp: now.UnixMilli()}
}

// setLocked saves, and only then lets it be seen. It keeps the maps. The caller holds the
// turn.
func (p *Progress) setLocked(v protocol.DataVersion, offsets map[int]int64, deleted deletions) error {
	if p.file != nil {
		if err := p.file.Save(encode(v, offsets, deleted)); err != nil {
			return fmt.Errorf("delay offsets: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version, p.offsets, p.deleted = v, offsets, deleted
	return nil
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
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.savedLocked(next, deleted) {
		return nil
	}
	offsets := maps.Clone(p.offsets)
	for level, offset := range next {
		if delete(offsets, level); offset != 0 {
			offsets[level] = offset
		}
	}
	return p.setLocked(p.nextLocked(now), offsets, deleted.clone())
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
func encode(v protocol.DataVersion, offsets map[int]int64, deleted deletions) []byte {
	out := fmt.Appendf(nil, `{"dataVersion":{"counter":%d,"stateVersion":%d,"timestamp":%d},"offsetTable":{`, v.Counter, v.StateVersion, v.Timestamp)
	some := false
	for _, level := range slices.Sorted(maps.Keys(offsets)) {
		if offsets[level] == 0 {
			continue
		}
		if some {
			out = append(out, ',')
		}
		some = true
		out = append(out, '"')
		out = strconv.AppendInt(out, int64(level)+1, 10)
		out = append(out, `":`...)
		out = strconv.AppendInt(out, offsets[level], 10)
	}
	out = append(out, '}')
	if len(deleted) > 0 {
		text, err := json.Marshal(deleted.file())
		if err != nil {
			panic(fmt.Sprintf("delay offsets: %v does not encode: %v", deleted, err)) // names and numbers only
		}
		out = append(append(out, `,"deletedTopics":`...), text...)
	}
	return append(out, '}')
}

// file returns deletions as the file has them.
func (d deletions) file() map[string]map[int]int64 {
	out := make(map[string]map[int]int64, len(d))
	for topic, offsets := range d {
		out[topic] = levels(offsets, 1)
	}
	return out
}
