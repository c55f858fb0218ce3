package store

// ReadBuffer is memory that a reader lends to [Store.Get], with the place where
// it has stopped. It is for those who go through a queue and are done with the
// records of one Get before the next: a copy to another machine, a tool. They
// spare the store to make new memory for each record, which costs more than to
// read it. The zero value is ready for use; it must not be used by two
// goroutines at once.
type ReadBuffer struct {
	cur     cursor
	pinned  bool          // records of this Get lie in the memory of cur
	full    []*scanBuffer // others that hold such records
	spare   []*scanBuffer
	records [][]byte
}

// maxSpare is how many buffers are kept for the next Get: 1 MiB.
const maxSpare = 16

// begin gives up the records of the last Get.
func (b *ReadBuffer) begin() [][]byte {
	b.pinned = false
	b.spare = append(b.spare, b.full...)
	clear(b.full)
	b.full = b.full[:0]
	if len(b.spare) > maxSpare {
		clear(b.spare[maxSpare:])
		b.spare = b.spare[:maxSpare]
	}
	clear(b.records)
	return b.records[:0]
}

// renew makes room in the memory of the cursor, if records lie in it.
func (b *ReadBuffer) renew() {
	if !b.pinned {
		return
	}
	b.full = append(b.full, b.cur.memory)
	b.cur.memory, b.pinned = nil, false
	if n := len(b.spare); n > 0 {
		b.cur.memory, b.spare = b.spare[n-1], b.spare[:n-1]
	}
}

// moveTo puts the cursor where a reader wants to go on.
func (b *ReadBuffer) moveTo(f *sealedFile, position int64) {
	if c := &b.cur; c.file == f.logFile && c.position <= position && c.position >= position-cursorReach {
		return
	}
	b.renew()
	memory := b.cur.memory
	b.cur = f.cursorAt(position)
	b.cur.memory, b.cur.lender = memory, b
}

// readLent reads units into the memory of a reader.
func (f *sealedFile) readLent(b *ReadBuffer, units []unit, out [][]byte) ([][]byte, error) {
	b.moveTo(f, units[0].position)
	out, err := f.readWith(&b.cur, units, false, f.index.size, out)
	if err != nil || !f.final {
		b.cur.file = nil // nobody goes on from here
	}
	return out, err
}
