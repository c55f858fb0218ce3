package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
)

// Recovery brings the log into a state from which it can be written again, or
// finds that it must not be.
//
// "Synced" is a prefix of the log, and what belongs to it is proven: by
// commitlog/synced, by the checkpoint, and by every valid entry or file header,
// each of which says how far the log had been synced when it was written. The mere existence of a
// later file proves nothing. When an entry at position p is bad, then
//
//   - with proof that p had been synced, it is damage: the store opens
//     read-only below p and somebody has to decide;
//   - without, it is torn: a crash came before the end of a write that nobody
//     was promised to survive it. The log is cut there.
//
// The proof may lie behind the bad entry, so the rest of the log is searched
// for valid entries at any byte first.
//
// Nothing is changed before it is known that nothing is damaged: the queues are
// loaded, and the log behind the checkpoint is replayed, up to the torn end, and
// only then is that cut off. With damage no byte of the log, of commitlog/first
// and synced, or of the checkpoint changes; queues and key index do where they
// could not be taken over. Inspect foresees it by the same steps.

// foundFile is a file of the log as it lies on disk.
type foundFile struct {
	*logFile
	size     int64
	headSize int   // bytes of the header entry; 0 when it is not valid
	proves   int64 // synced position that the header proves
}

func (f *foundFile) valid() bool { return f.headSize > 0 }

// recovery is one run over the files of a log.
type recovery struct {
	files  []foundFile
	first  int64  // position at which the log must begin
	synced int64  // proven so far
	lost   string // why it is not known where the log begins; empty when it is
	// unmarked means that neither a mark nor a checkpoint tells where the log begins:
	// it does at 1, if a file does.
	unmarked bool
	// leftovers are the folders of deleted files that are still there.
	leftovers []string

	scanned int // files from here on have been scanned
	end     int64
	cut     int

	bad *badEntry // where the log stops being good; nil when it is to its end
}

// badEntry is the first thing that is wrong.
type badEntry struct {
	file     int   // index; len(files) when the log just ends
	offset   int64 // byte offset in the file
	position int64
	reason   string
}

// recoverLog opens the log, loads the checkpoint's queues if they fit, and replays.
func (s *Store) recoverLog(cp *checkpoint) error {
	r, mark, err := s.beginning(cp)
	if err != nil {
		return err
	}
	if err := s.log.find(&r); err != nil {
		return err
	}
	if err := r.examine(); err != nil {
		return err
	}
	keep := s.log.adopt(&r)
	if b := r.bad; b != nil && r.damaged() {
		s.setDamage(r.path(&s.log, b), b.position, b.reason)
	}
	if err := s.loadQueues(cp, mark.queues); err != nil {
		return err
	}
	if s.damage != nil {
		return nil
	}
	return s.settle(&r, keep, mark.again)
}

// settle changes what has to be changed of a log without damage: it cuts what is
// torn, makes the rest durable, and opens the last file for writing.
func (s *Store) settle(r *recovery, keep int, again bool) error {
	if err := s.log.finish(r, keep); err != nil {
		return err
	}
	if b := r.bad; b != nil {
		s.cut = r.cut
	}
	if b := r.bad; s.cut > 0 { // a file without a byte in it is merely new
		s.cfg.Logger.Warn("store: cut a torn end off the commit log", "dir", s.cfg.Dir, "file", r.path(&s.log, b),
			"position", b.position, "byte", b.offset, "reason", b.reason, "records", r.cut)
	}
	s.markSynced()
	if again {
		if err := s.saveFirst(); err != nil {
			return err
		}
	}
	for _, dir := range r.leftovers {
		if err := s.log.disk.remove(dir); err != nil {
			s.cfg.Logger.Warn("store: cannot remove a deleted commit-log file; it is ignored, and tried again at the next open", "dir", dir, "err", err)
		}
	}
	if s.log.active == nil {
		return s.log.roll(nowMillis())
	}
	return nil
}

// beginning is where the log begins, and what is known of the queues there.
type beginning struct {
	queues []queueStart
	again  bool // the mark is missing or damaged and can be written again
}

