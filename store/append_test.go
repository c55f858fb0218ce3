package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func TestConcurrentAppendsAreDenseAndKeepEachSendersOrder(t *testing.T) {
	t.Parallel()
	for _, sync := range []bool{false, true} {
		cfg := testConfig(t)
		cfg.FileSize, cfg.SyncFlush = 64<<10, sync
		s := mustOpen(t, cfg)
		const senders, each, queues = 16, 60, 3
		appendConcurrently(t, s, senders, each, queues)
		assert.Equal(t, int64(senders*each), s.Positions().Written)
		checkSenders(t, s, senders, each, queues)
		mustKill(t, s)
		checkSenders(t, mustOpen(t, cfg), senders, each, queues)
	}
}

// appendConcurrently has every sender append numbered records to one queue.
func appendConcurrently(t *testing.T, s *Store, senders, each, queues int) {
	var wg sync.WaitGroup
	for sender := range senders {
		wg.Go(func() {
			previous := int64(-1)
			for i := range each {
				b := s.NewBatch()
				if err := b.Add(record("T", sender%queues, fmt.Sprintf("%d:%d", sender, i), "")); err != nil {
					t.Error(err)
				}
				a, err := s.Append(context.Background(), b, AppendOptions{NoWait: i%3 > 0})
				if err != nil {
					t.Error(err)
				}
				if a.QueueOffset <= previous {
					t.Errorf("sender %d: offset %d after %d", sender, a.QueueOffset, previous)
				}
				previous = a.QueueOffset
				// What was acknowledged can be read at once.
				res, err := s.Get(GetRequest{Topic: "T", QueueID: sender % queues, Offset: a.QueueOffset})
				if err != nil || res.Status != GetFound {
					t.Errorf("read back: %v %v", res.Status, err)
				} else if v := message.View(res.Records[0]); v.Position() != a.Position || string(v.Body()) != fmt.Sprintf("%d:%d", sender, i) {
					t.Errorf("read back %q at %d", v.Body(), v.Position())
				}
			}
		})
	}
	wg.Wait()
}

func checkSenders(t *testing.T, s *Store, senders, each, queues int) {
	t.Helper()
	next := make([]int, senders)
	for queue := range queues {
		for _, text := range bodies(t, s, "T", queue) {
			var sender, i int
			_, err := fmt.Sscanf(text, "%d:%d", &sender, &i)
			require.NoError(t, err)
			require.Equal(t, next[sender], i, "sender %d", sender)
			next[sender]++
		}
	}
	for sender, n := range next {
		assert.Equal(t, each, n, "sender %d", sender)
	}
}

func TestBatchGetsPositionsAndOffsetsWithoutGap(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	put(t, s, "T", 1, "x")
	put(t, s, "T", 0, "y")
	a := put(t, s, "T", 0, "a", "b", "c")
	assert.Equal(t, Appended{QueueOffset: 1, Position: 3, StoreTime: a.StoreTime}, a)
	res, err := s.Get(GetRequest{Topic: "T", Offset: 1, MaxMessages: 10})
	require.NoError(t, err)
	require.Len(t, res.Records, 3)
	for i, rec := range res.Records {
		v := message.View(rec)
		assert.Equal(t, int64(3+i), v.Position())
		assert.Equal(t, int64(1+i), v.QueueOffset())
		assert.Equal(t, a.StoreTime.UnixMilli(), v.StoreTime())
	}
}

func TestH17_BatchOfAnySizeIsOneGroupInOneFile(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	big := strings.Repeat("x", 1000)
	b := s.NewBatch()
	for range 5000 {
		require.NoError(t, b.Add(record("T", 0, big, "")))
	}
	_, err := s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	assert.Len(t, segments(t, cfg.Dir), 1)
	put(t, s, "T", 0, "next")
	assert.Len(t, segments(t, cfg.Dir), 2)
	assert.Len(t, bodies(t, s, "T", 0), 5001)
	fresh := s.NewBatch()
	assert.LessOrEqual(t, cap(fresh.buf), maxBatchKeep)
}

