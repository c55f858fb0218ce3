package ha

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sender is the master's side of one connection. Two goroutines: the one that serves
// it reads, the other one writes.
type sender struct {
	s     *Slaves
	wire  *wire
	hello *slaveHello
	conn  ConnID
	anew  bool        // its log begins anew
	sums  []recordSum // that it was told
	since time.Time

	wake  chan struct{} // capacity 1: one of these is not true any more
	idle  atomic.Bool   // the writer waits for records
	wants atomic.Bool   // it waits for more to be confirmed

	// The writer's.
	next int64 // position to be sent next
	told int64 // what was said to be confirmed
	buf  []byte

	bytes, records atomic.Int64 // sent so far, of data frames
	rate           rate
}

// serve serves a connection to its end.
func (s *Slaves) serve(ctx context.Context, conn net.Conn) {
	w := newWire(conn, ackReadBytes, s.cfg.Housekeeping, func(k frameKind) int {
		switch k {
		case kindSlaveHello:
			return maxHelloBytes
		case kindGoodbye:
			return maxGoodbyeBytes
		}
		return 0
	})
	detach := context.AfterFunc(ctx, func() { w.stop(endOf(ctx)) })
	p := &sender{s: s, wire: w, since: time.Now(), wake: make(chan struct{}, 1)}
	err := p.run()
	p.leave(err)
	detach()
	id := int64(-1)
	if p.hello != nil {
		id = p.hello.id
	}
	s.cfg.OnEvent(SlaveDisconnected{ID: id, Addr: w.peer(), Err: err})
	w.close(err)
	s.mu.Lock()
	s.conns--
	s.mu.Unlock()
}

func (p *sender) run() error {
	if err := p.greet(); err != nil {
		return err
	}
	p.wire.limit = func(k frameKind) int {
		switch k {
		case kindAck:
			return ackBytes
		case kindGoodbye:
			return maxGoodbyeBytes
		}
		return 0
	}
	// The slave cuts its log, and keeps the epoch, before it says anything.
	a, err := p.readAck()
	switch {
	case err != nil:
		return err
	case a.position != p.next-1 && !slices.ContainsFunc(p.sums, func(s recordSum) bool { return s.position == a.position }):
		return fmt.Errorf("ha: replica %d acknowledges %d, its log was to end at %d: %w", p.hello.id, a.position, p.next-1, ErrImpossibleAck)
	}
	p.next = a.position + 1
	if err := p.acked(a); err != nil {
		return err
	}
	p.s.cfg.OnEvent(SlaveConnected{ID: p.hello.id, Addr: p.wire.peer(), Position: a.position, Anew: p.anew})
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := p.send(); err != nil {
			p.wire.stop(err)
		}
	})
	err = p.readAcks()
	p.wire.stop(err)
	writer.Wait()
	return p.wire.stopped() // the first reason
}

// greet reads who it is, and answers what is to become of its log.
func (p *sender) greet() error {
	// However slowly its bytes come.
	kind, body, err := p.wire.next(time.Now().Add(p.s.cfg.Housekeeping))
	switch {
	case errors.Is(err, errIdle):
		return fmt.Errorf("ha: no hello came from %s within %v: %w", p.wire.peer(), p.s.cfg.Housekeeping, ErrSilent)
	case err != nil:
		return err
	case kind == kindGoodbye:
		return p.goodbye(body)
	}
	h, err := parseSlaveHello(body)
	if err != nil {
		return fmt.Errorf("ha: from %s: %w", p.wire.peer(), err)
	}
	p.hello = h
	answer, state, err := p.s.judge(h)
	if err == nil {
		err = p.join(answer)
	}
	if err != nil {
		if h.highest > p.s.cfg.InSync.Epoch && errors.Is(err, ErrOldEpoch) {
			p.s.cfg.OnEvent(HigherEpoch{Epoch: h.highest, ID: h.id})
		}
		return err
	}
	b := appendMasterHello(nil, answer)
	if answer.begin > 0 {
		b = appendState(b, state)
	}
	return p.wire.write(b, p.s.cfg.Housekeeping)
}

