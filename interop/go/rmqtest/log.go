package rmqtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// keptLines is how many lines of the clients' log a failed test shows.
const keptLines = 1000

// logs is the logger of the official client. There is one per process, because
// the client has one; it keeps no line longer than the tests that want it.
var logs clientLog

// clientLog gives what the official clients log to the tests that use them. The
// client does not say which of its instances speaks, so each gets everything.
type clientLog struct {
	install sync.Once

	mu    sync.Mutex // guards the fields below; leaf
	tests map[testing.TB]*tail
	debug bool // by rlog.SetLogLevel
}

var _ rlog.Logger = (*clientLog)(nil)

// tail holds the last lines.
type tail struct {
	lines []string // a ring once it is full
	next  int      // the oldest line when the ring is full
	total int
}

// open begins to keep lines for t, the first time that it is called for it, and
// shows them at the end of t when it has failed.
func (l *clientLog) open(t testing.TB) {
	l.install.Do(func() { rlog.SetLogger(l) })
	l.mu.Lock()
	_, known := l.tests[t]
	if !known {
		if l.tests == nil {
			l.tests = make(map[testing.TB]*tail)
		}
		l.tests[t] = &tail{}
	}
	l.mu.Unlock()
	if known {
		return
	}
	t.Cleanup(func() { // before the clients' own, so it runs after them
		l.mu.Lock()
		kept := l.tests[t]
		delete(l.tests, t)
		l.mu.Unlock()
		if t.Failed() && kept.total > 0 {
			t.Logf("rmqtest: the last %d of %d log lines of the official clients, those of tests that ran at the same time included:\n%s",
				len(kept.lines), kept.total, kept.text())
		}
	})
}

func (l *clientLog) add(level, msg string, fields map[string]any) {
	if msg == "" && len(fields) == 0 {
		return // the client calls its logger so to say nothing
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", time.Now().Format("15:04:05.000"), level, msg)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(&b, " %s=%v", name, fields[name])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tests {
		t.add(b.String())
	}
}

func (t *tail) add(line string) {
	t.total++
	if len(t.lines) < keptLines {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % keptLines
}

func (t *tail) text() string {
	return strings.Join(slices.Concat(t.lines[t.next:], t.lines[:t.next]), "\n")
}

// wanted tells whether somebody would read a line. Values are formatted only
// then: formatting reads what others may be writing.
func (l *clientLog) wanted(debug bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tests) > 0 && (!debug || l.debug)
}

func (l *clientLog) Debug(msg string, fields map[string]any) {
	if l.wanted(true) {
		l.add("DEBUG", msg, fields)
	}
}

func (l *clientLog) Info(msg string, fields map[string]any) {
	if l.wanted(false) {
		l.add("INFO", msg, fields)
	}
}

func (l *clientLog) Warning(msg string, fields map[string]any) {
	if l.wanted(false) {
		l.add("WARN", msg, fields)
	}
}

func (l *clientLog) Error(msg string, fields map[string]any) {
	if l.wanted(false) {
		l.add("ERROR", msg, fields)
	}
}

// Fatal does not end the process, as the client's own logger would: the tests
// say what went wrong.
func (l *clientLog) Fatal(msg string, fields map[string]any) {
	if l.wanted(false) {
		l.add("FATAL", msg, fields)
	}
}

// Level is rlog.SetLogLevel: "debug" keeps everything, any other level what is
// worth more than debugging.
func (l *clientLog) Level(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.debug = strings.EqualFold(level, "debug")
}

// OutputPath is rlog.SetOutputPath.
func (l *clientLog) OutputPath(string) error {
	return errors.New("rmqtest keeps the clients' log in memory and shows it when a test fails: call rlog.SetLogger with a logger of yours to have it in a file")
}