// beginning finds out where the log begins: as commitlog/first says, or at 1
// when nothing has been deleted. Should that file be lost or damaged, a
// checkpoint written after the last deletion tells, if the first file agrees.
func (s *Store) beginning(cp *checkpoint) (r recovery, at beginning, err error) {
	r.first = 1
	if err := s.mark.load(s.log.dir, s.log.disk); err != nil {
		return r, at, fmt.Errorf("read %s: %w", syncedName, err)
	}
	r.synced = s.mark.position.Load()
	if cp != nil {
		r.synced = max(r.synced, cp.synced)
	}
	mark, bad, err := loadFirst(s.log.dir)
	switch {
	case err != nil:
		return r, at, err
	case mark != nil:
		r.first, at.queues = mark.position, mark.queues
		s.log.origin.bytes, s.log.origin.epoch = mark.bytes, mark.epoch
	case cp != nil && cp.position > 0 && cp.min > 1:
		r.first, at = cp.min, beginning{queues: cp.starts(), again: true}
	case bad:
		r.lost = "it tells where the log begins, and is damaged"
	case cp == nil || cp.position == 0:
		r.unmarked = true
	}
	s.log.origin.base = r.first
	// Nothing is deleted before all below the new beginning is synced.
	r.synced = max(r.synced, r.first-1)
	return r, at, nil
}

func (s *Store) setDamage(path string, position int64, reason string) {
	s.damage = fmt.Errorf("store: %w: commit log file %s is damaged at position %d: %s; records below it can be read; restore the file from a copy, or stop the broker and keep what can be read with pocketmq inspect --salvage",
		ErrReadOnly, path, position, reason)
	s.cfg.Logger.Error("store: opened read-only", "dir", s.cfg.Dir, "err", s.damage)
}

// adopt makes the good part that recovery found the log, for reading. keep is how
// many of the files it is in. It changes nothing on disk.
func (c *commitLog) adopt(r *recovery) (keep int) {
	keep = len(r.files)
	if b := r.bad; b != nil {
		keep = b.file
		if b.file < len(r.files) && r.files[b.file].valid() && b.offset > 0 {
			keep++ // its beginning
		}
	}
	files := make([]*logFile, 0, keep+1)
	for _, f := range r.files[:keep] {
		f.logFile.size.Store(f.size)
		f.durable = true
		files = append(files, f.logFile)
	}
	if b := r.bad; b != nil && b.file < keep {
		files[b.file].size.Store(b.offset)
	}
	c.files.Store(&files)
	c.epoch.Store(c.origin.epoch)
	if len(files) > 0 {
		c.epoch.Store(files[len(files)-1].header.epoch)
	}
	c.written.Store(r.end)
	synced := min(r.synced, r.end)
	if c.throwaway {
		synced = r.end
	}
	c.publishSynced(synced)
	return keep
}

// finish makes the files what adopt took them for, durable, and opens the last one
// for writing.
func (c *commitLog) finish(r *recovery, keep int) error {
	files := *c.files.Load()
	if len(files) > 0 {
		if err := files[len(files)-1].checkAlone(); err != nil {
			return err
		}
	}
	if err := c.dropPrepared(); err != nil {
		return err
	}
	if r.bad != nil {
		if err := c.cutTorn(r, keep); err != nil {
			return err
		}
	}
	if !c.throwaway {
		if err := c.settle(r, files); err != nil {
			return err
		}
	}
	if len(files) == 0 {
		return nil
	}
	last := files[len(files)-1]
	if err := last.open(c.disk, r.end-last.base+1); err != nil {
		return err
	}
	c.active = last
	return nil
}

