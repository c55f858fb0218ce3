package store

import (
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/pocketmq/pocketmq/message"
)

// The key index leads from a key to the positions of the records that have it.
// Like the consume queues it is derived from the log: dispatch adds the entries
// of each record, in the order of the log.
//
//	dispatch -> table in memory -> sealed tables -> runs in index files
//	                                  (janitor)
//
// A table that is full is sealed, and the janitor sorts it by hash and appends
// it to a file as a run, as soon as the log is synced beyond it. Each of them
// covers positions of its own, so the newest records are found in the last of
// them. Runs are not merged: a run of 64 Ki entries costs a query one read, if
// its times fit, and that is little against what merging costs the writer.
//
// Invariants: positions ascend over runs, sealed tables and table, and a record
// has all of its entries in one of them; no run goes beyond what is both
// dispatched and synced; a run is never changed.
const (
	// tableEntries is the number of entries that fills a table.
	tableEntries = 64 << 10
	// firstChunk and maxChunk are the entries of the first piece of a table's
	// memory and of the largest; each is eight times the one before.
	firstChunk = 32
	maxChunk   = 4096
	// maxUnwritten is the number of sealed tables that may wait for a disk that
	// does not take them. More fence the store: they are memory.
	maxUnwritten = 64
)

// keyEntry is an entry of a table or run. Position and time count from those of
// the first entry, in milliseconds.
type keyEntry struct {
	hash, position, time uint32
}

// keySpan is what a table or run covers. It holds something if entries is not 0.
type keySpan struct {
	entries             int
	first, last         int64 // positions
	firstTime, lastTime int64 // store times, milliseconds
}

// keyTable is a table of the index. Its entries are in the order of their
// positions. The arrays behind chunks and tail only grow: a copy of the struct
// stays as it is.
type keyTable struct {
	keySpan
	chunks [][]keyEntry // full ones
	tail   []keyEntry
}

// fits reports whether the entries of a record can be told from the first.
func (t *keyTable) fits(position, time int64) bool {
	return t.entries == 0 || time >= t.firstTime && time-t.firstTime <= math.MaxUint32 && position-t.first <= math.MaxUint32
}

// add appends the entries of a record.
func (t *keyTable) add(position, time int64, hashes []uint32) {
	if t.entries == 0 {
		t.first, t.firstTime = position, time
	}
	t.last, t.lastTime = position, time
	t.entries += len(hashes)
	for _, h := range hashes {
		if len(t.tail) == cap(t.tail) {
			size := firstChunk
			if n := len(t.tail); n > 0 {
				t.chunks = append(t.chunks, t.tail)
				size = min(8*n, maxChunk)
			}
			t.tail = make([]keyEntry, 0, size)
		}
		t.tail = append(t.tail, keyEntry{hash: h, position: uint32(position - t.first), time: uint32(time - t.firstTime)})
	}
}

// pieces are the entries in order.
func (t *keyTable) pieces() [][]keyEntry {
	if len(t.tail) == 0 {
		return t.chunks
	}
	return append(slices.Clip(t.chunks), t.tail)
}

// upTo cuts the table behind a position.
func (t keyTable) upTo(position int64) keyTable {
	if t.entries == 0 || position >= t.last {
		return t
	}
	cut := keyTable{keySpan: keySpan{first: t.first, firstTime: t.firstTime}}
	for _, piece := range t.pieces() {
		n := sort.Search(len(piece), func(i int) bool { return t.first+int64(piece[i].position) > position })
		if n == 0 {
			break
		}
		cut.entries += n
		cut.last, cut.lastTime = t.first+int64(piece[n-1].position), t.firstTime+int64(piece[n-1].time)
		cut.chunks = append(cut.chunks, piece[:n])
	}
	return cut
}

// keyIndex is the key index of a store.
type keyIndex struct {
	limit int // entries that fill a table
	runFiles

	// mu guards table, sealed, runs and files. It is held for moments only,
	// never while something is read or written.
	mu     sync.RWMutex
	table  keyTable
	sealed []*keyTable // oldest first; readers take the slice as it is
	runs   []*keyRun   // oldest first; as above
}

