package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync/atomic"
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

// sparse returns the index of a sealed file that ends before position end, and
// makes it when it is asked for the first time.
func (f *logFile) sparse(fd io.ReaderAt, end int64) (*sparseIndex, error) {
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
	f.index.Store(x)
	return x, nil
}

// readSealed appends the records of units, which lie in f in ascending order,
// to out. end is the first position behind the file.
func (c *commitLog) readSealed(f *logFile, end int64, units []unit, out [][]byte) ([][]byte, error) {
	fd, err := c.handles.acquire(f.path)
	if err != nil {
		return out, err
	}
	defer c.handles.release(fd)
	x, err := f.sparse(fd, end)
	if err != nil {
		return out, err
	}
	for len(units) > 0 {
		n := 1
		start := x.offsets[f.step(units[0].position)]
		for n < len(units) {
			step := f.step(units[n].position)
			if step-f.step(units[n-1].position) > 1 || x.end(step)-start > maxSpan {
				break
			}
			n++
		}
		if out, err = c.readSpan(f, fd, x, units[:n], out); err != nil {
			return out, err
		}
		units = units[n:]
	}
	return out, nil
}

// readSpan reads the piece of the file that holds units, which lie close
// together, and verifies their entries.
func (c *commitLog) readSpan(f *logFile, fd io.ReaderAt, x *sparseIndex, units []unit, out [][]byte) ([][]byte, error) {
	first, last := units[0].position, units[len(units)-1].position
	wanted, bytes := int64(0), 0
	for _, u := range units {
		wanted += int64(u.size) + entryOverhead
		bytes += int(u.size)
	}
	cur, running := c.cursors.take(f, first)
	end := x.end(f.step(last))
	if running {
		end = max(end, cur.off+readAhead)
	} else {
		cur = cursor{file: f, position: f.base + f.step(first)*indexStep, off: x.offsets[f.step(first)]}
		if cur.position == first && last-first == int64(len(units)-1) {
			end = min(end, cur.off+wanted) // nothing but what is wanted
		}
	}
	// Few records out of many are copied, so that they do not keep the whole
	// span in memory.
	var copies []byte
	if wanted < (x.end(f.step(last))-cur.off)/2 {
		copies = make([]byte, 0, bytes)
	}
	for _, u := range units {
		for cur.position < u.position {
			if _, err := cur.next(fd, x, end); err != nil {
				return out, err
			}
		}
		off := cur.off
		entry, err := cur.next(fd, x, end)
		if err != nil {
			return out, err
		}
		rec, _, ok := openEntry(entry, u.position)
		if !ok {
			return out, damagef(f.path, u.position, "the entry at byte %d fails its checksum", off)
		}
		if len(rec) != int(u.size) {
			return out, contradictf(f.path, u.position, "the record has %d bytes, the queue says %d", len(rec), u.size)
		}
		if copies != nil {
			at := len(copies)
			copies = append(copies, rec...)
			rec = copies[at:]
		}
		out = append(out, rec[:len(rec):len(rec)])
	}
	c.cursors.put(cur, running)
	return out, nil
}

const (
	// readAhead is how much a reader that goes on where it stopped reads at
	// least: what the runtime still allocates from its size classes.
	// cursorReach is how many records it may leave out to count as such.
	readAhead   = 30 << 10
	cursorReach = 128
)

// cursor is a place in a sealed file where a reader stopped, with what it had
// read beyond.
type cursor struct {
	file     *logFile
	position int64
	off      int64  // byte offset of the entry of position
	rest     []byte // bytes from off on
}

// next steps over one entry and returns it. When it has to read, it reads up to
// byte offset end, or further if the entry is longer.
func (c *cursor) next(fd io.ReaderAt, x *sparseIndex, end int64) ([]byte, error) {
	entry, n, ok := cutEntry(c.rest)
	for size := int64(entryOverhead); !ok; entry, n, ok = cutEntry(c.rest) {
		// Once for the length of the entry, once more if that is longer.
		if v, k := canonicalUvarint(c.rest); k > 0 && v < uint64(x.size) {
			size = int64(k) + int64(v)
		}
		have, end := c.off+int64(len(c.rest)), min(x.size, max(end, c.off+size))
		if end <= have {
			return nil, damagef(c.file.path, c.position, "no entry at byte %d", c.off)
		}
		buf := make([]byte, end-c.off)
		n, err := fd.ReadAt(buf, c.off)
		if n < len(buf) {
			if err == nil || errors.Is(err, io.EOF) {
				return nil, damagef(c.file.path, c.position, "the file ends at byte %d of %d", c.off+int64(n), x.size)
			}
			return nil, err
		}
		c.rest = buf
	}
	c.rest = c.rest[n:]
	c.off += int64(n)
	c.position++
	return entry, nil
}

// cursors are the places where readers stopped lately. They belong to nobody:
// whoever goes on from one takes it. Those that somebody has gone on from are
// kept apart, so that single reads here and there do not push them out.
type cursors struct {
	fresh, running cursorRing
}

type cursorRing struct {
	slots [8]atomic.Pointer[cursor]
	turn  atomic.Uint32
}

// take returns a cursor at a position of a file or shortly before.
func (c *cursors) take(f *logFile, position int64) (cursor, bool) {
	for _, ring := range []*cursorRing{&c.running, &c.fresh} {
		for i := range ring.slots {
			cur := ring.slots[i].Load()
			if cur == nil || cur.file != f || cur.position > position || cur.position < position-cursorReach {
				continue
			}
			if ring.slots[i].CompareAndSwap(cur, nil) {
				return *cur, true
			}
		}
	}
	return cursor{}, false
}

// put leaves a cursor for whoever goes on from it.
func (c *cursors) put(cur cursor, running bool) {
	ring := &c.fresh
	if running {
		ring = &c.running
	}
	ring.slots[ring.turn.Add(1)%uint32(len(ring.slots))].Store(&cur)
}
