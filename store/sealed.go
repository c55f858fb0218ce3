package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
)

const (
	// indexStep is the number of records between two entries of a sparse index.
	indexStep = 64
	// maxSpan bounds one read from a sealed file, unless a single step of the
	// index is larger.
	maxSpan = 512 << 10
	// entryOverhead is the most an entry takes beside its record: the wal's
	// length and the envelope.
	entryOverhead = binary.MaxVarintLen32 + headroom
)

// sparseIndex says where in a segment the records are.
type sparseIndex struct {
	offsets []int64 // byte offset of the records base, base+64, base+128, ...
	size    int64   // byte offset of the end
}

// end is the byte offset behind the given step.
func (x *sparseIndex) end(step int64) int64 {
	if step+1 < int64(len(x.offsets)) {
		return x.offsets[step+1]
	}
	return x.size
}

// step is the index entry that leads to a position.
func (f *logFile) step(pos int64) int64 { return (pos - f.base) / indexStep }

// first is the position that an index entry leads to.
func (f *logFile) first(step int64) int64 { return f.base + step*indexStep }

// sparse returns the index of a file whose wal is closed, up to position end,
// and makes it when there is none. It is kept if the file is final.
func (f *logFile) sparse(fd io.ReaderAt, end int64, final bool) (*sparseIndex, error) {
	if x := f.index.Load(); x != nil {
		return x, nil
	}
	f.indexMu.Lock()
	defer f.indexMu.Unlock()
	if x := f.index.Load(); x != nil {
		return x, nil
	}
	x := &sparseIndex{size: f.size.Load()}
	r := bufio.NewReaderSize(io.NewSectionReader(fd, 0, x.size), 64<<10)
	off := int64(0)
	for pos := f.base - 1; pos < end; pos++ {
		if pos >= f.base && (pos-f.base)%indexStep == 0 {
			x.offsets = append(x.offsets, off)
		}
		size, err := binary.ReadUvarint(r)
		if err != nil || size > math.MaxInt32 {
			return nil, damagef(f.path, pos, "no entry at byte %d", off)
		}
		if _, err := r.Discard(int(size)); err != nil {
			return nil, damagef(f.path, pos, "the entry at byte %d is cut short", off)
		}
		off += storedSize(int(size))
	}
	if final {
		f.index.Store(x)
	}
	return x, nil
}

// sealedFile is a file whose wal is closed, while it is read.
type sealedFile struct {
	*logFile
	chain *commitLog
	fd    io.ReaderAt
	index *sparseIndex
	end   int64 // first position behind the file
	// final means that the file does not change any more. The last file of a
	// log that can be written is not: its wal is just being closed, and nothing
	// that is read of it may be kept.
	final bool
}

// read fills b from a byte offset on, for the entry of a position.
func (f *sealedFile) read(b []byte, position, off int64) error {
	// A reader of old files computes without a pause, so that a writer who has
	// become ready would wait up to 10 ms for its turn on a busy machine: it is let
	// before each piece that is read. p99.9 of a paced writer beside two readers on
	// two processors: 19.5 ms without, 4.8 ms with it, at the same reading speed.
	runtime.Gosched()
	n, err := f.fd.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return damagef(f.path, position, "the file ends at byte %d of %d", off+int64(n), f.index.size)
	}
	return err
}

func (f *sealedFile) missing(position, off int64) error {
	return damagef(f.path, position, "no entry at byte %d", off)
}

func (f *sealedFile) damaged(position, off int64) error {
	return damagef(f.path, position, "the entry at byte %d fails its checksum", off)
}

// cursorAt is a new cursor at the step that holds a position.
func (f *sealedFile) cursorAt(position int64) cursor {
	step := f.step(position)
	return cursor{file: f.logFile, position: f.first(step), off: f.index.offsets[step]}
}

// verify reads the entry at the start of b, a piece of a segment, as that of a
// position, and returns its record, which the entry ends with, and the bytes
// that the entry takes.
func verify(b []byte, position int64) (rec []byte, n int, ok bool) {
	entry, n, ok := cutEntry(b)
	if !ok {
		return nil, 0, false
	}
	rec, _, ok = openEntry(entry, position)
	return rec, n, ok && !isHeader(rec)
}

