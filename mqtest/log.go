package mqtest

import (
	"bytes"
	"log/slog"
	"sync"
)

// keptLines is how many lines of the log a failed test shows.
const keptLines = 1000

// logTail keeps the last lines that a slog.TextHandler writes: one Write is
// one line. Safe for concurrent use.
type logTail struct {
	mu    sync.Mutex // guards the fields below; leaf
	lines [][]byte   // a ring once it is full; its slices are reused
	next  int        // the oldest line when the ring is full
	total int
}

// logger returns a logger of all levels whose lines are kept, and that also
// writes to forward if it is not nil.
func (l *logTail) logger(forward *slog.Logger) *slog.Logger {
	var h slog.Handler = slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})
	if forward != nil {
		h = slog.NewMultiHandler(h, forward.Handler())
	}
	return slog.New(h)
}

func (l *logTail) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	if len(l.lines) < keptLines {
		l.lines = append(l.lines, bytes.Clone(line))
		return len(line), nil
	}
	l.lines[l.next] = append(l.lines[l.next][:0], line...)
	l.next = (l.next + 1) % keptLines
	return len(line), nil
}

// last returns the kept lines, oldest first, and how many there were in all.
func (l *logTail) last() (text string, kept, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	for i := range l.lines {
		b.Write(l.lines[(l.next+i)%len(l.lines)])
	}
	return b.String(), len(l.lines), l.total
}