// judge decides what is to become of the log of a slave.
func (s *Slaves) judge(h *slaveHello) (*masterHello, []byte, error) {
	switch epoch := s.cfg.InSync.Epoch; {
	case h.cluster != s.cfg.Cluster || h.group != s.cfg.Group:
		return nil, nil, fmt.Errorf("ha: replica %d is of group %q in cluster %q, this is %q in %q: %w", h.id, h.group, h.cluster, s.cfg.Group, s.cfg.Cluster, ErrWrongGroup)
	case h.id == s.id || h.id < 0:
		return nil, nil, fmt.Errorf("ha: a slave has the id %d, the master %d; each replica has one of its own, 0 or more: %w", h.id, s.id, ErrWrongGroup)
	case h.highest > epoch:
		return nil, nil, fmt.Errorf("ha: replica %d knows of epoch %d, this is the master of epoch %d: %w", h.id, h.highest, epoch, ErrOldEpoch)
	case h.first < 1 || h.end < h.first-1 || len(h.epochs) > 0 && h.epochs[0].First != h.first:
		return nil, nil, fmt.Errorf("ha: replica %d: %w: the log begins at %d and ends at %d, its epochs are %s", h.id, ErrBadEpochs, h.first, h.end, epochsText(h.epochs))
	}
	// What was deleted meanwhile is in none of the two: so first of all the epochs, of
	// which one tells where the log begins.
	epochs := s.cfg.Log.Epochs()
	if len(epochs) == 0 {
		return nil, nil, fmt.Errorf("ha: master: %w: it is empty", ErrBadEpochs)
	}
	first, end := epochs[0].First, s.end.Load()
	a := &masterHello{id: s.id, epoch: s.cfg.InSync.Epoch, first: first, end: end, confirmed: min(s.confirmed.Load(), end), epochs: epochs}
	keep, err := Diverge(epochs, first, end, h.epochs, h.end)
	switch {
	case err == nil && keep > 0:
		a.keep = keep
		a.sums, err = s.sums(first, keep)
		return a, nil, err
	case err != nil && !errors.Is(err, ErrTooFarBehind):
		return nil, nil, err
	}
	// It begins anew, unless it thinks better of it.
	begin, state, err := s.cfg.Log.Beginning(h.fromLast)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("ha: where the log of a slave begins: %w", err)
	case begin == 1 && h.first == 1 && h.end == 0:
		return a, nil, nil // it is empty
	case begin < 1 || begin > end+1:
		return nil, nil, fmt.Errorf("ha: a log of positions up to %d can't begin at %d", end, begin)
	case len(state) > s.cfg.MaxFrameBytes:
		return nil, nil, fmt.Errorf("ha: the state at position %d has %d bytes, a frame at most %d: %w", begin, len(state), s.cfg.MaxFrameBytes, ErrFrameTooLarge)
	}
	a.begin = begin
	return a, state, nil
}

// sums are what the slave compares its own records with. Epochs tell logs apart whose
// masters were elected. Without elections there is one epoch, whatever happens: a master
// that has lost its tail to a power failure, and has written since, has others in its
// place. What two logs have in common is a beginning of both, so a few records, further
// and further from the end, tell about where it ends; what is cut too much comes again.
func (s *Slaves) sums(first, keep int64) ([]recordSum, error) {
	var sums []recordSum
	if keep < first {
		return nil, nil
	}
	for back := int64(0); ; back = max(1, 2*back) {
		position := max(first, keep-back)
		sum, ok, err := sumOf(s.cfg.Log, position)
		switch {
		case err != nil:
			return nil, err
		case ok:
			sums = append(sums, recordSum{position, sum})
		}
		if s.cfg.InSync.Epoch > 0 || position == first {
			return sums, nil
		}
	}
}