// sealed opens a file whose wal is closed, file i of the log, for reading. done
// must be called.
func (c *commitLog) sealed(files []*logFile, i int) (f *sealedFile, done func(), err error) {
	if i+1 < len(files) {
		return c.openSealed(files[i], files[i+1].base, true)
	}
	return c.openSealed(files[i], c.written.Load()+1, c.frozen)
}

func (c *commitLog) openSealed(lf *logFile, end int64, final bool) (_ *sealedFile, done func(), err error) {
	fd, err := c.handles.acquire(lf.path)
	if err != nil {
		return nil, nil, err
	}
	x, err := lf.sparse(fd, end, final)
	if err != nil {
		c.handles.release(fd)
		return nil, nil, err
	}
	f := &sealedFile{logFile: lf, chain: c, fd: fd, index: x, end: end, final: final}
	return f, func() { c.handles.release(fd) }, nil
}

// readSealed appends the records of units, which lie in file i of the log in
// ascending order, to out. goesOn tells that the reader comes from the file
// before.
func (c *commitLog) readSealed(files []*logFile, i int, units []unit, goesOn bool, out [][]byte) ([][]byte, error) {
	f, done, err := c.sealed(files, i)
	if err != nil {
		return out, err
	}
	defer done()
	for len(units) > 0 {
		n := 1
		start := f.index.offsets[f.step(units[0].position)]
		for n < len(units) {
			step := f.step(units[n].position)
			if step-f.step(units[n-1].position) > 1 || f.index.end(step)-start > maxSpan {
				break
			}
			n++
		}
		if out, err = f.readSpan(units[:n], goesOn, out); err != nil {
			return out, err
		}
		units = units[n:]
	}
	return out, nil
}

// readSpan reads units that lie close together: those that go on from a cursor
// with it, few ones here and there by way of the block cache.
func (f *sealedFile) readSpan(units []unit, goesOn bool, out [][]byte) ([][]byte, error) {
	first, last := units[0].position, units[len(units)-1].position
	wanted := int64(0)
	for _, u := range units {
		wanted += int64(u.size) + entryOverhead
	}
	cur, found := f.chain.cursors.take(f.logFile, first) // of a file that is not final nobody leaves one
	if !found {
		cur = f.cursorAt(first)
		if goesOn && first < f.base+cursorReach {
			cur.runs = scanRuns
		}
	}
	to := f.index.end(f.step(last))
	span := to - cur.off
	few := wanted < span/2
	if wanted < span/4 && cur.runs < scanRuns {
		n := 0
		var err error
		if out, n, err = f.readBlocks(units, out, &cur); err != nil {
			return out, err
		}
		if units = units[n:]; len(units) == 0 {
			f.leave(cur)
			return out, nil
		}
		if n > 0 {
			f.chain.cursors.drop(&cur)
			cur = f.cursorAt(units[0].position)
		}
	}
	switch {
	case cur.runs > 0:
		to = f.index.size // as far as the buffer reaches
	case few && span > maxBlock:
		to = 0 // the entries in between are large: nothing of them but their lengths
	case cur.position == first && last-first == int64(len(units)-1):
		to = min(to, cur.off+wanted) // nothing but what is wanted
	}
	out, err := f.readWith(&cur, units, few, to, out)
	if err != nil {
		f.chain.cursors.drop(&cur)
		return out, err
	}
	f.leave(cur)
	return out, nil
}

// leave leaves a cursor for whoever goes on from it.
func (f *sealedFile) leave(cur cursor) {
	if f.final {
		f.chain.cursors.put(cur)
	} else {
		f.chain.cursors.drop(&cur)
	}
}

