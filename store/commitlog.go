package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/wal"
)

// commitLog is the chain of log files.
//
// One goroutine at a time writes: the leader of a group, see append.go. One
// goroutine, the flusher, syncs, and closes the wals of files that need no more
// writing. Any number read.
//
// Invariants: synced <= written. Positions are dense from min to written. All
// of a file is synced before any of the next counts as synced. Only the last
// file of files is written to.
type commitLog struct {
	dir       string
	fileSize  int64
	throwaway bool
	disk      syncer
	handles   handles
	cursors   cursors
	blocks    blockCache

	// frozen means that the log was opened read-only: its last file is as final
	// as all others. Set before anybody reads.
	frozen bool

	// files is in the order of their positions and never empty once the log is
	// open for writing. The leader appends and the janitor cuts off the front,
	// both by a compare-and-swap; readers take the slice as it is.
	files atomic.Pointer[[]*logFile]

	// origin is the header of the first file while there is none. Written while
	// the log opens.
	origin fileHeader
	// epoch is that of the next file. Set while the log opens, and by the leader.
	epoch atomic.Int64

	written atomic.Int64
	synced  atomic.Int64
	// proven is what new entries claim to be synced. It stays behind for a
	// throwaway log, which cannot claim anything.
	proven atomic.Int64

	// Owned by the leader.
	active  *logFile
	batch   wal.Batch
	pending int64 // bytes in batch
	last    int64 // position of the last entry in batch

	// prepare guards prepared, and the folder next.tmp.
	prepare  sync.Mutex
	prepared bool
}

// batchKeep is how many bytes of a batch buffer are kept for the next batch.
const batchKeep = 2 << 20

// startFile begins a file that holds nothing but its header, unless the last one
// is such a file.
func (c *commitLog) startFile(now int64) error {
	if c.written.Load() < c.active.base {
		return nil
	}
	if err := c.roll(now); err != nil {
		return err
	}
	c.beginFile()
	c.last = c.written.Load()
	return c.commit()
}

// Memory reserved for a file: its size, up to a limit, and room for the group
// that fills it.
const (
	maxReserve    = 16 << 20
	reserveBeyond = 128 << 10
)

// begin starts a batch of entries, in a new file when the last one is full.
func (c *commitLog) begin(now int64) error {
	if c.active == nil || c.active.size.Load() > c.fileSize {
		if err := c.roll(now); err != nil {
			return err
		}
	}
	c.beginFile()
	return nil
}

// beginFile puts the header into the batch if the file has none yet.
func (c *commitLog) beginFile() {
	if f := c.active; f.headerDue {
		entry := f.header.entry(c.proven.Load())
		c.batch.Write(1, entry)
		c.pending = storedSize(len(entry))
	}
}

// add seals the record at buf[at:at+size] as the entry of a position and puts
// it into the batch. The wal copies it.
func (c *commitLog) add(buf []byte, at, size int, pos, synced int64) {
	f := c.active
	if (pos-f.base)%indexStep == 0 {
		f.offsets = append(f.offsets, f.size.Load()+c.pending)
	}
	entry := sealEntry(buf, at, size, pos, synced)
	c.batch.Write(uint64(pos-f.base+2), entry)
	c.pending += storedSize(len(entry))
	c.last = pos
}

// commit writes the batch and publishes its last position. After an error the
// memory of the wal cannot be trusted beyond what was written before, and the
// segment is cut back to that: the log must not be written again.
func (c *commitLog) commit() error {
	f := c.active
	c.disk.faults.delay()
	err := c.disk.faults.space("write", f.path)
	if err == nil {
		err = f.log.Load().WriteBatch(&c.batch)
	}
	if c.pending > batchKeep {
		c.batch = wal.Batch{} // it would keep its buffers for ever
	}
	if err != nil {
		return errors.Join(err, c.disk.truncate(f.rw, f.size.Load()))
	}
	f.headerDue = false
	f.size.Add(c.pending)
	c.pending = 0
	c.written.Store(c.last)
	if c.throwaway {
		c.synced.Store(c.last)
	}
	return nil
}

// roll seals the file being written and starts the next.
func (c *commitLog) roll(now int64) error {
	h := c.origin
	old := c.active
	if old != nil {
		h.base = c.written.Load() + 1
		h.bytes = old.header.bytes + old.size.Load()
	}
	h.format, h.created, h.epoch = currentFormat, now, c.epoch.Load()
	f := newLogFile(c.dir, h)
	f.headerDue = true
	var err error
	if f.listed, err = c.takePrepared(f.dir); err != nil {
		return err
	}
	if !f.listed { // the wal makes them
		c.disk.madeDir(f.dir)
		c.disk.madeFile(f.path)
	}
	if err := f.open(c.disk, 0); err != nil {
		return err
	}
	if old != nil {
		old.index.Store(&sparseIndex{offsets: old.offsets, size: old.size.Load()})
		// Where one file was filled, another will be. The last group may go
		// beyond the limit.
		entries := int(c.written.Load() - old.base + 2)
		reserveWal(f.log.Load(), int(min(c.fileSize, maxReserve)+reserveBeyond), entries+entries/8)
	}
	c.addFile(f)
	return nil
}

