package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// A survey reads a whole log, whatever its state, and changes nothing. Recovery
// stops at the first thing that is wrong; a survey goes on behind it. It is what
// Inspect tells and what a salvage works with.

// survey is a log as it lies on disk.
type survey struct {
	dir   string // of the log
	first int64  // position at which the log must begin
	// bytes and epoch are of the files that were before it; bytes is 0 when that
	// is not known.
	bytes, epoch int64
	unmarked     bool  // nothing tells where the log begins: first is where it does
	synced       int64 // proven: by commitlog/synced, the checkpoint, any header, any entry
	files        []surveyedFile
	queues       queueTracker
	time         int64 // store time of the last entry seen, milliseconds
}

// surveyedFile is one file of the log.
type surveyedFile struct {
	path string
	base int64
	size int64 // bytes on disk

	header     fileHeader
	headerSize int // bytes of the header entry; 0: there is no valid one

	holes []hole // what cannot be read between readable entries, in order
	tail  int    // byte offset behind the last readable entry
	next  int64  // position behind the last readable entry
	// stray counts valid entries behind tail that belong to the next file.
	stray int

	records int64 // readable
	lost    int64 // lost entries there already
	unread  int   // bytes that the disk did not give back

	firstTime, lastTime int64 // store times of its records, milliseconds; 0 without one
	salvaged            int64 // time of its newest lost entry, milliseconds
	endTime             int64 // store time of the last entry up to its end
}

// hole is a piece of a file that cannot be read: bytes [from, to), the entries
// of positions [first, next). There is no position in it when only the header
// is.
type hole struct {
	from, to    int
	first, next int64
	time        int64 // store time of the last entry before it
}

// end is the position behind what file i should hold: where the next file
// begins, or, for the last one, behind what is readable or proven.
func (s *survey) end(i int) int64 {
	if i+1 < len(s.files) {
		return s.files[i+1].base
	}
	return max(s.files[i].next, s.synced+1)
}

