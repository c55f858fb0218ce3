package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
)

const (
	indexName  = "index"
	indexMagic = 0x504D514B // "PMQK"
	// indexBlocks is the number of blocks that an index file of 64 MiB holds.
	// The first is its stamp: magic 4, number 4, stamp 16 bytes, zeros.
	indexBlocks = 16384
)

// runFiles are the files of a key index. A run lies in one file. Runs are only
// appended to the last file, and synced before a checkpoint refers to them, all
// by the janitor; when there is none, by whoever opens or closes the store.
type runFiles struct {
	dir        string
	disk       syncer
	handles    *handles // for reading
	fileBlocks int

	// files are in the order of their numbers, which have no gap. Guarded by
	// keyIndex.mu.
	files []*indexFile
	// gone are files that were not removed yet. Owned by the janitor.
	gone []*indexFile
	// broken is the error of a failed sync; see extents. Owned by the janitor.
	broken error
	// scratch keeps what writing a run needs: *runScratch.
	scratch sync.Pool
}

// runScratch is the memory in which a run is made.
type runScratch struct {
	entries, spare []keyEntry
	bytes          []byte
}

// indexFile is one file of runs.
type indexFile struct {
	number uint32
	stamp  stamp
	path   string

	// Guarded by keyIndex.mu.
	blocks uint32   // length: what is behind is not in use
	dirty  bool     // written to since the last sync
	file   *os.File // for writing; nil once the file is full and synced

	listed bool // its entry in the folder is synced. Owned by the janitor
}

func (f *indexFile) stampBlock() []byte { return stampBlock(indexMagic, f.number, f.stamp) }

// writeRun sorts a table and writes it behind the last run. It does not publish
// it.
func (x *keyIndex) writeRun(t *keyTable) (*keyRun, error) {
	m, ok := x.scratch.Get().(*runScratch)
	if !ok {
		m = new(runScratch)
	}
	defer x.scratch.Put(m)
	m.entries = m.entries[:0]
	for _, piece := range t.pieces() {
		m.entries = append(m.entries, piece...)
	}
	m.spare = slices.Grow(m.spare[:0], len(m.entries))[:len(m.entries)]
	var fences []uint32
	m.bytes, fences = appendRun(m.bytes[:0], t.keySpan, sortByHash(m.entries, m.spare))
	f, at, err := x.fileFor(uint32(len(m.bytes) / blockSize))
	if err == nil {
		err = x.disk.write(f.file, m.bytes, int64(at)*blockSize)
	}
	if err != nil {
		return nil, fmt.Errorf("store: write key index: %w", err)
	}
	r := &keyRun{keySpan: t.keySpan, file: f, at: at}
	r.fences.Store(&fences)
	return r, nil
}

// fileFor returns the file for a run of so many blocks, and where it begins. It
// makes the next file when the last one has no room.
func (x *keyIndex) fileFor(blocks uint32) (*indexFile, uint32, error) {
	x.mu.RLock()
	var f *indexFile
	number, at := uint32(0), uint32(1)
	if n := len(x.files); n > 0 {
		f = x.files[n-1]
		number, at = f.number+1, f.blocks
	}
	x.mu.RUnlock()
	if f != nil && (at == 1 || int(at+blocks) <= x.fileBlocks) {
		return f, at, nil
	}
	f, err := x.create(number)
	if err != nil {
		return nil, 0, err
	}
	x.mu.Lock()
	x.files = append(x.files, f)
	x.mu.Unlock()
	return f, 1, nil
}