// addFile makes f the file that is written to.
func (c *commitLog) addFile(f *logFile) {
	for done := false; !done; {
		old := c.files.Load()
		var files []*logFile
		if old != nil {
			files = *old
		}
		// Readers hold shorter slices of the same array, never this element.
		files = append(files, f)
		done = c.files.CompareAndSwap(old, &files)
	}
	c.active = f
}

// prepareNext makes the folder and the empty segment of the next file ahead of
// time, so that rolling is a rename.
func (c *commitLog) prepareNext() error {
	c.prepare.Lock()
	defer c.prepare.Unlock()
	if c.prepared {
		return nil
	}
	dir := filepath.Join(c.dir, nextName)
	if err := errors.Join(c.disk.remove(dir), c.disk.makeDir(dir)); err != nil {
		return err
	}
	f, err := c.disk.create(filepath.Join(dir, segmentName))
	if err != nil {
		return err
	}
	if err := errors.Join(c.disk.file(f), f.Close(), c.disk.dir(dir)); err != nil {
		return err
	}
	c.prepared = true
	return nil
}

// takePrepared renames the prepared folder to dir. When there is none, or it is
// just being made, it returns false: opening the file makes the folder. The
// rename comes before anything in the folder is open, for Windows.
func (c *commitLog) takePrepared(dir string) (bool, error) {
	if !c.prepare.TryLock() {
		return false, nil
	}
	defer c.prepare.Unlock()
	if !c.prepared {
		return false, nil
	}
	c.prepared = false
	return true, c.disk.rename(filepath.Join(c.dir, nextName), dir)
}

// dropPrepared removes the prepared folder.
func (c *commitLog) dropPrepared() error {
	c.prepare.Lock()
	defer c.prepare.Unlock()
	c.prepared = false
	return c.disk.remove(filepath.Join(c.dir, nextName))
}

// sync makes everything written so far durable, file after file, and publishes
// how far it came. Only the flusher calls it.
func (c *commitLog) sync() error {
	target := c.written.Load()
	if c.throwaway || c.synced.Load() >= target {
		return nil
	}
	files := *c.files.Load()
	for i := c.search(files, c.synced.Load()+1); i < len(files); i++ {
		f := files[i]
		end := target
		if i+1 < len(files) {
			end = min(end, files[i+1].base-1)
		}
		if !f.durable {
			if !f.listed {
				c.disk.faults.delay()
				if err := c.disk.dir(f.dir); err != nil {
					return err
				}
			}
			c.disk.faults.delay()
			if err := c.disk.dir(c.dir); err != nil {
				return err
			}
			f.durable = true
		}
		c.disk.faults.delay()
		if err := c.disk.file(f.rw); err != nil {
			return err
		}
		c.publishSynced(end)
		if end == target {
			break
		}
	}
	return nil
}

func (c *commitLog) publishSynced(pos int64) {
	c.synced.Store(pos)
	if !c.throwaway {
		c.proven.Store(pos)
	}
}

// retire closes the wals of files that are full and synced. Their readers go
// to the segment itself. Only the flusher calls it.
func (c *commitLog) retire() error {
	files := *c.files.Load()
	for i := len(files) - 2; i >= 0; i-- {
		f := files[i]
		if f.log.Load() == nil {
			break // so are all before it
		}
		if files[i+1].base-1 > c.synced.Load() {
			continue
		}
		if err := c.closing()(f); err != nil {
			return err
		}
		c.disk.finished(f.path)
	}
	return nil
}

// closing is how the log closes its files: a throwaway one never syncs.
func (c *commitLog) closing() func(*logFile) error {
	if c.throwaway {
		return (*logFile).closeUnsynced
	}
	return (*logFile).close
}

// closeFiles ends all use of the files by one of logFile's ways to close.
func (c *commitLog) closeFiles(how func(*logFile) error) error {
	var errs []error
	if files := c.files.Load(); files != nil {
		for _, f := range *files {
			errs = append(errs, how(f))
		}
	}
	c.blocks.close()
	c.handles.close()
	return errors.Join(errs...)
}

// halfFull reports once per file that it is time to prepare the next one. Only
// the leader calls it.
func (c *commitLog) halfFull() bool {
	if c.active.nextWanted || c.active.size.Load() <= c.fileSize/2 {
		return false
	}
	c.active.nextWanted = true
	return true
}

// logEntry is a record read back from the log.
type logEntry struct {
	file     *logFile
	position int64
	record   []byte
}

// scan reads the log from one position to another from disk, verifies every
// entry, and calls yield for each. The record is valid during the call only.
func (c *commitLog) scan(from, to int64, yield func(logEntry) error) error {
	files := *c.files.Load()
	if from > to {
		return nil
	}
	for i := max(0, c.search(files, from)); i < len(files) && files[i].base <= to; i++ {
		f := files[i]
		end := to
		if i+1 < len(files) {
			end = min(end, files[i+1].base-1)
		}
		if err := c.scanFile(f, from, end, yield); err != nil {
			return err
		}
	}
	return nil
}

