package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tidwall/wal"
)

// segmentName is the only file in the folder of a log file: the wal's name for
// a segment that begins with local index 1.
const segmentName = "00000000000000000001"

// nextName is the folder of the file that is prepared for the next roll.
const nextName = "next" + tempSuffix

// fileName is the folder name of the log file with the given first position.
func fileName(base int64) string { return fmt.Sprintf("%020d", base) }

// parseFileName is the reverse of fileName.
func parseFileName(name string) (base int64, ok bool) {
	if len(name) != 20 {
		return 0, false
	}
	base, err := strconv.ParseInt(name, 10, 64)
	return base, err == nil && base >= 1 && fileName(base) == name
}

// walOptions make a wal.Log that never cycles, never syncs on write and never
// touches its segment cache: one segment, read from memory. That is what makes
// its Read safe beside other readers and the writer.
func walOptions() *wal.Options {
	return &wal.Options{
		NoSync:           true,
		NoCopy:           true,
		AllowEmpty:       true,
		SegmentSize:      math.MaxInt,
		SegmentCacheSize: 1,
	}
}

// logFile is one file of the commit log: a folder with a wal of one segment.
// Local index 1 of the wal is the file header, so the record at position p has
// local index p - base + 2.
type logFile struct {
	base   int64 // position of the first record
	header fileHeader
	dir    string
	path   string // of the segment

	// log serves reads from memory. It is there for the file that is being
	// written, and for older ones until they are synced.
	log atomic.Pointer[wal.Log]
	// rw is our own handle: fsync through it does not lock the wal, and the
	// segment is cut through it. It lives as long as log. Replaced only by the
	// flusher, or by whoever closes the store.
	rw *os.File
	// size is the number of bytes of good entries, header included.
	size atomic.Int64

	// newest is the store time of the last record in milliseconds; 0 while it is
	// not known. The leader sets it, and for a file found at open whoever asks.
	newest atomic.Int64

	// offsets is the growing sparse index, owned by the leader until the file
	// is sealed.
	offsets []int64
	// headerDue means that the header goes into the next batch; nextWanted,
	// that the file after this one has been asked for. Owned by the leader.
	headerDue, nextWanted bool
	// listed means that the segment's entry in dir is synced; set before the
	// file is written to. durable means that the entry of dir is, too. Owned by
	// the flusher.
	listed, durable bool

	// index is set when the file is sealed, or by its first reader.
	index atomic.Pointer[sparseIndex]
	// firstTime is the store time of the first record, once a reader has asked
	// for it while another file followed; 0 before.
	firstTime atomic.Int64
	// indexMu lets one reader build the index while others wait for it.
	indexMu sync.Mutex
}

func newLogFile(root string, h fileHeader) *logFile {
	dir := filepath.Join(root, fileName(h.base))
	return &logFile{base: h.base, header: h, dir: dir, path: filepath.Join(dir, segmentName)}
}

// openLog opens a wal on the segment, which must be empty or verified to its end;
// records is what it must then hold.
func (f *logFile) openLog(records int64) (*wal.Log, error) {
	if err := spareHandles(f.path); err != nil {
		return nil, err
	}
	log, err := wal.Open(f.dir, walOptions())
	if err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	want := uint64(records + 1)
	if f.headerDue {
		want = 0
	}
	if err == nil && last != want {
		err = damagef(f.path, f.base, "the wal reads %d entries where %d are", last, want)
	}
	if err != nil {
		return nil, errors.Join(err, closeWalUnsynced(log)) // nothing was written by it
	}
	return log, nil
}

// open opens the wal, and our own handle, as openLog does.
func (f *logFile) open(disk syncer, records int64) error {
	log, err := f.openLog(records)
	if err != nil {
		return err
	}
	rw, err := disk.open(f.path)
	if err != nil {
		return errors.Join(err, closeWalUnsynced(log)) // nothing was written by it
	}
	f.log.Store(log)
	f.rw = rw
	return nil
}

// spareHandles fails when a segment cannot be opened as often at a time as the
// wal will open it. The wal keeps a handle of a segment that it then cannot read,
// until the garbage collector finds it. It does so still when somebody takes the
// last handles meanwhile.
func spareHandles(segment string) error {
	var spare [2]*os.File
	var err error
	for i := range spare {
		if spare[i], err = os.Open(segment); err != nil {
			break
		}
	}
	for _, f := range spare {
		if f != nil {
			_ = f.Close() // was not even read
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the wal makes it, as the last thing that it does
	}
	return err
}

// close lets the wal and our handle go. Closing a wal fsyncs it.
func (f *logFile) close() error { return f.closeBy(closeWal) }

// closeUnsynced is close without the fsync.
func (f *logFile) closeUnsynced() error { return f.closeBy(closeWalUnsynced) }

func (f *logFile) closeBy(how func(*wal.Log) error) error {
	log := f.log.Load()
	if log == nil {
		return nil
	}
	err := how(log)
	f.log.Store(nil)
	err = errors.Join(err, f.rw.Close())
	f.rw = nil
	return err
}
