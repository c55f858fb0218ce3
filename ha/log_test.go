package ha

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errNoRecord = errors.New("no such record")

// memLog is a log in memory. Its files have 10 records.
type memLog struct {
	mu        sync.Mutex // guards what follows
	first     int64
	records   [][]byte
	history   []Epoch // as it was, whatever first is
	confirmed int64
	begun     string // state that it began with

	// What Append does to a slave.
	slow    time.Duration
	fail    error
	batches int

	written func(int64) // a master's
}

func newMemLog() *memLog { return &memLog{first: 1} }

// write appends n records as the master of an epoch does.
func (l *memLog) write(epoch int64, sizes ...int) int64 {
	l.mu.Lock()
	end := l.endLocked()
	for _, size := range sizes {
		l.beginEpochLocked(epoch)
		end++
		rec := fmt.Appendf(nil, "%d/%d/", epoch, end)
		l.records = append(l.records, append(rec, make([]byte, max(0, size-len(rec)))...))
	}
	written := l.written
	l.mu.Unlock()
	if written != nil {
		written(end)
	}
	return end
}

func (l *memLog) writeMany(epoch int64, n int) int64 { return l.write(epoch, make([]int, n)...) }

func (l *memLog) beginEpoch(epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginEpochLocked(epoch)
}

func (l *memLog) beginEpochLocked(epoch int64) {
	if n := len(l.history); n == 0 || l.history[n-1].Number < epoch {
		l.history = append(l.history, Epoch{epoch, l.endLocked() + 1})
	}
}

func (l *memLog) endLocked() int64 { return l.first + int64(len(l.records)) - 1 }

func (l *memLog) end() int64 { _, end := l.Bounds(); return end }

// trim deletes what is older than a position.
func (l *memLog) trim(first int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = slices.Clone(l.records[first-l.first:])
	l.first = first
}

func (l *memLog) Bounds() (first, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.endLocked()
}

func (l *memLog) Epochs() []Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.history)
	for len(list) > 1 && list[1].First <= l.first {
		list = list[1:]
	}
	if len(list) == 0 {
		return []Epoch{{0, l.first}}
	}
	list[0].First = l.first
	return list
}

func (l *memLog) Read(from int64, maxBytes int) (Batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.endLocked()
	if from < l.first || from > end+1 {
		return Batch{}, fmt.Errorf("%d: %w", from, errNoRecord)
	}
	b := Batch{First: from}
	for _, e := range l.history {
		if e.First <= from {
			b.Epoch = e.Number
		} else {
			end = min(end, e.First-1)
			break
		}
	}
	for bytes := 0; b.Last() < end && (bytes < maxBytes || bytes == 0); {
		rec := l.records[from-l.first+int64(len(b.Records))]
		b.Records = append(b.Records, rec)
		bytes += len(rec)
	}
	return b, nil
}

func (l *memLog) Beginning(lastFile bool) (int64, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.first
	if lastFile {
		at = max(at, l.endLocked()/10*10+1)
	}
	if at == 1 {
		return 1, nil, nil
	}
	return at, fmt.Appendf(nil, "state at %d", at), nil
}

func (l *memLog) BytesBetween(from, to int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(0)
	for p := max(from+1, l.first); p <= min(to, l.endLocked()); p++ {
		n += int64(len(l.records[p-l.first]))
	}
	return n
}

func (l *memLog) Confirmed() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed
}

func (l *memLog) Append(ctx context.Context, b Batch) error {
	l.mu.Lock()
	slow, fail := l.slow, l.fail
	l.mu.Unlock()
	if slow > 0 && !sleep(ctx, slow) {
		return ctx.Err()
	}
	if fail != nil {
		return fail
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.First != l.endLocked()+1 {
		return fmt.Errorf("%d behind %d: %w", b.First, l.endLocked(), errNoRecord)
	}
	l.beginEpochLocked(b.Epoch)
	for _, rec := range b.Records {
		l.records = append(l.records, slices.Clone(rec))
	}
	l.batches++
	return nil
}

func (l *memLog) Confirm(position int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed = max(l.confirmed, min(position, l.endLocked()))
	return nil
}

func (l *memLog) Cut(_ context.Context, last int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = slices.Clone(l.records[:last-l.first+1])
	for len(l.history) > 0 && l.history[len(l.history)-1].First > last {
		l.history = l.history[:len(l.history)-1]
	}
	return nil
}

func (l *memLog) Begin(_ context.Context, position int64, state []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.records, l.history, l.confirmed, l.begun = position, nil, nil, 0, string(state)
	return nil
}

// set changes what Append does.
func (l *memLog) set(slow time.Duration, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow, l.fail = slow, fail
}

// requireSame checks that a log ends as another one does, record for record, from where
// it begins.
func requireSame(t testing.TB, want, got *memLog) {
	t.Helper()
	first, end := got.Bounds()
	require.Equal(t, want.end(), end)
	want.mu.Lock()
	defer want.mu.Unlock()
	got.mu.Lock()
	defer got.mu.Unlock()
	require.GreaterOrEqual(t, first, want.first)
	require.Equal(t, want.records[first-want.first:], got.records)
}

// memPromises are promises in memory.
type memPromises struct {
	mu   sync.Mutex // guards what follows
	high int64
	fail error
}

func (p *memPromises) Highest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.high
}

func (p *memPromises) Promise(_ context.Context, epoch int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fail != nil:
		return p.fail
	case epoch < p.high:
		return ErrOldEpoch
	}
	p.high = epoch
	return nil
}

func TestABatchEndsWithItsLastRecord(t *testing.T) {
	assert.EqualValues(t, 6, (&Batch{First: 5, Records: [][]byte{{1}, {2}}}).Last())
	assert.EqualValues(t, 4, (&Batch{First: 5}).Last())
}