// readOne reads one record, from memory if it is in the file being written.
func (c *commitLog) readOne(pos int64) (rec []byte, err error) {
	if f := c.active; f != nil && pos >= f.base {
		entry, err := f.log.Load().Read(uint64(pos - f.base + 2))
		return recordOf(entry), err
	}
	err = c.scan(pos, pos, func(e logEntry) error {
		rec = e.record
		return nil
	})
	return rec, err
}

func (c *commitLog) scanFile(f *logFile, from, to int64, yield func(logEntry) error) error {
	data, err := readStart(f.path, f.size.Load())
	if err != nil {
		return err
	}
	_, off, _, ok := parseHeader(data, f.base)
	if !ok {
		return damagef(f.path, f.base-1, "the file header is damaged")
	}
	for pos := f.base; pos <= to; pos++ {
		entry, n, ok := cutEntry(data[off:])
		if !ok {
			return damagef(f.path, pos, "no entry at byte %d of %d", off, len(data))
		}
		off += n
		if pos < from {
			continue
		}
		rec, _, ok := openEntry(entry, pos)
		if !ok || isHeader(rec) {
			return damagef(f.path, pos, "the entry at byte %d fails its checksum", off-n)
		}
		if err := yield(logEntry{file: f, position: pos, record: rec}); err != nil {
			return err
		}
	}
	return nil
}

// readStart reads the first size bytes of a file, or all when it is shorter.
func readStart(path string, size int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data := make([]byte, size)
	n, err := io.ReadFull(f, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return data[:n], err
}

// min is the first position of the log.
func (c *commitLog) min() int64 {
	if files := c.files.Load(); files != nil && len(*files) > 0 {
		return (*files)[0].base
	}
	return c.origin.base
}

// size is the number of bytes of all files.
func (c *commitLog) size() int64 {
	files := *c.files.Load()
	if len(files) == 0 {
		return 0
	}
	last := files[len(files)-1]
	return last.header.bytes + last.size.Load() - files[0].header.bytes
}

// churn counts the bytes that were ever written to the log and those that were
// ever deleted from it.
func (c *commitLog) churn() int64 {
	files := *c.files.Load()
	if len(files) == 0 {
		return 0
	}
	last := files[len(files)-1]
	return last.header.bytes + last.size.Load() + files[0].header.bytes
}

// unsynced is the number of bytes from the first file that is not wholly synced
// on. Nothing of a throwaway log is ever unsynced.
func (c *commitLog) unsynced() (bytes int64, count int) {
	files := *c.files.Load()
	from := max(0, c.search(files, c.synced.Load()+1))
	first, last := files[from], files[len(files)-1]
	return last.header.bytes + last.size.Load() - first.header.bytes, len(files) - from
}

// search finds the file that holds a position, or would. It is -1 for a
// position before the first file.
func (c *commitLog) search(files []*logFile, pos int64) int {
	n := len(files)
	if n > 0 && pos >= files[n-1].base {
		return n - 1
	}
	i, j := 0, n
	for i < j {
		h := int(uint(i+j) >> 1)
		if pos >= files[h].base {
			i = h + 1
		} else {
			j = h
		}
	}
	return i - 1
}

// read appends the records of units, which are in ascending order, to out.
// Those from the memory of a wal alias it and are not verified again; those
// from disk are.
func (c *commitLog) read(units []unit, out [][]byte) ([][]byte, error) {
	files := *c.files.Load()
	for goesOn := false; len(units) > 0; goesOn = true {
		i := c.search(files, units[0].position)
		if i < 0 {
			return out, contradictf(c.dir, units[0].position, "it points before the first file")
		}
		f := files[i]
		end := c.written.Load() + 1
		n := len(units)
		if i+1 < len(files) {
			end = files[i+1].base
			for n = 1; n < len(units) && units[n].position < end; n++ {
			}
		}
		if units[n-1].position >= end {
			return out, contradictf(f.path, units[n-1].position, "it points behind the end of the log at %d", end-1)
		}
		done, err := f.readMemory(units[:n], &out)
		if err == nil && done < n {
			out, err = c.readSealed(files, i, units[done:n], goesOn, out)
		}
		if err != nil {
			return out, err
		}
		units = units[n:]
	}
	return out, nil
}

// readMemory appends records to out for as long as the wal of the file is
// open, and returns for how many units it did.
func (f *logFile) readMemory(units []unit, out *[][]byte) (int, error) {
	log := f.log.Load()
	if log == nil {
		return 0, nil
	}
	for i, u := range units {
		entry, err := log.Read(uint64(u.position - f.base + 2))
		if errors.Is(err, wal.ErrClosed) {
			return i, nil
		}
		if err != nil {
			return i, damagef(f.path, u.position, "read: %v", err)
		}
		rec := recordOf(entry)
		if len(rec) != int(u.size) {
			return i, contradictf(f.path, u.position, "the record has %d bytes, the queue says %d", len(rec), u.size)
		}
		*out = append(*out, rec[:len(rec):len(rec)])
	}
	return len(units), nil
}

// nowMillis is the wall clock in milliseconds.
func nowMillis() int64 { return time.Now().UnixMilli() }
