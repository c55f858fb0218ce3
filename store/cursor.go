package store

import (
	"sync"
	"sync/atomic"
)

const (
	// scanBytes is the size of the buffer that a reader who goes on reads
	// through.
	scanBytes = 64 << 10
	// cursorReach is how many records a reader may leave out and still count as
	// one who goes on.
	cursorReach = 128
	// scanRuns is how often a reader of a few records must go on to count as
	// one who scans, whom the block cache does not serve.
	scanRuns = 2
)

// scanBuffer is the memory that entries are read into. It is used again and
// again: what is given to callers is copied out of it.
type scanBuffer [scanBytes]byte

// cursor is a place in a sealed file where a reader is or has stopped, with what
// it has read beyond.
type cursor struct {
	file     *logFile
	position int64
	off      int64 // byte offset of the entry of position

	memory *scanBuffer // nil while there is none
	buf    []byte      // what is read into memory, from its start
	at     int         // where in buf the entry of position begins

	runs int                     // how often somebody has gone on from it
	slot *atomic.Pointer[cursor] // where it was taken from; nil for a new one
}

// step goes over an entry of n bytes.
func (c *cursor) step(n int) {
	c.at = min(len(c.buf), c.at+n)
	c.off += int64(n)
	c.position++
}

// skip goes over the entry at the cursor without reading it, as far as it is
// not in the buffer. Of what it has to read it reads up to byte offset to.
func (c *cursor) skip(f *sealedFile, to int64) error {
	n, err := c.measure(f, to)
	if err == nil {
		c.step(n)
	}
	return err
}

// measure returns the bytes that the entry at the cursor takes.
func (c *cursor) measure(f *sealedFile, to int64) (int, error) {
	size, k := canonicalUvarint(c.buf[c.at:])
	if k == 0 {
		if err := c.fill(f, entryOverhead, to); err != nil {
			return 0, err
		}
		size, k = canonicalUvarint(c.buf[c.at:])
	}
	if k == 0 || size > uint64(f.index.size-c.off)-uint64(k) {
		return 0, f.missing(c.position, c.off)
	}
	return k + int(size), nil
}

// fetch reads until the entry at the cursor is whole, and returns it with its
// length in front. An entry that is larger than the buffer comes in memory of
// its own; own is true then.
func (c *cursor) fetch(f *sealedFile, to int64) (entry []byte, own bool, err error) {
	n, err := c.measure(f, to)
	switch {
	case err != nil:
		return nil, false, err
	case n > scanBytes:
		entry = make([]byte, n)
		return entry, true, f.read(entry, c.position, c.off)
	case n > len(c.buf)-c.at:
		err = c.fill(f, n, to)
	}
	if err != nil {
		return nil, false, err
	}
	return c.buf[c.at : c.at+n], false, nil
}

// read reads the record of the entry at the cursor, in memory of its own.
func (c *cursor) read(f *sealedFile, to int64) ([]byte, error) {
	entry, own, err := c.fetch(f, to)
	if err != nil {
		return nil, err
	}
	rec, _, ok := verify(entry, c.position)
	if !ok {
		return nil, f.damaged(c.position, c.off)
	}
	if !own {
		rec = ownCopy(rec)
	}
	return rec, nil
}

// fill reads at least need bytes from the cursor on into the buffer, or to the
// end of the file, and more up to byte offset to.
func (c *cursor) fill(f *sealedFile, need int, to int64) error {
	if c.memory == nil {
		c.memory = f.chain.cursors.newBuffer()
	}
	have := copy(c.memory[:], c.buf[c.at:])
	c.buf, c.at = c.memory[:have], 0
	size := min(max(c.off+int64(need), to), f.index.size, c.off+scanBytes) - c.off
	if size <= int64(have) {
		return f.missing(c.position, c.off)
	}
	if err := f.read(c.memory[have:size], c.position, c.off+int64(have)); err != nil {
		return err
	}
	c.buf = c.memory[:size]
	return nil
}

// cursors are the places where readers stopped lately. They belong to nobody:
// whoever goes on from one takes it. Those that somebody scans with are kept
// apart, so that reads here and there do not push them out, and go back where
// they came from, so that a fast scan does not push out a slow one.
type cursors struct {
	fresh, scanning cursorRing
	buffers         sync.Pool // of *scanBuffer
}

type cursorRing struct {
	slots [8]atomic.Pointer[cursor]
	turn  atomic.Uint32
}

// take returns a cursor at a position of a file or shortly before.
func (c *cursors) take(f *logFile, position int64) (cursor, bool) {
	for _, ring := range []*cursorRing{&c.scanning, &c.fresh} {
		for i := range ring.slots {
			slot := &ring.slots[i]
			cur := slot.Load()
			if cur == nil || cur.file != f || cur.position > position || cur.position < position-cursorReach {
				continue
			}
			if slot.CompareAndSwap(cur, nil) {
				taken := *cur
				taken.slot = slot
				taken.runs++
				return taken, true
			}
		}
	}
	return cursor{}, false
}

// put leaves a cursor for whoever goes on from it. One that has nothing in its
// buffer gives it back.
func (c *cursors) put(cur cursor) {
	ring := &c.fresh
	if cur.runs > 0 && cur.memory != nil {
		ring = &c.scanning
	}
	if cur.at == len(cur.buf) {
		c.drop(&cur)
	}
	slot := cur.slot
	cur.slot = nil
	if slot != nil && ring.has(slot) && slot.CompareAndSwap(nil, &cur) {
		return
	}
	if old := ring.place().Swap(&cur); old != nil {
		c.recycle(old.memory) // nobody else can take it any more
	}
}

// drop takes the buffer from a cursor.
func (c *cursors) drop(cur *cursor) {
	c.recycle(cur.memory)
	cur.memory, cur.buf, cur.at = nil, nil, 0
}

func (c *cursors) newBuffer() *scanBuffer {
	if b, ok := c.buffers.Get().(*scanBuffer); ok {
		return b
	}
	return new(scanBuffer)
}

func (c *cursors) recycle(b *scanBuffer) {
	if b != nil {
		c.buffers.Put(b)
	}
}

func (r *cursorRing) has(slot *atomic.Pointer[cursor]) bool {
	for i := range r.slots {
		if slot == &r.slots[i] {
			return true
		}
	}
	return false
}

// place is the slot for one more cursor: an empty one, or that of another whose
// turn it is.
func (r *cursorRing) place() *atomic.Pointer[cursor] {
	for i := range r.slots {
		if slot := &r.slots[i]; slot.Load() == nil {
			return slot
		}
	}
	return &r.slots[r.turn.Add(1)%uint32(len(r.slots))]
}
