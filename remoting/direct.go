package remoting

// nonblocking writes to a connection what can be written without waiting. An
// error is that of a connection to which nothing can be written, or only by who
// sets a deadline.
type nonblocking interface {
	write(b []byte) (n int, err error)
}

// writeAlone is how many writes in a row had one frame each before whoever adds
// a frame writes it itself: to wake a goroutine costs more than the write. Where
// frames come close together, that goroutine writes many at a time.
const writeAlone = 8

// writeDirect writes b, which the caller has taken, as far as that is possible
// without waiting. The writing goroutine writes the rest, and finds what is wrong
// with the connection.
func (l *link) writeDirect(b []byte) {
	n, err := l.direct.write(b)
	if err == nil && n == len(b) {
		l.touch()
	}
	l.mu.Lock()
	more := l.wroteLocked(b, n)
	l.mu.Unlock()
	if more {
		l.awake()
	}
}

// flush writes what was added to be written later.
func (l *link) flush() {
	l.mu.Lock()
	if l.writing > 0 || len(l.out) == 0 { // who writes looks again
		l.mu.Unlock()
		return
	}
	if l.direct == nil || l.last {
		l.mu.Unlock()
		l.awake()
		return
	}
	b := l.takeLocked()
	l.mu.Unlock()
	l.writeDirect(b)
}