// sumOf is the CRC-32C of a record, if the log has it still.
func sumOf(l Log, position int64) (sum uint32, ok bool, err error) {
	first, end := l.Bounds()
	if position < first || position > end {
		return 0, false, nil
	}
	b, err := l.Read(position, 1)
	if err != nil {
		if first, _ = l.Bounds(); position < first {
			return 0, false, nil
		}
		return 0, false, fmt.Errorf("ha: reading the record at %d: %w", position, err)
	}
	if len(b.Records) == 0 {
		return 0, false, nil
	}
	return crc32.Checksum(b.Records[0], castagnoli), true, nil
}

// join makes the slave count: from its next ack on, and nothing of its former
// connection, which is ended.
func (p *sender) join(a *masterHello) error {
	s := p.s
	p.next, p.anew, p.sums = max(a.keep+1, a.begin), a.begin > 0, a.sums
	var older *sender
	now := time.Now()
	s.mu.Lock()
	conn, err := s.core.Connect(now, p.hello.id, p.hello.incarnation, p.next-1)
	if err == nil {
		p.conn = conn
		list := slices.Clone(*s.senders.Load())
		if i := slices.IndexFunc(list, func(q *sender) bool { return q.hello.id == p.hello.id }); i >= 0 {
			older = list[i]
			list[i] = p
		} else {
			list = append(list, p)
		}
		s.senders.Store(&list)
	}
	n := s.reviewLocked()
	s.mu.Unlock()
	s.notify(n)
	if older != nil {
		older.wire.stop(fmt.Errorf("ha: replica %d connects from %s: %w", p.hello.id, p.wire.peer(), ErrStaleConnection))
	}
	return err
}

// leave undoes join. A slave that has said that it stops is not waited for.
func (p *sender) leave(err error) {
	if p.conn == 0 {
		return
	}
	said := new(RefusedError)
	stops := errors.As(err, &said) && errors.Is(said, ErrStopped)
	p.s.change(func(now time.Time) {
		if stops {
			p.s.core.Leave(now, p.conn)
		} else {
			p.s.core.Disconnect(now, p.conn)
		}
		list := slices.DeleteFunc(slices.Clone(*p.s.senders.Load()), func(q *sender) bool { return q == p })
		p.s.senders.Store(&list)
	})
}

func (p *sender) goodbye(body []byte) error {
	g, err := parseGoodbye(body)
	if err != nil {
		return fmt.Errorf("ha: from %s: %w", p.wire.peer(), err)
	}
	return refusedBy(p.wire.peer(), g)
}

func (p *sender) readAck() (ackBody, error) {
	kind, body, err := p.wire.next(time.Time{})
	if err != nil {
		return ackBody{}, err
	}
	if kind == kindGoodbye {
		return ackBody{}, p.goodbye(body)
	}
	return parseAck(body)
}

func (p *sender) readAcks() error {
	for {
		a, err := p.readAck()
		if err != nil {
			return err
		}
		if err := p.acked(a); err != nil {
			return err
		}
	}
}

func (p *sender) acked(a ackBody) error {
	var err error
	p.s.change(func(now time.Time) { err = p.s.core.Ack(now, p.conn, a.epoch, a.position) })
	return err
}

// wakeUp wakes the writer if it waits for something.
func (p *sender) wakeUp(waits *atomic.Bool) {
	if waits.Load() && waits.CompareAndSwap(true, false) {
		signal(p.wake)
	}
}

// send sends the log until the connection is stopped.
func (p *sender) send() error {
	timer := time.NewTimer(p.s.cfg.Heartbeat)
	defer timer.Stop()
	for {
		if sent, err := p.sendBatch(); sent || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		due, beat := p.wait()
		if beat {
			if err := p.sendHeartbeat(); err != nil {
				return err
			}
			continue
		}
		if due == 0 {
			continue
		}
		timer.Reset(due)
		select {
		case <-p.wire.done:
			return nil
		case <-p.wake:
		case <-timer.C:
		}
		p.idle.Store(false)
		p.wants.Store(false)
	}
}