// find makes the folder of the log when it is missing, and lists what is in it.
func (c *commitLog) find(r *recovery) error {
	err := os.Mkdir(c.dir, 0o750)
	if err == nil {
		c.disk.madeDir(c.dir)
		return c.disk.dir(filepath.Dir(c.dir))
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return c.list(r)
}

// list finds the files of the log and reads their headers, on all processors:
// this is the part of an open that grows with the log. It changes nothing.
func (c *commitLog) list(r *recovery) error {
	entries, err := os.ReadDir(c.dir) // sorted by name, and so by base
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, ok := parseFileName(e.Name())
		if !ok {
			continue
		}
		f := foundFile{logFile: newLogFile(c.dir, fileHeader{base: base})}
		if base < r.first {
			r.leftovers = append(r.leftovers, f.dir)
			continue
		}
		r.files = append(r.files, f)
	}
	var readers errgroup.Group
	readers.SetLimit(runtime.GOMAXPROCS(0))
	const each = 32 // files a goroutine reads
	for some := range slices.Chunk(r.files, each) {
		readers.Go(func() error {
			for i := range some {
				if err := some[i].readHeader(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := readers.Wait(); err != nil {
		return err
	}
	for i := range r.files {
		r.synced = max(r.synced, r.files[i].proves)
	}
	return nil
}

// readHeader finds out how large the file is and what its header says. A file
// without a valid one, or one that is missing in its folder, is no error.
func (f *foundFile) readHeader() error {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() // only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	f.size = info.Size()
	head := make([]byte, min(f.size, headerSize+entryOverhead))
	if n, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the header of %s: %w", f.path, err)
	} else {
		head = head[:n]
	}
	h, n, proves, ok := parseHeader(head, f.base)
	if !ok {
		return nil
	}
	if h.format > currentFormat {
		return fmt.Errorf("commit log file %s has format %d, this build reads %d; upgrade pocketmq: %w", f.path, h.format, currentFormat, ErrNewerFormat)
	}
	f.header, f.headSize, f.proves = h, n, proves
	return nil
}

// examine finds the end of the good part.
func (r *recovery) examine() error {
	r.end = r.first - 1
	begins := len(r.files) > 0 && r.files[0].base == r.first
	switch {
	case begins:
		return r.follow()
	case r.lost != "":
		r.synced = max(r.synced, r.first)
		r.stop(0, 0, r.lost)
		return nil
	case len(r.files) == 0:
		if r.synced > r.end {
			r.stop(0, 0, fmt.Sprintf("the log is empty, but it was synced up to position %d", r.synced))
		}
		return nil
	case r.unmarked:
		r.lost = "it tells where the log begins, and is missing, or else files are"
		r.synced = max(r.synced, r.first)
		r.stop(0, 0, r.lost)
		return nil
	}
	r.stop(0, 0, fmt.Sprintf("the file is missing; the first one begins at position %d", r.files[0].base))
	return r.weigh(nil)
}

// stop notes that the log is good up to its end as found so far, and what is wrong
// there.
func (r *recovery) stop(file int, offset int64, reason string) {
	r.bad = &badEntry{file: file, offset: offset, position: r.end + 1, reason: reason}
}

// follow goes through the files, which begin where the log does, and reads those
// that are not proven.
func (r *recovery) follow() error {
	r.scanned = r.unproven()
	r.end = r.files[r.scanned].base - 1
	for i := r.scanned; i < len(r.files); i++ {
		f := &r.files[i]
		if f.base != r.end+1 || i > 0 && f.header.epoch < r.files[i-1].header.epoch && f.valid() {
			r.stop(i, 0, fmt.Sprintf("the next file begins at position %d with epoch %d", f.base, f.header.epoch))
			return r.weigh(nil)
		}
		if !f.valid() {
			r.stop(i, 0, "the file has no valid header")
			return r.weigh(nil)
		}
		data, err := readStart(f.path, f.size)
		if err != nil {
			return err
		}
		if off := r.readEntries(f, data); off < len(data) {
			r.stop(i, int64(off), fmt.Sprintf("the entry at byte %d is not valid", off))
			return r.weigh(data[off:])
		}
	}
	if r.synced > r.end {
		r.stop(len(r.files), 0, fmt.Sprintf("the log ends here, but it was synced up to position %d", r.synced))
	}
	return nil
}

// readEntries reads the good entries of a file and returns where they end.
func (r *recovery) readEntries(f *foundFile, data []byte) (off int) {
	off = f.headSize
	for off < len(data) {
		entry, n, ok := cutEntry(data[off:])
		if !ok {
			break
		}
		rec, distance, ok := openEntry(entry, r.end+1)
		if !ok || isHeader(rec) {
			break
		}
		r.end++
		r.synced = max(r.synced, r.end-distance)
		if (r.end-f.base)%indexStep == 0 {
			f.offsets = append(f.offsets, int64(off))
		}
		off += n
	}
	return off
}

// unproven is the first file that has to be read to know that it is good: the
// first that is not wholly proven to be synced, or does not fit to the next.
func (r *recovery) unproven() int {
	for i := range r.files {
		f := &r.files[i]
		if i+1 == len(r.files) || !f.valid() {
			return i
		}
		next := &r.files[i+1]
		if !next.valid() || next.base-1 > r.synced ||
			next.header.bytes != f.header.bytes+f.size || next.header.epoch < f.header.epoch {
			return i
		}
	}
	return 0
}

// weigh looks behind the bad entry for proof that it had been synced, and
// counts what would be lost by cutting. rest is the bad entry and the bytes
// behind it in its file, if there are any.
func (r *recovery) weigh(rest []byte) error {
	visit := func(h hit) bool {
		r.cut++
		r.synced = max(r.synced, h.synced())
		return true
	}
	later := r.files[r.bad.file:]
	if len(rest) > 0 {
		later = later[1:]
		r.cut++
		searchEntries(rest, 1, r.bad.position, visit)
	}
	for _, f := range later {
		data, err := readStart(f.path, f.size)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		searchEntries(data[f.headSize:], 0, f.base, visit)
		if len(data) > 0 {
			r.cut = max(r.cut, 1)
		}
	}
	return nil
}

// damaged reports whether the bad entry is proven to have been synced.
func (r *recovery) damaged() bool { return r.synced >= r.bad.position }

// path names the file of a bad entry.
func (r *recovery) path(c *commitLog, b *badEntry) string {
	if r.lost != "" && b.reason == r.lost {
		return filepath.Join(c.dir, firstName)
	}
	if b.file < len(r.files) && r.files[b.file].base <= b.position {
		return r.files[b.file].path
	}
	if b.file > 0 {
		return r.files[b.file-1].path
	}
	return filepath.Join(c.dir, fileName(b.position))
}

// cutTorn removes what is behind the good part: whole files from the newest on,
// so that the log is a chain at any moment, then the rest of the last one kept.
func (c *commitLog) cutTorn(r *recovery, keep int) error {
	for i := len(r.files) - 1; i >= keep; i-- {
		if err := errors.Join(c.disk.remove(r.files[i].dir), c.disk.dir(c.dir)); err != nil {
			return err
		}
	}
	if b := r.bad; b.file < keep {
		return cutFile(c.disk, r.files[b.file].path, b.offset)
	}
	return nil
}

// cutFile cuts a log file to a size, and makes that durable.
func cutFile(disk syncer, path string, size int64) error {
	f, err := disk.open(path)
	if err != nil {
		return err
	}
	err = disk.truncate(f, size)
	if err == nil {
		err = disk.file(f)
	}
	return errors.Join(err, f.Close())
}

// settle makes the part of the log that is not proven to be synced durable. It
// writes it again first: if an fsync failed before, the kernel may hold pages
// that are not on disk and that it takes for clean, and only a write makes it
// take them up again.
func (c *commitLog) settle(r *recovery, files []*logFile) error {
	from := c.synced.Load() + 1
	if from > r.end {
		return nil
	}
	for i := c.search(files, from); i < len(files); i++ {
		f := files[i]
		off := int64(0)
		if step := f.step(max(from, f.base)); step < int64(len(f.offsets)) && from > f.base {
			off = f.offsets[step]
		}
		if err := c.rewrite(f, off); err != nil {
			return err
		}
		if err := errors.Join(c.disk.dir(f.dir), c.disk.dir(c.dir)); err != nil {
			return err
		}
	}
	c.publishSynced(r.end)
	return nil
}

func (c *commitLog) rewrite(f *logFile, off int64) error {
	file, err := c.disk.open(f.path)
	if err != nil {
		return err
	}
	data := make([]byte, f.size.Load()-off)
	if _, err = file.ReadAt(data, off); err == nil {
		_, err = file.WriteAt(data, off)
	}
	if err == nil {
		err = c.disk.file(file)
	}
	return errors.Join(err, file.Close())
}

// checkAlone refuses a file beside the segment that the wal would take for a part
// of the log.
func (f *logFile) checkAlone() error {
	stray, err := f.stray()
	if err == nil && stray != "" {
		err = damagef(stray, f.base, "the file does not belong there, but would be read; move it away")
	}
	return err
}

// stray is a file beside the segment that a wal would read: it takes each whose
// name begins with a number of 20 digits.
func (f *logFile) stray() (string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if name := e.Name(); name != segmentName && len(name) >= len(segmentName) {
			if _, err := strconv.ParseUint(name[:len(segmentName)], 10, 64); err == nil {
				return filepath.Join(f.dir, name), nil
			}
		}
	}
	return "", nil
}