// readWith reads units with a cursor, from disk up to byte offset to or as far
// as is needed. few tells that they are few among many.
func (f *sealedFile) readWith(cur *cursor, units []unit, few bool, to int64, out [][]byte) ([][]byte, error) {
	kept := len(out) // those from here on are to be taken out of the buffer
	for _, u := range units {
		for cur.position < u.position {
			if _, n, ok := cutEntry(cur.buf[cur.at:]); ok {
				cur.step(n)
				continue
			}
			takeOut(out[kept:], cur.buf)
			kept = len(out)
			if err := cur.skip(f, to); err != nil {
				return out, err
			}
		}
		own := false
		rec, n, ok := verify(cur.buf[cur.at:], u.position)
		if !ok {
			takeOut(out[kept:], cur.buf)
			kept = len(out)
			entry, large, err := cur.fetch(f, to)
			if err != nil {
				return out, err
			}
			if rec, n, ok = verify(entry, u.position); !ok {
				return out, f.damaged(u.position, cur.off)
			}
			own = large
		}
		if len(rec) != int(u.size) {
			takeOut(out[kept:], cur.buf)
			return out, contradictf(f.path, u.position, "the record has %d bytes, the queue says %d", len(rec), u.size)
		}
		switch {
		case own:
			kept++
		case few:
			rec = ownCopy(rec)
			kept++
		default:
			end := cur.at + n
			rec = cur.buf[end-len(rec) : end] // up to the end of the buffer, for takeOut
		}
		cur.step(n)
		out = append(out, rec)
	}
	takeOut(out[kept:], cur.buf)
	return out, nil
}

func ownCopy(rec []byte) []byte {
	rec = append([]byte(nil), rec...)
	return rec[:len(rec):len(rec)]
}

// takeOut moves records that lie one behind the other in a buffer into memory
// of their own, all together. Their capacities reach to the end of the buffer.
// A copy that is appended to nothing is the only new memory that the runtime
// does not clear first.
func takeOut(records [][]byte, buf []byte) {
	if len(records) == 0 {
		return
	}
	last := records[len(records)-1]
	from, to := cap(buf)-cap(records[0]), cap(buf)-cap(last)+len(last)
	piece := append([]byte(nil), buf[from:to]...)
	for i, rec := range records {
		at := cap(buf) - cap(rec) - from
		records[i] = piece[at : at+len(rec) : at+len(rec)]
	}
}

// readBlocks reads the units whose blocks can be had, and returns for how many
// of them it did. It leaves the cursor behind the last one.
func (f *sealedFile) readBlocks(units []unit, out [][]byte, cur *cursor) (_ [][]byte, n int, err error) {
	var b *recordBlock
	for i, u := range units {
		if step := f.step(u.position); b == nil || b.first != f.first(step) {
			if b = f.chain.blocks.block(f, step); b == nil {
				return out, i, nil
			}
		}
		rec := b.record(u.position)
		if len(rec) != int(u.size) {
			return out, i, contradictf(f.path, u.position, "the record has %d bytes, the queue says %d", len(rec), u.size)
		}
		out = append(out, ownCopy(rec)) // so that it does not keep the block in memory
	}
	f.chain.cursors.drop(cur)
	cur.position = units[len(units)-1].position
	cur.off = f.index.offsets[f.step(cur.position)] + int64(b.ends[cur.position-b.first])
	cur.position++
	return out, len(units), nil
}

// readRecord reads one record whose block is not in the cache.
func (f *sealedFile) readRecord(position int64) ([]byte, error) {
	if b := f.chain.blocks.load(f, f.step(position)); b != nil {
		return ownCopy(b.record(position)), nil
	}
	return f.readAlone(position)
}

// readAlone reads one record.
func (f *sealedFile) readAlone(position int64) ([]byte, error) {
	cur := f.cursorAt(position)
	to := f.index.end(f.step(position))
	if to-cur.off > maxBlock {
		to = 0 // nothing but lengths up to the record
	}
	defer f.chain.cursors.drop(&cur)
	for cur.position < position {
		if err := cur.skip(f, to); err != nil {
			return nil, err
		}
	}
	return cur.read(f, to)
}

// lastRecord reads the last record of a file, without the block cache; end is
// the first position of the file behind it.
func (c *commitLog) lastRecord(f *logFile, end int64) ([]byte, error) {
	sealed, done, err := c.openSealed(f, end, true)
	if err != nil {
		return nil, err
	}
	defer done()
	return sealed.readAlone(end - 1)
}
