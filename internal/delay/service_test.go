package delay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/message"
)

// fakeLog is a store of delayed messages that may fail.
type fakeLog struct {
	service *Service
	delays  []time.Duration

	mu        sync.Mutex // guards the rest
	queues    map[int][]fakeRecord
	delivered []string // topic/queue body, in order
	synced    int      // of delivered
	appends   int
	fail      func(n int) error // of the n-th append, from 1
	first     map[int]int64     // lowest offset kept
	missing   string            // a topic that the broker does not have
}

type fakeRecord struct {
	due int64
	rec []byte // nil: lost
}

func newFakeLog(delays ...time.Duration) *fakeLog {
	return &fakeLog{delays: delays, queues: make(map[int][]fakeRecord), first: make(map[int]int64)}
}

func (f *fakeLog) open(t testing.TB, p *Progress) *Service {
	t.Helper()
	f.service = NewService(f.delays, f, p, slog.New(slog.DiscardHandler))
	return f.service
}

// add stores a message that waits for a level, counted from 1.
func (f *fakeLog) add(t testing.TB, level int, topic string, queue int32, body string) {
	t.Helper()
	r := message.Record{Topic: topic, QueueID: queue, Body: []byte(body), BornTime: time.Now().UnixMilli()}
	Defer(&r, level, len(f.delays))
	f.mu.Lock()
	l := int(r.QueueID)
	r.QueueOffset, r.StoreTime = int64(len(f.queues[l])), time.Now().UnixMilli()
	rec, err := message.AppendRecord(nil, &r)
	require.NoError(t, err)
	due := r.StoreTime + f.delays[l].Milliseconds()
	f.queues[l] = append(f.queues[l], fakeRecord{due, rec})
	f.mu.Unlock()
	if f.service != nil {
		f.service.Arrived(l, r.QueueOffset, due, time.Now())
	}
}

func (f *fakeLog) Bounds(level int) (int64, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first[level], int64(len(f.queues[level]))
}

func (f *fakeLog) Due(level int, offset int64, limit int) (due []int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.queues[level][offset:] {
		if len(due) == limit {
			break
		}
		due = append(due, r.due)
	}
	return due, nil
}

func (f *fakeLog) Records(level int, offset int64, limit, maxBytes int) (out [][]byte, next int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	size := 0
	for next = offset; next < int64(len(f.queues[level])) && len(out) < limit; next++ {
		r := f.queues[level][next]
		if size += len(r.rec); size > maxBytes && len(out) > 0 {
			break
		}
		if r.rec != nil {
			out = append(out, r.rec)
		}
	}
	return out, next, nil
}

func (f *fakeLog) Append(_ context.Context, records []message.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.appends++
	if f.fail != nil {
		if err := f.fail(f.appends); err != nil {
			return err
		}
	}
	for _, r := range records {
		f.delivered = append(f.delivered, fmt.Sprintf("%s/%d %s", r.Topic, r.QueueID, r.Body))
	}
	return nil
}

func (f *fakeLog) Takes(topic string, queue int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return topic != f.missing
}

func (f *fakeLog) Sync(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = len(f.delivered)
	return nil
}

func (f *fakeLog) got() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.delivered)
}

func memory(t testing.TB) *Progress {
	t.Helper()
	p, err := OpenProgress("", true, nil)
	require.NoError(t, err)
	return p
}

// serve runs a service until the test, or the returned function, ends it.
func serve(t *testing.T, s *Service) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx) })
	end = func() { cancel(); wg.Wait() }
	t.Cleanup(end)
	return end
}

func TestMessagesAreDeliveredAtTheirInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLog(time.Second, 10*time.Second)
		serve(t, f.open(t, memory(t)))
		synctest.Wait()
		f.add(t, 2, "T", 3, "late")
		time.Sleep(500 * time.Millisecond)
		f.add(t, 1, "U", 0, "soon")
		time.Sleep(time.Second - time.Millisecond)
		synctest.Wait()
		assert.Empty(t, f.got())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []string{"U/0 soon"}, f.got())
		time.Sleep(8*time.Second + 499*time.Millisecond)
		synctest.Wait()
		assert.Len(t, f.got(), 1)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []string{"U/0 soon", "T/3 late"}, f.got())
		assert.Equal(t, []int64{1, 1}, f.service.Offsets())
	})
}

