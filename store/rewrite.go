package store

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A rewriter makes the files of a log in which every position can be read: what
// is readable as it is, byte for byte, and a lost entry for every other one.
// Readable entries stay at their bytes, and files keep their sizes, so that the
// sizes in the headers behind them stay true: otherwise each open would have to
// read the whole log from there on.

const (
	// madeBytes is the size of a file that is made in place of missing ones.
	madeBytes = DefaultFileSize
	// maxMade bounds what is written to keep the sizes true where files are
	// missing. Beyond, made files are as short as they can be.
	maxMade = 256 << 20
	// maxMadeEntries bounds the positions of a made file.
	maxMadeEntries = 64 << 10
)

// rewriter goes through a survey once.
type rewriter struct {
	survey *survey
	places map[int64]place // of lost positions
	now    int64           // milliseconds
	// emit gets each file that is not as it should be, with its new content; nil
	// when nothing of the file is to stay.
	emit func(c fileChange, content []byte) error

	bytes int64      // of all files so far, as their headers count them
	known bool       // whether bytes is: not before the first file of a log that begins later
	like  fileHeader // of the file before
}

// fileChange is what happens to one file.
type fileChange struct {
	base   int64
	from   *surveyedFile // nil: there is none
	last   int64         // position that it will end with
	kept   int64         // entries that stay
	lost   []span        // positions that get a lost entry
	cut    int64         // bytes behind the last entry that go
	header bool          // it gets a new header
	torn   bool          // nothing but a torn end goes, which the next open would cut as well
}

func (w *rewriter) run() error {
	s := w.survey
	at := s.first
	w.bytes, w.like.epoch = s.bytes, s.epoch
	w.known = at == 1 || s.bytes > 0
	for i := range s.files {
		f := &s.files[i]
		if f.base > at {
			if err := w.makeFiles(at, f.base, w.bytesBefore(i), w.timeBefore(i)); err != nil {
				return err
			}
		}
		if err := w.file(i); err != nil {
			return err
		}
		at = s.end(i)
	}
	if len(s.files) == 0 && s.synced >= at {
		return w.makeFiles(at, s.synced+1, unknown, 0)
	}
	return nil
}

// unknown is a size that is not known; what is computed from it stays negative.
const unknown = math.MinInt64 / 2

// bytesBefore is what the header of file i says about the size of all before
// it; unknown when there is no such file or header.
func (w *rewriter) bytesBefore(i int) int64 {
	if s := w.survey; i < len(s.files) && s.files[i].headerSize > 0 {
		return s.files[i].header.bytes
	}
	return unknown
}

func (w *rewriter) timeBefore(i int) int64 {
	if i == 0 {
		return 0
	}
	return w.survey.files[i-1].endTime
}

// file handles file i and what is missing between it and the next.
func (w *rewriter) file(i int) error {
	s := w.survey
	f := &s.files[i]
	end, lastOne := s.end(i), i+1 == len(s.files)
	if f.headerSize == 0 && f.next == f.base { // nothing in it can be read
		if end > f.base {
			return w.makeFiles(f.base, end, w.bytesBefore(i+1), w.timeBefore(i))
		}
		return w.emit(fileChange{base: f.base, from: f, last: f.base - 1, cut: f.size, torn: true}, nil)
	}
	header := f.header
	if f.headerSize == 0 {
		header = w.newHeader(f.base)
		if !w.known {
			header.bytes = max(0, w.bytesBefore(1)-f.size)
		}
	}
	w.bytes, w.known = header.bytes, true
	w.like = header
	lost := end - f.next                                  // behind the last readable entry
	room := f.size - int64(f.tail)                        // bytes there
	whole := w.bytesBefore(i+1) - w.bytes - int64(f.tail) // bytes from there to the next file
	here := lost
	switch {
	case room == 0:
		here = 0 // this file is complete
	case whole > room && int64(f.tail)+whole > madeBytes:
		here = min(lost, max(1, lost*room/whole)) // the rest is missing as a whole
	}
	if here == lost && whole > 0 {
		room = whole
	}
	c := fileChange{base: f.base, from: f, kept: f.next - f.base, last: f.next + here - 1, header: f.headerSize == 0}
	changed := c.header || here > 0 || len(f.holes) > 0
	for _, h := range f.holes {
		c.kept -= h.next - h.first
		c.lose(h.first, h.next)
	}
	c.lose(f.next, f.next+here)
	if lost == 0 && f.size > int64(f.tail) {
		c.cut = f.size - int64(f.tail)
		c.torn = lastOne && !changed
		changed = true
	}
	size := f.size
	if changed {
		content, err := w.rewritten(f, header, here, room)
		if err != nil {
			return err
		}
		size = int64(len(content))
		if err := w.emit(c, content); err != nil {
			return err
		}
	}
	w.bytes += size
	if here < lost {
		return w.makeFiles(f.next+here, end, w.bytesBefore(i+1), f.endTime)
	}
	return nil
}

