package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
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

// hint finds the byte offset of a position when a reader stopped in front of it
// not long ago. Slots are shared by all readers and may be overwritten at any
// time; a position finds only its own offset.
func (f *logFile) hint(pos int64) (off int64, ok bool) {
	local := uint64(pos - f.base)
	v := f.hints[local/32%uint64(len(f.hints))].Load()
	return int64(v & math.MaxUint32), v != 0 && v>>32 == local
}

func (f *logFile) setHint(pos, off int64) {
	local := uint64(pos - f.base)
	if local <= math.MaxUint32 && off <= math.MaxUint32 {
		f.hints[local/32%uint64(len(f.hints))].Store(local<<32 | uint64(off))
	}
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

// readSpan reads the piece of the file that holds units at once and verifies
// their entries.
func (c *commitLog) readSpan(f *logFile, fd io.ReaderAt, x *sparseIndex, units []unit, out [][]byte) ([][]byte, error) {
	first, last := units[0].position, units[len(units)-1].position
	pos := first
	off, ok := f.hint(first)
	if !ok {
		pos = f.base + f.step(first)*indexStep
		off = x.offsets[f.step(first)]
	}
	end := x.end(f.step(last))
	wanted := int64(0)
	for _, u := range units {
		wanted += int64(u.size) + entryOverhead
	}
	if pos == first && last-first == int64(len(units)-1) {
		end = min(end, off+wanted)
	}
	// Few records out of many: a scratch buffer, so that the caller's records
	// do not keep the whole span in memory.
	sparse := wanted < (end-off)/2
	var buf []byte
	if sparse {
		scratch := c.scratch.get(int(end - off))
		defer c.scratch.put(scratch)
		buf = *scratch
	} else {
		buf = make([]byte, end-off)
	}
	if n, err := fd.ReadAt(buf, off); n < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			return out, damagef(f.path, first, "the file ends at byte %d of %d", off+int64(n), x.size)
		}
		return out, err
	}
	rest := buf
	for _, u := range units {
		for ; pos < u.position; pos++ {
			_, n, ok := cutEntry(rest)
			if !ok {
				return out, damagef(f.path, pos, "no entry at byte %d", off+int64(len(buf)-len(rest)))
			}
			rest = rest[n:]
		}
		entry, n, ok := cutEntry(rest)
		if !ok {
			return out, damagef(f.path, pos, "no entry at byte %d", off+int64(len(buf)-len(rest)))
		}
		rec, _, ok := openEntry(entry, pos)
		if !ok {
			return out, damagef(f.path, pos, "the entry at byte %d fails its checksum", off+int64(len(buf)-len(rest)))
		}
		if len(rec) != int(u.size) {
			return out, damagef(f.path, pos, "the record has %d bytes, its consume queue says %d", len(rec), u.size)
		}
		if sparse {
			rec = append([]byte(nil), rec...)
		}
		out = append(out, rec[:len(rec):len(rec)])
		rest = rest[n:]
		pos++
	}
	f.setHint(pos, off+int64(len(buf)-len(rest)))
	return out, nil
}
