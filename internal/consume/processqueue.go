package consume

import "slices"

// processQueue is the window of one queue between its lowest unfinished message
// and the next pull. It is a plain value: no clock, no goroutine, no lock; its
// owner guards it. Java: ProcessQueue, whose tree is a ring here, because
// offsets arrive in ascending order.
//
// Every message put gets the next sequence number; sequence numbers of
// messages that were taken are never used twice, also not after reset. The ring holds [head, tail).
//
//	done   taken, returning, delayed, done   ready
//	────── head ─────────────────────────── cursor ───── tail
//
// Invariants:
//   - head <= cursor <= tail; slots[head] is unfinished unless head == tail.
//   - Offsets ascend with the sequence number and all lie below end, but for those of
//     entries that unread has finished.
//   - From cursor on every entry is ready and has never been taken, or back put
//     it there: ready again, or done.
//   - again lists exactly the ready entries below cursor.
//   - count and bytes are those of the entries that are not done: a message on
//     its way back to its broker is unfinished until that is acknowledged.
//   - A handler's result counts for the delivery it was called with: attempts
//     grows before a message is taken again.
type processQueue struct {
	slots  []slot // length 0 or a power of two; entry s lies at s & (len-1)
	head   uint64
	cursor uint64
	tail   uint64
	again  []uint64 // failed and due, first come first taken
	end    int64    // everything below was received or needs no delivery
	count  int
	bytes  int64
	gone   bool // dropped: nothing is put or taken any more
}

// slot is one message of the window.
type slot struct {
	offset   int64
	data     []byte // the stored record; nil when done
	since    int64  // when it was taken, in ns since 1970
	attempts int32  // failed deliveries by this client so far
	state    slotState
	dead     bool // in order: no handler gets it again, it is to be a dead letter
}

type slotState uint8

const (
	slotReady     slotState = iota // waits for a worker
	slotTaken                      // a handler has it
	slotReturning                  // failed, on its way back to its broker
	slotDelayed                    // could not be given back, waits for its next delivery here
	slotDone
)

// record is a stored record on its way into a processQueue.
type record struct {
	offset int64
	data   []byte // owned by the processQueue from put on
}

// taken is a message on its way to a handler.
type taken struct {
	seq      uint64
	offset   int64
	data     []byte // read-only
	attempts int32
	dead     bool // in order: not for a handler
}

// newProcessQueue returns an empty window that starts at offset.
func newProcessQueue(offset int64) processQueue { return processQueue{end: offset} }

// put adds a pulled batch in ascending order; next is the offset at which the
// broker goes on. Records below end were received before and are ignored. It
// returns how many were added.
func (p *processQueue) put(records []record, next int64) int {
	if p.gone {
		return 0
	}
	n := 0
	for _, rec := range records {
		if rec.offset < p.end {
			continue
		}
		if int(p.tail-p.head) == len(p.slots) {
			p.grow()
		}
		*p.at(p.tail) = slot{offset: rec.offset, data: rec.data}
		p.tail++
		p.end = rec.offset + 1
		p.count++
		p.bytes += int64(len(rec.data))
		n++
	}
	p.end = max(p.end, next)
	return n
}

// take appends up to n ready messages to dst, those delivered before first. now
// is in ns since 1970.
func (p *processQueue) take(dst []taken, n int, now int64) []taken {
	for ; n > 0 && len(p.again) > 0; n-- {
		dst = p.takeAt(dst, p.again[0], now)
		p.again = p.again[1:]
	}
	for ; n > 0 && p.cursor < p.tail; p.cursor++ {
		if p.at(p.cursor).state == slotReady {
			dst = p.takeAt(dst, p.cursor, now)
			n--
		}
	}
	return dst
}

func (p *processQueue) takeAt(dst []taken, seq uint64, now int64) []taken {
	s := p.at(seq)
	s.state, s.since = slotTaken, now
	return append(dst, taken{seq: seq, offset: s.offset, data: s.data, attempts: s.attempts, dead: s.dead})
}

// ack finishes a taken message. It returns the bytes set free; false when this
// delivery does not count any more (given back, reset, dropped).
func (p *processQueue) ack(t taken) (freed int64, ok bool) {
	if p.stateOf(t) != slotTaken {
		return 0, false
	}
	return p.finish(t.seq), true
}

