package remoting

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// start serves the link until it ends.
func (l *link) start(s service) {
	l.service = s
	l.right.timer = time.AfterFunc(overdue, l.late)
	l.right.timer.Stop()
	l.loops.Add(1) // for the right to read, whoever has it; done by who finds the end
	go func() {
		err := l.begin()
		if err == nil {
			l.loops.Go(func() {
				if err := l.write(); !l.unheard(err) && !l.linger(err) {
					l.end(err)
				}
			})
		}
		l.read(nil, err)
	}()
}

func (l *link) begin() error {
	if !l.rearm() {
		return os.ErrDeadlineExceeded
	}
	if l.service.begin == nil {
		return nil
	}
	return l.service.begin()
}

// read reads frames until one cannot be, or somebody else goes on. It begins
// with a frame, or an error, that was read already. It is called by who has the
// right to read.
func (l *link) read(f *Frame, err error) {
	var taken *lease
	if l.right.lost {
		l.right.lost, l.soon = false, 0
		if l.service.late != nil {
			l.service.late()
		}
	}
	for {
		if f == nil && err == nil {
			f, taken, err = l.next(l.service.charge)
		}
		if err != nil {
			l.end(err)
			l.service.done()
			l.loops.Done()
			return
		}
		l.noteFrame()
		more := true
		if f.Response() {
			if l.backlog != nil && len(f.Body) > maxBodyText { // a server has places for requests, not for answers
				f.Code, f.Ext, f.Body = int32(protocol.SystemError), nil, nil
				f.Remark = fmt.Sprintf("the client's answer is larger than the %d bytes that are allowed", maxBodyText)
			}
			taken.release()
			l.answered(f)
			if l.soon >= readAlone && l.in.Buffered() == 0 {
				l.right.free() // who asks next reads the answer
				return
			}
		} else {
			more = l.service.request(f, taken)
		}
		if !more {
			return
		}
		f, taken = nil, nil
		if l.inTurn++; l.in.Buffered() == 0 {
			l.inTurn = 0
		} else if l.inTurn >= turnFrames {
			l.inTurn = 0
			runtime.Gosched()
		}
	}
}

// noteFrame notes that a whole frame has come.
func (l *link) noteFrame() {
	l.touch()
	if !l.heard.Load() {
		l.heard.Store(true)
	}
}

// errGiveBack ends the read of a caller that is to give back the right to read.
var errGiveBack = errors.New("the right to read is asked back")

// next reads a frame. Of a large one no more than the first piece is read
// before charge allows it.
func (l *link) next(charge func(int) (*lease, error)) (f *Frame, taken *lease, err error) {
	first := firstPiece
	if l.heard.Load() {
		first = piece
		if l.in.Size() < readBuffer && l.in.Buffered() == 0 {
			l.in = bufio.NewReaderSize(idleReader{l}, readBuffer)
		}
	}
	if f, err := l.small(); f != nil || err != nil {
		return f, nil, err
	}
	n, err := l.head()
	if err != nil {
		return nil, nil, err
	}
	if _, err := l.in.Discard(4); err != nil {
		return nil, nil, err
	}
	l.coming.Store(true)
	b, err := readPieces(l.in, n, first, func() (err error) {
		if charge == nil {
			return nil
		}
		if taken, err = charge(n); err != nil {
			return err
		}
		l.large = taken
		if !l.rearm() {
			return os.ErrDeadlineExceeded
		}
		return nil
	})
	l.large = nil
	l.touch() // it has rested for long, perhaps
	l.coming.Store(false)
	if err == nil {
		f = l.frames.get()
		err = f.parse(b, true)
	}
	if err != nil {
		taken.release()
		return nil, nil, err
	}
	return f, taken, nil
}

// head looks at the first words of a frame, without taking them, and returns how
// many bytes follow the first one.
func (l *link) head() (n int, err error) {
	b, err := l.peek(4)
	if err != nil {
		return 0, err
	}
	if n, err = Length([4]byte(b)); err != nil {
		return 0, err
	}
	if b, err = l.peek(8); err == nil {
		_, _, err = splitHead(b[4:], n)
	}
	return n, err
}

// small reads a frame that fits into the buffer. It is nil for a larger one, of
// which nothing is taken then. Nor is it when there is an error.
func (l *link) small() (*Frame, error) {
	n, err := l.head()
	if err != nil || 4+n > l.in.Size() {
		return nil, err
	}
	b, err := l.peek(4 + n)
	if err != nil {
		return nil, err
	}
	f := l.frames.get()
	if err := f.parse(bytes.Clone(b[4:]), true); err != nil {
		return nil, err
	}
	_, err = l.in.Discard(4 + n)
	return f, err
}

// peek returns the next n bytes without taking them. io.EOF is the end before the
// first of them.
func (l *link) peek(n int) ([]byte, error) {
	b, err := l.in.Peek(n)
	if err == io.EOF && len(b) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// idleReader reads from a link's connection. It gives up when for the idle
// limit no whole frame has crossed in either direction; single bytes do not
// keep a connection.
type idleReader struct{ l *link }

func (r idleReader) Read(b []byte) (int, error) {
	if r.l.unsaid > 0 {
		r.l.flush()
		if r.l.unsaid > 1 {
			runtime.Gosched() // who sends much at a time does not keep a processor
		}
		r.l.unsaid = 0
	}
	for {
		n, err := r.l.stream.Read(b)
		if slow := r.l.large.arrived(n); slow != nil {
			return n, slow
		}
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if r.l.right.asked() {
			return 0, errGiveBack
		}
		if r.l.hurried || !r.l.rearm() {
			return 0, err
		}
	}
}

// rearm moves the deadline of reads to when the link will have been idle for
// too long, or to when a large frame is looked at again. It is false when it
// has been idle for too long.
func (l *link) rearm() bool {
	now := time.Now()
	at := l.begun.Add(time.Duration(l.active.Load()) + l.idle)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.goodbye.IsZero() && l.goodbye.Before(at) {
		at = l.goodbye
	}
	if !now.Before(at) {
		return false
	}
	if again := now.Add(paceGrace); l.large != nil && again.Before(at) {
		at = again
	}
	return l.conn.SetReadDeadline(at) == nil
}