// addBatch indexes the records of a batch just written. It reports whether a
// table was sealed.
func (x *keyIndex) addBatch(b *Batch) (sealed bool) {
	if len(b.hashes) == 0 {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	hashes := b.hashes
	for i := range b.records {
		if n := b.records[i].keys; n > 0 {
			sealed = x.addLocked(b.position+int64(i), b.storeTime, hashes[:n]) || sealed
			hashes = hashes[n:]
		}
	}
	return sealed
}

// add indexes one record.
func (x *keyIndex) add(position, time int64, hashes []uint32) (sealed bool) {
	if len(hashes) == 0 {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.addLocked(position, time, hashes)
}

func (x *keyIndex) addLocked(position, time int64, hashes []uint32) (sealed bool) {
	if !x.table.fits(position, time) {
		sealed = true
		x.sealLocked()
	}
	x.table.add(position, time, hashes)
	if x.table.entries >= x.limit {
		sealed = true
		x.sealLocked()
	}
	return sealed
}

// sealLocked begins a new table.
func (x *keyIndex) sealLocked() {
	full := x.table
	x.sealed = append(x.sealed, &full)
	x.table = keyTable{}
	if len(full.chunks) > 0 {
		x.table.tail = make([]keyEntry, 0, min(maxChunk, x.limit)) // it will fill up, too
	}
}

// keyView is what a reader took from the index under its lock. Positions ascend
// from runs over sealed to table.
type keyView struct {
	runs   []*keyRun
	sealed []*keyTable
	table  keyTable
}

func (x *keyIndex) view() keyView {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return keyView{runs: x.runs, sealed: x.sealed, table: x.table}
}

// tables are the tables of the view, oldest first.
func (v *keyView) tables() []*keyTable {
	if v.table.entries == 0 {
		return v.sealed
	}
	return append(slices.Clip(v.sealed), &v.table)
}

// writable is the oldest sealed table if it ends at or below a position.
func (x *keyIndex) writable(limit int64) *keyTable {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.sealed) > 0 && x.sealed[0].last <= limit {
		return x.sealed[0]
	}
	return nil
}

// flush writes the sealed tables up to a position as runs, unless ending tells
// it to give up. Only one goroutine at a time calls it.
func (x *keyIndex) flush(limit int64, ending func() bool) error {
	for !ending() {
		t := x.writable(limit)
		if t == nil {
			return nil
		}
		r, err := x.writeRun(t)
		if err != nil {
			return err
		}
		x.mu.Lock()
		r.file.blocks += r.blocks()
		r.file.dirty = true
		x.runs = append(x.runs, r)
		x.sealed = slices.Clone(x.sealed[1:]) // the array would keep the table
		x.mu.Unlock()
	}
	return nil
}

// unwritten is the number of sealed tables.
func (x *keyIndex) unwritten() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.sealed)
}

// indexUpTo is the last position that a run of the index may hold.
func (s *Store) indexUpTo() int64 { return min(s.dispatched.Load(), s.log.synced.Load()) }

// indexRecord indexes a record that is replayed, and writes what has become full.
func (s *Store) indexRecord(r slot, rec []byte) {
	s.replayed.hashes = r.appendHashes(s.replayed.hashes[:0], rec)
	if s.index.add(r.unit.position, r.time, s.replayed.hashes) {
		s.writeIndex()
	}
}

// appendHashes appends the hashes of the keys of the entry that r was read from.
// A lost record has none.
func (r slot) appendHashes(dst []uint32, rec []byte) []uint32 {
	if r.lost {
		return dst
	}
	return indexedOf(string(message.View(rec).Properties())).appendHashes(dst, topicHash(r.key.Topic))
}

// indexBatch indexes a batch just written.
func (s *Store) indexBatch(b *Batch) {
	if s.index.addBatch(b) {
		s.wakeJanitor()
	}
}

// writeIndex turns sealed tables into runs: a job of the janitor, and of replay
// before there is one. A run that cannot be written is tried again later.
func (s *Store) writeIndex() {
	err := s.index.flush(s.indexUpTo(), s.janitor.ending)
	if err == nil {
		return
	}
	s.cfg.Logger.Warn("store: a part of the key index stays in memory; writing it is tried again later", "dir", s.cfg.Dir, "err", err)
	if s.index.unwritten() > maxUnwritten {
		_ = s.fence(err) // reported by Err and Config.Fenced
	}
}