// Those that are due together and go to the same queue are appended together.
func TestWhatIsDueTogetherIsAppendedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLog(time.Second)
		serve(t, f.open(t, memory(t)))
		var want []string
		for i := range 1000 {
			topic := []string{"T", "U"}[i/400%2]
			f.add(t, 1, topic, 0, fmt.Sprint(i))
			want = append(want, fmt.Sprintf("%s/0 %d", topic, i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, want, f.got())
		assert.LessOrEqual(t, f.appends, 1000/maxRound+1+3)
	})
}

func TestDR01_AnErrorRepeatsTheMessageFromItsOwnPosition(t *testing.T) {
	for failing := 1; failing <= 3; failing++ {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeLog(time.Second)
			f.fail = func(n int) error {
				if n == failing {
					return errors.New("broken")
				}
				return nil
			}
			serve(t, f.open(t, memory(t)))
			for i := range 3 { // to different queues: three appends
				f.add(t, 1, "T", int32(i), fmt.Sprint(i))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Len(t, f.got(), failing-1)
			time.Sleep(firstPause)
			synctest.Wait()
			assert.Equal(t, []string{"T/0 0", "T/1 1", "T/2 2"}, f.got())
		})
	}
}

func TestHurryTriesAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLog(time.Second)
		broken := true
		f.fail = func(int) error {
			if broken {
				return errors.New("broken")
			}
			return nil
		}
		serve(t, f.open(t, memory(t)))
		f.add(t, 1, "T", 0, "x")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, f.got())
		f.mu.Lock()
		broken = false
		f.mu.Unlock()
		f.service.Hurry(time.Now())
		synctest.Wait()
		assert.Equal(t, []string{"T/0 x"}, f.got())
	})
}

func TestLostAndForeignRecordsArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLog(time.Second)
		for i := range 5 {
			f.add(t, 1, "T", 0, fmt.Sprint(i))
		}
		f.queues[0][1] = fakeRecord{} // lost, and so are the last
		foreign, err := message.AppendRecord(nil, &message.Record{Topic: message.ScheduleTopic, QueueOffset: 3, Body: []byte("x")})
		require.NoError(t, err)
		f.queues[0][3].rec = foreign
		f.queues[0][4] = fakeRecord{}
		serve(t, f.open(t, memory(t)))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"T/0 0", "T/0 2"}, f.got())
		assert.Equal(t, []int64{5}, f.service.Offsets())
	})
}

// Retention may take messages before they are due.
func TestALevelWhoseQueueWasTrimmedGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLog(time.Hour)
		serve(t, f.open(t, memory(t)))
		for i := range 5 {
			f.add(t, 1, "T", 0, fmt.Sprint(i))
		}
		f.mu.Lock()
		f.first[0] = 3
		f.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []string{"T/0 3", "T/0 4"}, f.got())
	})
}

func TestLargeMessagesAreReadInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLog(time.Second)
		serve(t, f.open(t, memory(t)))
		for i := range 5 {
			f.add(t, 1, "T", 0, fmt.Sprint(i)+strings.Repeat("x", maxRoundBytes/2))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, f.got(), 5)
	})
}

func TestProgressIsSavedInRocketMQsFormat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "delayOffset.json")
	p, err := OpenProgress(file, true, nil)
	require.NoError(t, err)
	now := time.UnixMilli(1700000000000)
	require.NoError(t, p.Save(now, []int64{0, 0}, nil))
	assert.NoFileExists(t, file, "nothing to say")
	require.NoError(t, p.Save(now, []int64{7, 0, 3}, nil))
	require.NoError(t, p.Save(now, []int64{7, 0, 3}, nil))
	data, found, err := statefile.New(file, true).Load()
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, `{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},"offsetTable":{"1":7,"3":3}}`, string(data))
	p, err = OpenProgress(file, true, nil)
	require.NoError(t, err)
	assert.Equal(t, []int64{7, 0, 3, 0}, []int64{p.Offset(0), p.Offset(1), p.Offset(2), p.Offset(3)})

	require.NoError(t, statefile.New(file, true).Save([]byte(`{"offsetTable":{"x":1}}`)))
	_, err = OpenProgress(file, true, nil)
	assert.ErrorContains(t, err, "move it away")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
	require.NoError(t, os.WriteFile(file+".bak", []byte("x"), 0o644))
	_, err = OpenProgress(file, true, nil)
	assert.ErrorIs(t, err, statefile.ErrDamaged)
}