func (x *keyIndex) create(number uint32) (*indexFile, error) {
	if err := x.disk.makeDir(x.dir); err != nil {
		return nil, err
	}
	f := &indexFile{number: number, path: filepath.Join(x.dir, numberedName(number)), blocks: 1, dirty: true}
	if _, err := rand.Read(f.stamp[:]); err != nil {
		return nil, err
	}
	file, err := x.disk.create(f.path)
	if err != nil {
		return nil, err
	}
	if err := x.disk.write(file, f.stampBlock(), 0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.file = file
	return f, nil
}

// sync makes all runs written so far durable, and closes the write handles of
// files that are full. Only the janitor calls it, or whoever closes the store
// after the janitor has ended.
func (x *keyIndex) sync() error {
	err := x.broken
	x.mu.Lock()
	var dirty []*indexFile
	for _, f := range x.files {
		if f.dirty && err == nil {
			f.dirty = false
			dirty = append(dirty, f)
		}
	}
	x.mu.Unlock()
	for _, f := range dirty {
		if err = x.disk.file(f.file); err == nil && !f.listed {
			err = x.disk.dir(x.dir)
			f.listed = err == nil
		}
		if err != nil {
			x.broken = err
			break
		}
	}
	if err == nil {
		err = x.closeFull()
	}
	if err != nil {
		return fmt.Errorf("store: sync key index: %w", err)
	}
	return nil
}

func (x *keyIndex) closeFull() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.files[:max(0, len(x.files)-1)] {
		if f.file == nil || f.dirty {
			continue
		}
		err := f.file.Close()
		f.file = nil
		if err != nil {
			return err
		}
		x.disk.finished(f.path)
	}
	return nil
}

// trim forgets what lies below the first position of the log and removes the
// files that hold nothing else. A checkpoint may still name them: load expects
// no file of what the log does not hold.
func (x *keyIndex) trim(first int64) error {
	x.mu.Lock()
	n := sort.Search(len(x.runs), func(i int) bool { return x.runs[i].last >= first })
	x.runs = slices.Clone(x.runs[n:])
	n = sort.Search(len(x.sealed), func(i int) bool { return x.sealed[i].last >= first })
	x.sealed = slices.Clone(x.sealed[n:])
	if x.table.last < first {
		x.table = keyTable{}
	}
	n = max(0, len(x.files)-1) // the last one is written to
	if len(x.runs) > 0 {
		n = slices.Index(x.files, x.runs[0].file)
	}
	x.gone = append(x.gone, x.files[:n]...)
	x.files = slices.Clone(x.files[n:])
	var errs []error
	for _, f := range x.gone {
		if f.file != nil {
			errs = append(errs, f.file.Close())
			f.file = nil
		}
	}
	x.mu.Unlock()
	var kept []*indexFile
	for _, f := range x.gone {
		if err := removeRead(x.handles, x.disk, f.path, f.path); err != nil {
			kept, errs = append(kept, f), append(errs, err)
		}
	}
	x.gone = kept
	return errors.Join(errs...)
}

// indexState is the key index as of one position.
type indexState struct {
	files  []indexFileState
	runs   []indexRunState
	tables []keyTable // in the order of their positions; the last is not full
}

// indexFileState is what a checkpoint says about an index file.
type indexFileState struct {
	number, blocks uint32
	stamp          stamp
}

// indexRunState is what a checkpoint says about a run.
type indexRunState struct {
	file, at uint32 // numbers of the file and of the header block
	keySpan  keySpan
}

// stateAt describes the index as of the position that the function gives, which
// is called under the lock: all runs lie below it, all above it is in tables.
func (x *keyIndex) stateAt(upTo func() int64) (st indexState, position int64) {
	x.mu.RLock()
	position = upTo()
	for _, f := range x.files {
		st.files = append(st.files, indexFileState{number: f.number, blocks: f.blocks, stamp: f.stamp})
	}
	v := keyView{runs: x.runs, sealed: x.sealed, table: x.table}
	x.mu.RUnlock()
	for _, r := range v.runs {
		st.runs = append(st.runs, indexRunState{file: r.file.number, at: r.at, keySpan: r.keySpan})
	}
	for _, t := range v.tables() {
		if cut := t.upTo(position); cut.entries > 0 {
			st.tables = append(st.tables, cut)
		}
	}
	return st, position
}