// finish marks a message as done and returns the bytes set free.
func (p *processQueue) finish(seq uint64) (freed int64) {
	s := p.at(seq)
	freed = int64(len(s.data))
	s.state, s.data = slotDone, nil
	p.count--
	p.bytes -= freed
	for p.head < p.tail && p.at(p.head).state == slotDone {
		p.head++
	}
	p.cursor = max(p.cursor, p.head)
	return freed
}

// back puts all taken messages back in place: they are taken next, in order. For
// queues of which one handler at a time has messages, and none is delayed.
func (p *processQueue) back() {
	for s := p.head; s < p.cursor; s++ {
		if p.at(s).state == slotTaken {
			p.at(s).state = slotReady
		}
	}
	p.cursor = p.head
}

// failed counts a failed delivery of a taken message, which stays taken; dead
// says that no handler gets it again. It returns the message as it is now; false
// as ack.
func (p *processQueue) failed(t taken, dead bool) (_ taken, ok bool) {
	if p.stateOf(t) != slotTaken {
		return t, false
	}
	s := p.at(t.seq)
	s.attempts++
	s.dead = dead
	t.attempts, t.dead = s.attempts, dead
	return t, true
}

// giveBack ends a failed delivery: the message is on its way back to its broker.
// What its handler returns later does not count. false as ack.
func (p *processQueue) giveBack(t taken) bool {
	if p.stateOf(t) != slotTaken {
		return false
	}
	p.at(t.seq).state = slotReturning
	return true
}

// returning reports whether a message that giveBack took has to be given back
// still; false when it is not in the window any more.
func (p *processQueue) returning(t taken) bool { return p.stateOf(t) == slotReturning }

// returned finishes a message that its broker has taken back. The results are
// those of ack.
func (p *processQueue) returned(t taken) (freed int64, ok bool) {
	if p.stateOf(t) != slotReturning {
		return 0, false
	}
	return p.finish(t.seq), true
}

// keep is for a message that could not be given back: it waits for due. data
// replaces the record, which it equals. false as returned.
func (p *processQueue) keep(t taken, data []byte) bool {
	if p.stateOf(t) != slotReturning {
		return false
	}
	s := p.at(t.seq)
	s.state, s.data = slotDelayed, data
	s.attempts++
	return true
}

// overdue returns the messages that were taken at limit or before and whose
// handler has not returned, oldest offset first, and when the earliest other one
// was taken, 0 = there is none.
func (p *processQueue) overdue(limit int64) (late []taken, next int64) {
	for seq := p.head; seq < p.cursor; seq++ {
		s := p.at(seq)
		switch {
		case s.state != slotTaken:
		case s.since <= limit:
			late = append(late, taken{seq: seq, offset: s.offset, data: s.data, attempts: s.attempts})
		case next == 0 || s.since < next:
			next = s.since
		}
	}
	return late, next
}

// due makes a message that keep kept ready again; false when it is not in the
// window any more.
func (p *processQueue) due(seq uint64) bool {
	if seq < p.head || seq >= p.tail || p.at(seq).state != slotDelayed {
		return false
	}
	p.at(seq).state = slotReady
	p.again = append(p.again, seq)
	return true
}

// pass finishes every message below offset, as another member has: what a
// handler returns for one of them does not count. It returns the bytes set free.
func (p *processQueue) pass(offset int64) (freed int64) {
	for s := p.head; s < p.tail && p.at(s).offset < offset; s++ {
		if e := p.at(s); e.state != slotDone {
			freed += int64(len(e.data))
			e.state, e.data = slotDone, nil
			p.count--
		}
		p.head = s + 1
	}
	for p.head < p.tail && p.at(p.head).state == slotDone {
		p.head++
	}
	p.cursor = max(p.cursor, p.head)
	p.bytes -= freed
	p.end = max(p.end, offset)
	return freed
}

// reset forgets every message and goes on at offset, also backwards. It returns
// the bytes set free.
func (p *processQueue) reset(offset int64) (freed int64) {
	freed = p.bytes
	clear(p.slots)
	p.head, p.cursor = p.tail, p.tail
	p.again = nil
	p.count, p.bytes = 0, 0
	p.end = offset
	return freed
}