// wait says for how long the writer, who has no records to send, may wait; or that a
// heartbeat is due, because of the time or because more is confirmed than the slave
// knows. Whatever could end the waiting is asked for before it is looked at for the
// last time, so that nothing is missed.
func (p *sender) wait() (due time.Duration, beat bool) {
	s := p.s
	quiet := time.Since(p.wire.lastWrite)
	due = s.cfg.Heartbeat - quiet
	if due <= 0 {
		return 0, true
	}
	p.idle.Store(true)
	if s.end.Load() >= p.next {
		return 0, false
	}
	if p.told >= p.next-1 {
		return due, false
	}
	// A busy master says it with the next records: only one that has been quiet for a
	// moment sends what is confirmed alone.
	if late := s.cfg.ConfirmDelay - quiet; late > 0 {
		return min(due, late), false
	}
	p.wants.Store(true)
	return due, s.confirmed.Load() > p.told
}

// sendBatch sends the next records; false: there are none.
func (p *sender) sendBatch() (sent bool, err error) {
	s := p.s
	end := s.end.Load()
	if p.next > end {
		return false, nil
	}
	b, err := s.cfg.Log.Read(p.next, s.cfg.TransferBytes)
	if err != nil {
		if first, _ := s.cfg.Log.Bounds(); p.next < first {
			return false, fmt.Errorf("ha: replica %d is at %d, the master's oldest is %d: %w", p.hello.id, p.next-1, first, ErrTooFarBehind)
		}
		return false, fmt.Errorf("ha: reading the log from %d on: %w", p.next, err)
	}
	records := b.Records[:min(int64(len(b.Records)), end-p.next+1)]
	for n := dataSize(records); n > s.cfg.MaxFrameBytes && len(records) > 0; {
		n -= 4 + len(records[len(records)-1])
		records = records[:len(records)-1]
	}
	if len(records) == 0 {
		if len(b.Records) == 0 {
			return false, fmt.Errorf("ha: the log ends before %d, it was to end at %d", p.next, end)
		}
		return false, fmt.Errorf("ha: the record at %d has %d bytes, a frame at most %d: %w", p.next, len(b.Records[0]), s.cfg.MaxFrameBytes, ErrFrameTooLarge)
	}
	last := p.next + int64(len(records)) - 1
	p.told = min(s.confirmed.Load(), end)
	p.buf = appendData(p.buf[:0], dataHead{first: p.next, epoch: b.Epoch, confirmed: p.told, end: end}, records)
	s.mu.Lock()
	s.core.Sent(p.conn, last)
	s.mu.Unlock()
	if err := p.wire.write(p.buf, p.s.cfg.Housekeeping); err != nil {
		return false, err
	}
	p.next = last + 1
	p.records.Add(int64(len(records)))
	p.bytes.Add(int64(len(p.buf)))
	p.rate.add(p.wire.lastWrite, int64(len(p.buf)))
	return true, nil
}

func (p *sender) sendHeartbeat() error {
	if cap(p.buf) > keepBytes {
		p.buf = nil
	}
	p.told = p.s.confirmed.Load()
	p.buf = appendData(p.buf[:0], dataHead{first: p.next, epoch: p.s.cfg.InSync.Epoch, confirmed: p.told, end: p.s.end.Load()}, nil)
	return p.wire.write(p.buf, p.s.cfg.Housekeeping)
}

// rate is what happens per second, over the last second or more. Safe for concurrent
// use.
type rate struct {
	mu    sync.Mutex // guards what follows
	from  time.Time
	sum   int64
	value float64
}

// add counts something that happened.
func (r *rate) add(now time.Time, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	r.sum += n
}

func (r *rate) perSecond(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	return r.value
}

func (r *rate) turn(now time.Time) {
	if past := now.Sub(r.from); past >= time.Second {
		r.value = float64(r.sum) / past.Seconds()
		r.from, r.sum = now, 0
	}
}