// from leaves out what lies below the first position of the log. ok is false for
// what no index can be.
func (st indexState) from(first int64) (kept indexState, ok bool) {
	blocks := make(map[uint32]uint32) // of each file
	for i, f := range st.files {
		if i > 0 && st.files[i-1].number+1 != f.number || f.blocks < 1 {
			return kept, false
		}
		blocks[f.number] = f.blocks
	}
	last, lowest := int64(0), uint32(math.MaxUint32)
	for _, r := range st.runs {
		if r.keySpan.first <= last {
			return kept, false
		}
		last = r.keySpan.last
		if last < first {
			continue
		}
		if run := (keyRun{keySpan: r.keySpan, at: r.at}); !run.fits(blocks[r.file]) {
			return kept, false
		}
		lowest = min(lowest, r.file)
		kept.runs = append(kept.runs, r)
	}
	for i, f := range st.files {
		if f.number >= lowest || i == len(st.files)-1 {
			kept.files = append(kept.files, f)
		}
	}
	for _, t := range st.tables {
		if t.last >= first {
			kept.tables = append(kept.tables, t)
		}
	}
	return kept, true
}

// load takes over what a checkpoint describes, as far as it does not lie below
// the first position of the log. ok is false when it is not all there; nothing
// is changed then.
func (x *keyIndex) load(st indexState, first int64) (ok bool, err error) {
	var files []*indexFile
	defer func() {
		if !ok {
			for _, f := range files {
				err = errors.Join(err, f.file.Close())
			}
		}
	}()
	if st, ok = st.from(first); !ok {
		return false, nil
	}
	ok = false
	for _, fs := range st.files {
		f, there := x.openFile(fs)
		if !there {
			return false, nil
		}
		files = append(files, f)
	}
	for _, f := range files {
		if err := x.disk.truncate(f.file, int64(f.blocks)*blockSize); err != nil {
			return false, err
		}
	}
	x.adopt(st, files)
	ok = true // close lets the handles go
	return ok, errors.Join(x.removeOthers(), x.closeFull())
}

// show takes over what a checkpoint describes for reading only. It reports
// whether the files are those it was made with.
func (x *keyIndex) show(st indexState, first int64) bool {
	st, ok := st.from(first)
	if !ok {
		return false
	}
	var files []*indexFile
	for _, fs := range st.files {
		f := x.fileOf(fs)
		if !f.matches() {
			return false
		}
		files = append(files, f)
	}
	x.adopt(st, files)
	return true
}

// adopt makes the index what st says. files are those of st.
func (x *keyIndex) adopt(st indexState, files []*indexFile) {
	var runs []*keyRun
	for _, r := range st.runs {
		runs = append(runs, &keyRun{keySpan: r.keySpan, file: files[r.file-files[0].number], at: r.at})
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.files, x.runs, x.sealed, x.table = files, runs, nil, keyTable{}
	for i, t := range st.tables {
		if i > 0 {
			x.sealLocked()
		}
		x.table = t
	}
}

func (x *keyIndex) fileOf(st indexFileState) *indexFile {
	return &indexFile{number: st.number, stamp: st.stamp, blocks: st.blocks, listed: true, path: filepath.Join(x.dir, numberedName(st.number))}
}

// openFile opens a file and compares it with what a checkpoint says.
func (x *keyIndex) openFile(st indexFileState) (*indexFile, bool) {
	f := x.fileOf(st)
	if !f.matches() {
		return nil, false // rebuilt
	}
	var err error
	f.file, err = x.disk.open(f.path)
	return f, err == nil
}

// matches reports whether the file is there, as a checkpoint describes it.
func (f *indexFile) matches() bool {
	return f.blocks >= 1 && isStamped(f.path, f.stampBlock(), int64(f.blocks)*blockSize)
}

// reset forgets everything and removes the files.
func (x *keyIndex) reset() error {
	err := x.close()
	x.mu.Lock()
	x.files, x.runs, x.sealed, x.table = nil, nil, nil, keyTable{}
	x.mu.Unlock()
	return errors.Join(err, x.removeOthers())
}

// removeOthers removes files with the name of an index file that are not in use.
func (x *keyIndex) removeOthers() error { return removeNumbered(x.disk, x.dir, x.has) }

func (x *keyIndex) has(number uint32) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := len(x.files)
	return n > 0 && number >= x.files[0].number && number <= x.files[n-1].number
}

// close lets the write handles go.
func (x *keyIndex) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, f := range x.files {
		if f.file != nil {
			errs = append(errs, f.file.Close())
			f.file = nil
		}
	}
	return errors.Join(errs...)
}