func (c *fileChange) lose(first, next int64) {
	if first == next {
		return
	}
	if n := len(c.lost); n > 0 && c.lost[n-1].last == first-1 {
		c.lost[n-1].last = next - 1
		return
	}
	c.lost = append(c.lost, span{first, next - 1})
}

// rewritten is the new content of a file of which something can be read. tail is
// the number of lost entries behind what can be, and room what they should take.
func (w *rewriter) rewritten(f *surveyedFile, header fileHeader, tail, room int64) ([]byte, error) {
	data, _, err := readDamaged(f.path, f.size)
	if err != nil {
		return nil, err
	}
	if len(data) < f.tail {
		return nil, fmt.Errorf("store: file %s has become shorter", f.path)
	}
	out := make([]byte, 0, f.size)
	off := 0
	for _, h := range f.holes {
		out = append(out, data[off:h.from]...)
		space := int64(h.to - h.from)
		if h.from == 0 {
			alone := h.first == h.next
			out = appendHeader(out, header, w.proven(f.base-1), space, alone)
			space -= int64(len(out))
		}
		out = w.appendLost(out, h.first, h.next, space, h.time)
		off = h.to
	}
	out = append(out, data[off:f.tail]...)
	if len(out) == 0 {
		out = appendHeader(out, header, w.proven(f.base-1), 0, false)
	}
	return w.appendLost(out, f.next, f.next+tail, room, f.endTime), nil
}

// newHeader is a header for a file that has none, behind the one before.
func (w *rewriter) newHeader(base int64) fileHeader {
	h := fileHeader{format: currentFormat, base: base, bytes: w.bytes, epoch: w.like.epoch, created: w.like.created}
	if w.like.base == 0 { // it is the first one: like the next that has one
		for i := range w.survey.files {
			if f := &w.survey.files[i]; f.headerSize > 0 {
				h.epoch, h.created = f.header.epoch, f.header.created
				break
			}
		}
	}
	return h
}

// proven is how far an entry at a position may claim that the log was synced.
func (w *rewriter) proven(position int64) int64 { return min(position, w.survey.synced) }

// makeFiles makes files for positions [first, next), of which nothing is there.
// after is what the header behind them says about the size of all files before
// it, which they fill up if that is known and can be.
func (w *rewriter) makeFiles(first, next, after, time int64) error {
	bytes := after - w.bytes
	if !w.known {
		dry := *w
		dry.known, dry.emit = true, func(fileChange, []byte) error { return nil }
		if err := dry.makeFiles(first, next, unknown, time); err != nil {
			return err
		}
		w.bytes, w.known, bytes = max(0, after-dry.bytes+w.bytes), true, unknown
	}
	fill := bytes > 0 && bytes <= maxMade
	files := (next - first + maxMadeEntries - 1) / maxMadeEntries
	if fill {
		files = min(max(files, (bytes+madeBytes-1)/madeBytes), next-first)
	}
	for ; files > 0; files-- {
		share := (next - first) / files
		w.like = w.newHeader(first)
		content := appendHeader(nil, w.like, w.proven(first-1), 0, false)
		room := int64(0)
		if fill {
			room = bytes/files - int64(len(content))
		}
		content = w.appendLost(content, first, first+share, room, time)
		c := fileChange{base: first, from: w.survey.fileAt(first), last: first + share - 1, header: true}
		c.lose(first, first+share)
		if err := w.emit(c, content); err != nil {
			return err
		}
		w.bytes += int64(len(content))
		bytes -= int64(len(content))
		first += share
	}
	return nil
}