func TestBadBatchesAreRefused(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	_, err := s.Append(t.Context(), s.NewBatch(), AppendOptions{})
	require.ErrorIs(t, err, ErrBadBatch)

	b := batchOf(t, s, "T", 0, "a")
	require.ErrorIs(t, b.Add(record("T", 1, "b", "")), ErrBadBatch)
	require.ErrorIs(t, b.Add(record("U", 0, "b", "")), ErrBadBatch)
	require.ErrorIs(t, b.Add(record(strings.Repeat("long", 100), 0, "b", "")), ErrBadBatch)
	require.Equal(t, 1, b.Len())
	assert.Positive(t, b.Bytes())
	_, err = s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	assertBodies(t, s, "T", 0, []string{"a"})

	b = s.NewBatch()
	require.ErrorIs(t, b.Add(record("T", -1, "b", "")), ErrBadBatch)
	require.ErrorIs(t, b.Add(record(strings.Repeat("long", 100), 0, "b", "")), message.ErrIllegalMessage)
	require.Zero(t, b.Len())
	require.NoError(t, b.Add(record("U", 3, "of another queue now", "")))
	b.Reset()
	assert.Zero(t, b.Len())
	assert.Zero(t, b.Bytes())
}

func TestRecordsOfOpenTransactionsTakeNoQueueOffset(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	add := func(sysFlag int32, body string) Appended {
		r := record("T", 0, body, "")
		r.SysFlag = sysFlag
		b := s.NewBatch()
		require.NoError(t, b.Add(r))
		a, err := s.Append(t.Context(), b, AppendOptions{})
		require.NoError(t, err)
		return a
	}
	assert.Equal(t, int64(0), add(0, "plain").QueueOffset)
	prepared := add(message.FlagTransactionPrepared, "prepared")
	assert.Equal(t, Appended{Position: 2, StoreTime: prepared.StoreTime}, prepared)
	add(message.FlagTransactionRollback, "rolled back")
	assert.Equal(t, int64(1), add(message.FlagTransactionCommit, "committed").QueueOffset)
	assertBodies(t, s, "T", 0, []string{"plain", "committed"})
	assert.Equal(t, int64(4), s.Positions().Written)
}

func TestEndedContextAppendsNothing(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Append(ctx, batchOf(t, s, "T", 0, "x"), AppendOptions{})
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, s.Positions().Written)
}

// heldStore is a store whose leader stops after the write of the record "hold"
// until release is closed, so that others pile up behind it.
func heldStore(t *testing.T, change func(*Config)) (s *Store, release chan struct{}) {
	release = make(chan struct{})
	cfg := testConfig(t)
	cfg.Arrived = func(topic string, _ int, _, _ int64) {
		if topic == "hold" {
			<-release
		}
	}
	if change != nil {
		change(&cfg)
	}
	s = mustOpen(t, cfg)
	return s, release
}

// start runs an append and delivers its error.
func start(ctx context.Context, t *testing.T, s *Store, topic, body string) <-chan error {
	result := make(chan error, 1)
	b := batchOf(t, s, topic, 0, body)
	go func() {
		_, err := s.Append(ctx, b, AppendOptions{})
		result <- err
	}()
	synctest.Wait()
	return result
}