// unread finishes every message at or behind offset, as one that the queue does not have:
// what a handler returns for one of them does not count. What lies before it stays. It
// goes on at offset, also backwards, and returns the bytes set free.
func (p *processQueue) unread(offset int64) (freed int64) {
	for s := p.head; s < p.tail; s++ {
		if e := p.at(s); e.offset >= offset && e.state != slotDone {
			freed += int64(len(e.data))
			e.state, e.data = slotDone, nil
			p.count--
		}
	}
	p.again = slices.DeleteFunc(p.again, func(s uint64) bool { return p.at(s).state == slotDone })
	for p.tail > p.cursor && p.at(p.tail-1).state == slotDone && p.at(p.tail-1).attempts == 0 {
		p.tail--
		*p.at(p.tail) = slot{}
	}
	for p.head < p.tail && p.at(p.head).state == slotDone {
		p.head++
	}
	p.cursor = max(p.cursor, p.head)
	p.bytes -= freed
	p.end = offset
	return freed
}

// rewind forgets the messages behind the last one that was ever taken, and goes
// on at the first of them. It returns the bytes set free.
func (p *processQueue) rewind() (freed int64) {
	for p.tail > p.cursor {
		s := p.at(p.tail - 1)
		if s.state != slotReady || s.attempts > 0 {
			break
		}
		p.end = s.offset
		freed += int64(len(s.data))
		*s = slot{}
		p.count--
		p.tail--
	}
	p.bytes -= freed
	return freed
}

// jump goes on at offset, also backwards, and forgets only what lies at or behind
// it. For queues of which nothing is taken, but what is done. It returns the bytes
// set free.
func (p *processQueue) jump(offset int64) (freed int64) {
	for p.tail > p.head && p.at(p.tail-1).offset >= offset {
		p.tail--
		s := p.at(p.tail)
		if s.state != slotDone {
			freed += int64(len(s.data))
			p.count--
		}
		*s = slot{}
	}
	p.cursor = min(p.cursor, p.tail)
	p.bytes -= freed
	p.end = offset
	return freed
}

// drop ends the window. The commit offset stays what it is: what is acknowledged
// later does not count. It returns the bytes set free.
func (p *processQueue) drop() (freed int64) {
	freed = p.reset(p.commit())
	p.slots = nil
	p.gone = true
	return freed
}

// commit returns the offset to commit: the lowest unfinished one, else the end
// of what was received.
func (p *processQueue) commit() int64 {
	if p.head < p.tail {
		return p.at(p.head).offset
	}
	return p.end
}

// span returns the distance between the lowest unfinished and the highest
// received message.
func (p *processQueue) span() int64 {
	if p.head == p.tail {
		return 0
	}
	return p.at(p.tail-1).offset - p.at(p.head).offset
}

// bounds returns the lowest and the highest offset that is not finished, 0 for
// none.
func (p *processQueue) bounds() (first, last int64) {
	if p.head == p.tail {
		return 0, 0
	}
	at := p.tail - 1
	for p.at(at).state == slotDone {
		at-- // not below head, which is unfinished
	}
	return p.at(p.head).offset, p.at(at).offset
}

// ready returns how many messages could be taken.
func (p *processQueue) ready() int { return len(p.again) + int(p.tail-p.cursor) }

func (p *processQueue) at(seq uint64) *slot { return &p.slots[seq&uint64(len(p.slots)-1)] }

// stateOf returns the state of a delivery: slotDone when the message is not in
// the window any more, or was taken again since.
func (p *processQueue) stateOf(t taken) slotState {
	if t.seq < p.head || t.seq >= p.tail {
		return slotDone
	}
	if s := p.at(t.seq); s.attempts == t.attempts {
		return s.state
	}
	return slotDone
}

// grow doubles the ring. It never shrinks: flow control bounds it by MaxSpan.
func (p *processQueue) grow() {
	old := *p
	p.slots = make([]slot, max(64, 2*len(old.slots)))
	for s := old.head; s < old.tail; s++ {
		*p.at(s) = *old.at(s)
	}
}