// fileAt is the file with the given first position.
func (s *survey) fileAt(base int64) *surveyedFile {
	for i := range s.files {
		if s.files[i].base == base {
			return &s.files[i]
		}
	}
	return nil
}

// appendHeader appends the entry of a header. If it is alone to fill room, it
// claims less than it could where that makes it as long.
func appendHeader(dst []byte, h fileHeader, synced, room int64, alone bool) []byte {
	entry := h.entry(synced)
	if want := room - storedSize(len(entry)); alone && want > 0 && want < binary.MaxVarintLen64 {
		k := uvarintLen(uint64(h.base-1-synced)) + int(want)
		if distance := int64(1) << (7 * (k - 1)); k < binary.MaxVarintLen64 && distance <= h.base-1 {
			entry = h.entry(h.base - 1 - distance)
		}
	}
	return appendStored(dst, entry)
}

// appendStored appends an entry as the wal stores it.
func appendStored(dst, entry []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(entry))), entry...)
}

// appendLost appends lost entries for positions [first, next). Together they
// take room bytes if that can be, otherwise as few as they can.
func (w *rewriter) appendLost(dst []byte, first, next, room, time int64) []byte {
	if first == next {
		return dst
	}
	entry := func(position int64) lostRecord {
		l := lostRecord{position: position, storeTime: time, salvaged: w.now}
		if p, known := w.places[position]; known {
			l.known, l.key, l.offset = true, p.key, p.offset
		}
		return l
	}
	stored := func(l *lostRecord, size int) int64 {
		return storedSize(crcSize + uvarintLen(uint64(l.position-w.proven(l.position))) + size)
	}
	need := int64(0)
	for p := first; p < next; p++ {
		l := entry(p)
		need += stored(&l, l.size())
	}
	// Lengths of lengths leave some sums out; the last but one makes up for it.
	last, before := entry(next-1), entry(max(first, next-2))
	lastSize, more := last.size(), 0
	if spare := room - need; spare > 0 && spare < math.MaxInt32 {
		full := stored(&last, last.size()) + spare
		for try := 0; try < 4 && (try == 0 || next-first > 1); try++ {
			grown := stored(&before, before.size()+try) - stored(&before, before.size())
			if size := last.size() + w.grow(&last, full-grown, stored); stored(&last, size) == full-grown {
				lastSize, more = size, try
				break
			}
		}
	}
	buf := make([]byte, headroom, headroom+lastSize)
	for p := first; p < next; p++ {
		l := entry(p)
		size := l.size()
		switch p {
		case next - 1:
			size = lastSize
		case next - 2:
			size += more
		}
		buf = l.appendTo(buf[:headroom], size)
		dst = appendStored(dst, sealEntry(buf, headroom, size, p, w.proven(p)))
	}
	return dst
}

// grow is how much longer the record of l must be to take full bytes, as far as
// that is possible.
func (w *rewriter) grow(l *lostRecord, full int64, stored func(*lostRecord, int) int64) int {
	n := full - stored(l, l.size())
	for k := int64(0); k < binary.MaxVarintLen32 && n-k >= 0; k++ {
		if stored(l, l.size()+int(n-k)) == full {
			return int(n - k)
		}
	}
	return 0
}

// verifyFile makes sure that content is a whole file of positions base to last.
func verifyFile(content []byte, path string, base, last int64) error {
	_, off, _, ok := parseHeader(content, base)
	if !ok {
		return damagef(path, base-1, "the new file has no valid header")
	}
	for pos := base; pos <= last; pos++ {
		entry, n, ok := cutEntry(content[off:])
		if !ok {
			return damagef(path, pos, "the new file ends at byte %d", off)
		}
		rec, _, ok := openEntry(entry, pos)
		if !ok || isHeader(rec) {
			return damagef(path, pos, "the entry at byte %d of the new file is not valid", off)
		}
		if _, err := slotOf(path, pos, rec); err != nil {
			return err
		}
		off += n
	}
	if off != len(content) {
		return damagef(path, last, "the new file goes on behind its last entry")
	}
	return nil
}