func TestAppendersWhoGiveUpLeaveTheirRecordsInTheGroup(t *testing.T) {
	for _, leaver := range []string{"opener", "follower", "everybody"} {
		synctest.Test(t, func(t *testing.T) {
			s, release := heldStore(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			ctxOf := func(name string) context.Context {
				if name == leaver || leaver == "everybody" {
					return ctx
				}
				return t.Context()
			}
			leading := start(t.Context(), t, s, "hold", "h")
			opener := start(ctxOf("opener"), t, s, "T", "opener")
			follower := start(ctxOf("follower"), t, s, "T", "follower")
			cancel()
			synctest.Wait()
			if leaver != "follower" {
				require.ErrorIs(t, <-opener, context.Canceled)
			}
			if leaver != "opener" {
				require.ErrorIs(t, <-follower, context.Canceled)
			}
			// Their buffers must not be in use by anybody else yet.
			other := start(t.Context(), t, s, "T", "other")
			close(release)
			require.NoError(t, <-leading)
			require.NoError(t, <-other)
			if leaver == "opener" {
				require.NoError(t, <-follower)
			}
			if leaver == "follower" {
				require.NoError(t, <-opener)
			}
			synctest.Wait()
			assertBodies(t, s, "T", 0, []string{"opener", "follower", "other"})
			mustClose(t, s)
		})
	}
}

func TestNobodyJoinsAFullGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := heldStore(t, nil)
		leading := start(t.Context(), t, s, "hold", "h")
		first := start(t.Context(), t, s, "T", strings.Repeat("x", maxGroupBytes))
		second := start(t.Context(), t, s, "T", "y")
		third := start(t.Context(), t, s, "T", "z")
		s.mu.Lock()
		require.Len(t, s.mu.pending, 2)
		assert.Equal(t, 1, s.mu.pending[0].callers)
		assert.Equal(t, 2, s.mu.pending[1].callers)
		s.mu.Unlock()
		close(release)
		for _, c := range []<-chan error{leading, first, second, third} {
			require.NoError(t, <-c)
		}
		mustClose(t, s)
	})
}

func TestCloseWaitsForAppendsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := heldStore(t, nil)
		leading := start(t.Context(), t, s, "hold", "h")
		waiting := start(t.Context(), t, s, "T", "w")
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Fatal("closed while an append was under way", err)
		default:
		}
		_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "late"), AppendOptions{})
		require.ErrorIs(t, err, ErrClosed)
		close(release)
		require.NoError(t, <-leading)
		require.NoError(t, <-waiting)
		require.NoError(t, <-closed)
		require.NoError(t, s.Close(), "a second Close is the same")
		s = mustOpen(t, s.cfg)
		assertBodies(t, s, "T", 0, []string{"w"})
		mustClose(t, s)
	})
}

func TestClosedStoreAnswersErrClosed(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	put(t, s, "T", 0, "x")
	mustClose(t, s)
	_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "x"), AppendOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.Get(GetRequest{Topic: "T"})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Sync(t.Context()), ErrClosed)
	require.ErrorIs(t, s.Check(t.Context()), ErrClosed)
	require.NoError(t, s.Kill())
}

func TestArrivedIsCalledInOrderOnceReadable(t *testing.T) {
	cfg := testConfig(t)
	type arrival struct {
		topic  string
		queue  int
		offset int64
		tags   int64
	}
	var s *Store
	var got []arrival
	cfg.Arrived = func(topic string, queue int, offset, tags int64) {
		got = append(got, arrival{topic, queue, offset, tags})
		res, err := s.Get(GetRequest{Topic: topic, QueueID: queue, Offset: offset})
		assert.NoError(t, err)
		assert.Equal(t, GetFound, res.Status)
	}
	s = mustOpen(t, cfg)
	b := s.NewBatch()
	require.NoError(t, b.Add(record("T", 2, "a", "red")))
	require.NoError(t, b.Add(record("T", 2, "b", "")))
	_, err := s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	put(t, s, "U", 0, "c")
	want := []arrival{{"T", 2, 0, int64(message.TagHash("red"))}, {"T", 2, 1, 0}, {"U", 0, 0, 0}}
	assert.Equal(t, want, got)
	mustKill(t, s)
	s = mustOpen(t, cfg)
	assert.Equal(t, want, got, "replay announces nothing")
}

func TestStoreTimeNeverGoesBack(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	last := put(t, s, "T", 0, "x").StoreTime
	s.mu.Lock()
	s.mu.storeTime += 60_000 // as if the clock had been set back by a minute
	s.mu.Unlock()
	after := put(t, s, "T", 0, "y").StoreTime
	assert.GreaterOrEqual(t, after.Sub(last).Milliseconds(), int64(60_000))
	for _, end := range []func(*Store) error{(*Store).Kill, (*Store).Close} {
		require.NoError(t, end(s))
		s = mustOpen(t, s.cfg)
		assert.False(t, put(t, s, "T", 0, "z").StoreTime.Before(after), "not even after a restart")
	}
}