// read reads the files of the log.
func (s *survey) read(ctx context.Context, files []foundFile) error {
	for i := range files {
		f := &files[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		limit := int64(math.MaxInt64)
		if i+1 < len(files) {
			limit = files[i+1].base - 1
		}
		data, unread, err := readDamaged(f.path, f.size)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		found := surveyFile(data, f.path, f.base, limit, s)
		found.size, found.unread = f.size, unread
		s.files = append(s.files, found)
	}
	return nil
}

// surveyFile reads the entries of one file, whose positions are base up to
// limit, and tells the survey of each.
func surveyFile(data []byte, path string, base, limit int64, s *survey) surveyedFile {
	f := surveyedFile{path: path, base: base, next: base}
	h, n, proves, ok := parseHeader(data, base)
	if ok {
		f.header, f.headerSize = h, n
		s.synced = max(s.synced, proves)
	}
	f.tail = f.headerSize
	see := func(position, distance int64, rec []byte) bool {
		if position > limit || isHeader(rec) {
			return false
		}
		place, err := slotOf(path, position, rec)
		if err != nil {
			return false
		}
		s.synced = max(s.synced, position-distance)
		s.time = max(s.time, place.time)
		s.queues.see(position, place)
		f.count(place, rec)
		return true
	}
	for off := f.tail; off < len(data); {
		if ok || off > 0 {
			if entry, n, whole := cutEntry(data[off:]); whole {
				rec, distance, valid := openEntry(entry, f.next)
				if valid && see(f.next, distance, rec) {
					off += n
					f.tail = off
					f.next++
					continue
				}
				if valid && f.next > limit {
					f.stray++
				}
			}
		}
		from := 1 // what lies at off is the bad entry of position f.next
		if off == 0 {
			from = 0 // it is the header
		}
		before := s.time
		var found hit
		searchEntries(data[off:], from, f.next, func(h hit) bool {
			if h.position > limit {
				f.stray++
				return true
			}
			if !see(h.position, h.distance, h.record) {
				return true
			}
			found = h
			return false
		})
		if found.to == 0 {
			break
		}
		f.holes = append(f.holes, hole{from: off, to: off + found.from, first: f.next, next: found.position, time: before})
		f.next = found.position + 1
		off += found.to
		f.tail = off
	}
	f.endTime = s.time
	return f
}

// count takes an entry into the sums of the file.
func (f *surveyedFile) count(place slot, rec []byte) {
	if place.lost {
		f.lost++
		if l, ok := parseLost(rec); ok {
			f.salvaged = max(f.salvaged, l.salvaged)
		}
		return
	}
	if place.drop {
		return
	}
	f.records++
	if f.firstTime == 0 {
		f.firstTime = place.time
	}
	f.lastTime = place.time
}

// pageSize is how much is given up where a disk does not give back what was
// written.
const pageSize = 4 << 10

// readDamaged reads the first size bytes of a file. Pages that the disk does not
// give back are zeros; unread counts their bytes.
func readDamaged(path string, size int64) (data []byte, unread int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close() // only read
	data, unread = readPages(f, size)
	return data, unread, nil
}

func readPages(r io.ReaderAt, size int64) (data []byte, unread int) {
	data = make([]byte, size)
	n, err := r.ReadAt(data, 0)
	if n == len(data) || errors.Is(err, io.EOF) {
		return data[:n], 0
	}
	for at := 0; at < len(data); at += pageSize {
		page := data[at:min(len(data), at+pageSize)]
		n, err := r.ReadAt(page, int64(at))
		if errors.Is(err, io.EOF) && n < len(page) {
			return data[:at+n], unread
		}
		if n < len(page) {
			clear(page[n:])
			unread += len(page) - n
		}
	}
	return data, unread
}

// folder is a data folder that is only looked at: who it belongs to, its
// checkpoint, the files of its log with their headers, and what an open would
// find wrong first.
type folder struct {
	dir        string
	identity   identity
	checkpoint *checkpoint // nil: there is no usable one
	log        commitLog   // for its folder, its origin and its way to find files
	marked     int64       // what commitlog/synced says; 0: nothing
	beginning  beginning
	recovery   recovery // examined
}

func lookAt(dir string) (*folder, error) {
	dir = filepath.Clean(dir)
	if _, err := os.Stat(filepath.Join(dir, formatName)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store: folder %s has no %s file, so it is not a broker's data folder; name one, such as the folder of a broker within that of a cluster: %w", dir, formatName, ErrNotAStore)
	}
	id, err := readIdentity(dir)
	if err != nil {
		return nil, err
	}
	if path, remedy, err := misplaced(dir); err != nil || filepath.Base(path) == commitLogName {
		return nil, cmp.Or(err, fmt.Errorf("store: %s is a file, where a store has a folder; %s: %w", path, remedy, ErrNotAStore))
	}
	f := &folder{dir: dir, identity: *id}
	f.log.dir, f.log.disk = filepath.Join(dir, commitLogName), durable()
	if f.checkpoint, err = loadCheckpoint(dir); err != nil {
		return nil, err
	}
	return f, f.examine()
}

// examine lists the log and runs recovery over it, up to where it would begin to
// change something.
func (f *folder) examine() error {
	s := Store{}
	s.log.dir = f.log.dir
	r, at, err := s.beginning(f.checkpoint)
	if err != nil {
		return fmt.Errorf("store: read %s: %w", firstName, err)
	}
	f.beginning, f.log.origin, f.marked = at, s.log.origin, s.mark.position.Load()
	if err := f.log.list(&r); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store: list %s: %w", f.log.dir, err)
	}
	f.recovery = r
	if err := f.recovery.examine(); err != nil {
		return fmt.Errorf("store: read %s: %w", f.log.dir, err)
	}
	return nil
}

// survey reads the log. When it is not known where the log begins, it begins
// with the first file there is.
func (f *folder) survey(ctx context.Context) (*survey, error) {
	r := f.recovery
	s := &survey{dir: f.log.dir, first: r.first, synced: r.synced, bytes: f.log.origin.bytes, epoch: f.log.origin.epoch}
	if r.lost != "" && len(r.files) > 0 && r.files[0].base > r.first {
		s.first, s.unmarked = r.files[0].base, true
		s.synced = max(s.synced, s.first-1) // nothing is deleted before
	}
	s.queues.trimmed = s.first > 1
	s.queues.seen = s.first - 1
	s.queues.start(f.beginning.queues)
	return s, s.read(ctx, r.files)
}

// borrow takes the lock of a folder if it has a lock file, so that no store
// opens it meanwhile. A copy without that file is looked at as it is. release
// gives the lock back.
func borrow(dir string) (release func() error, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("store: look at %s: %w; name a broker's data folder", dir, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("store: %s is a file; name a broker's data folder: %w", dir, ErrNotAStore)
	}
	lock, err := lockExisting(filepath.Join(dir, lockName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() error { return nil }, nil
	case errors.Is(err, errLocked):
		return nil, inUse(dir)
	case err != nil:
		return nil, fmt.Errorf("store: lock folder %s: %w", dir, err)
	}
	return func() error { return unlockFile(lock) }, nil
}

func inUse(dir string) error {
	return fmt.Errorf("store: folder %s is in use by an open store, or by another inspect; stop its broker, or look at a copy made while it was stopped: %w", dir, ErrInUse)
}