func TestProgressIsNotSavedWhenItsDeliveriesAreNotDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLog(time.Second)
		p := memory(t)
		s := NewService(f.delays, brokenSync{f}, p, slog.New(slog.DiscardHandler))
		f.service = s
		serve(t, s)
		f.add(t, 1, "T", 0, "x")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, f.got(), 1)
		assert.ErrorContains(t, s.Persist(t.Context()), "not durable")
		assert.Zero(t, p.Offset(0))
	})
}

type brokenSync struct{ *fakeLog }

func (brokenSync) Sync(context.Context) error { return errors.New("broken") }

// At a random moment power is lost: what was not synced is gone, progress is as
// it was saved last. Nothing is lost, whatever the moment.
func TestALossOfPowerRepeatsDeliveriesAndLosesNone(t *testing.T) {
	seed := rand.Uint64()
	for round := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, round))
			f := newFakeLog(time.Second, 3*time.Second)
			p := memory(t)
			n := 0
			for life := range 4 {
				s := f.open(t, p)
				end := serve(t, s)
				for range rnd.IntN(60) {
					if life < 3 && rnd.IntN(2) == 0 {
						f.add(t, 1+rnd.IntN(2), "T", int32(rnd.IntN(2)), fmt.Sprint(n))
						n++
					}
					if rnd.IntN(8) == 0 {
						require.NoError(t, s.Persist(t.Context()))
					}
					time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
				}
				if life == 3 {
					time.Sleep(4 * time.Second)
					synctest.Wait()
				}
				end()
				if life < 3 {
					f.delivered = f.delivered[:f.synced+rnd.IntN(len(f.delivered)-f.synced+1)]
				}
			}
			seen := make(map[string]bool)
			for _, d := range f.delivered {
				_, body, _ := strings.Cut(d, " ")
				seen[body] = true
			}
			require.Len(t, seen, n, "seed %d, round %d", seed, round)
		})
	}
}

// What waits when its topic is deleted is not delivered, over a restart too; what
// is sent to a later topic of that name is.
func TestMessagesOfDeletedTopicsAreNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "delayOffset.json")
		p, err := OpenProgress(file, true, nil)
		require.NoError(t, err)
		f := newFakeLog(time.Second, 10*time.Second)
		end := serve(t, f.open(t, p))
		f.add(t, 1, "T", 0, "old")
		f.add(t, 1, "U", 0, "kept")
		f.add(t, 2, "T", 0, "old, long")
		f.missing = "gone"
		f.add(t, 1, "gone", 0, "nowhere")
		require.NoError(t, f.service.Delete(t.Context(), "T"))
		require.NoError(t, f.service.Delete(t.Context(), "other"))
		f.add(t, 1, "T", 0, "new")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"U/0 kept", "T/0 new"}, f.got())
		end()
		p, err = OpenProgress(file, true, nil)
		require.NoError(t, err)
		assert.Equal(t, int64(1), p.Deleted()["T"][1])
		serve(t, f.open(t, p))
		f.add(t, 2, "T", 0, "new, long")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"T/0 new, long"}, slices.DeleteFunc(f.got(), func(s string) bool { return !strings.Contains(s, "long") }))
		require.NoError(t, f.service.Persist(t.Context()))
		assert.Empty(t, p.Deleted(), "everything of before was looked at")
	})
}

// The end of a log may be lost: its offsets are given out again, to new messages.
func TestADeletionBeyondTheQueueIsLowered(t *testing.T) {
	d := deletions{"T": {0: 9, 1: 5}, "U": {1: 3}}
	d.lower([]int64{6, 3})
	d.trim([]int64{2, 3})
	assert.Equal(t, deletions{"T": {0: 6}}, d)
}

func TestAFrozenServiceDeliversNothingAndHasSavedItsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLog(time.Second)
		p, err := OpenProgress("", false, nil)
		require.NoError(t, err)
		s := f.open(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { s.Run(ctx) })
		defer loop.Wait()
		defer cancel()
		f.add(t, 1, "T", 0, "a")
		time.Sleep(time.Second)
		synctest.Wait()
		f.add(t, 1, "T", 0, "b")

		thaw, err := s.Freeze(ctx)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"T/0 a"}, f.delivered)
		assert.EqualValues(t, 1, p.Offset(0))
		assert.Equal(t, 1, f.synced)

		soon, end := context.WithTimeout(ctx, time.Second)
		defer end()
		again, err := s.Freeze(soon)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "somebody else has")
		again()
		thaw()
		synctest.Wait()
		assert.Equal(t, []string{"T/0 a", "T/0 b"}, f.delivered)
	})
}
