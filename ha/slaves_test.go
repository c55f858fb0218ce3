package ha

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorder keeps what happened.
type recorder struct {
	mu     sync.Mutex // guards what follows
	events []Event
	asked  []Change
	told   int64
}

func (r *recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// eventsOf are those of a type, oldest first.
func eventsOf[E Event](r *recorder) []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []E
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

// lastOf is the last event of a type, or the zero value.
func lastOf[E Event](r *recorder) (last E) {
	if all := eventsOf[E](r); len(all) > 0 {
		last = all[len(all)-1]
	}
	return last
}

// testMaster is a master of a memLog.
type testMaster struct {
	*Slaves
	rec  recorder
	log  *memLog
	net  *testNet
	end  context.CancelFunc
	done chan error
}

func startMaster(t testing.TB, l *memLog, n *testNet, epoch int64, change func(*SlavesConfig)) *testMaster {
	m := &testMaster{log: l, net: n, done: make(chan error, 1)}
	l.beginEpoch(epoch)
	cfg := SlavesConfig{
		Cluster: "c", Group: "g", Log: l,
		InSync:      InSyncConfig{ID: 0, Epoch: epoch, End: l.end(), MaxLag: 15 * time.Second},
		OnEvent:     m.rec.add,
		OnConfirmed: func(p int64) { m.rec.mu.Lock(); m.rec.told = p; m.rec.mu.Unlock() },
		OnAsk:       func(c Change) { m.rec.mu.Lock(); m.rec.asked = append(m.rec.asked, c); m.rec.mu.Unlock() },
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	m.Slaves, err = NewSlaves(cfg)
	require.NoError(t, err)
	l.mu.Lock()
	l.written = m.Written
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	m.end = cancel
	listener := n.listen()
	go func() { m.done <- m.Serve(ctx, listener) }()
	t.Cleanup(m.stop)
	return m
}

// stop ends the master, once.
func (m *testMaster) stop() {
	m.end()
	m.net.thaw()
	if err, ok := <-m.done; ok {
		close(m.done)
		if err != nil {
			panic(err)
		}
	}
}

// testSlave is a slave with a memLog.
type testSlave struct {
	*Receiver
	rec      recorder
	log      *memLog
	promises *memPromises
	end      context.CancelFunc
	done     chan struct{}
}

func startSlave(t testing.TB, l *memLog, n *testNet, id int64, change func(*ReceiverConfig)) *testSlave {
	s := &testSlave{log: l, promises: &memPromises{}, done: make(chan struct{})}
	cfg := ReceiverConfig{
		Cluster: "c", Group: "g", ID: id, Incarnation: 100 + id, Log: l, Promises: s.promises,
		Dial: n.dial, OnEvent: s.rec.add,
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	s.Receiver, err = NewReceiver(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	go func() { s.Run(ctx); close(s.done) }()
	t.Cleanup(s.stop)
	return s
}

func (s *testSlave) stop() {
	s.end()
	<-s.done
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	if name == "" {
		synctest.Test(t, f)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestASlaveGetsAllThatIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, nil)
		m.log.writeMany(0, 1000)
		slaves := []*testSlave{startSlave(t, newMemLog(), n, 1, nil), startSlave(t, newMemLog(), n, 2, nil)}
		synctest.Wait()
		begun := time.Now()
		m.log.writeMany(0, 1000)
		synctest.Wait()
		m.log.write(0, 1<<20, 5, 100_000)
		synctest.Wait()
		for _, s := range slaves {
			requireSame(t, m.log, s.log)
			assert.Equal(t, []MasterConnected{{ID: 0, Addr: "master", Epoch: 0, Position: 0}}, eventsOf[MasterConnected](&s.rec))
		}
		assert.Zero(t, time.Since(begun), "nothing waits for a timer")
		assert.Len(t, eventsOf[SlaveConnected](&m.rec), 2)
	})
}

// A connection that has nothing to say says so every 5 s, on both sides, and lives.
func TestIdleConnectionsLiveByHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, nil)
		s := startSlave(t, newMemLog(), n, 1, nil)
		time.Sleep(time.Hour)
		assert.True(t, s.Status().Connected)
		assert.Len(t, eventsOf[SlaveConnected](&m.rec), 1)
		assert.Empty(t, eventsOf[SlaveDisconnected](&m.rec))
	})
}

// A network that takes everything and delivers nothing is noticed by both sides, after
// the housekeeping time without bytes.
func TestASilentPeerIsGivenUp(t *testing.T) {
	for _, both := range []bool{true, false} {
		bubble(t, fmt.Sprintf("both ways %v", both), func(t *testing.T) {
			n := newTestNet(t)
			m := startMaster(t, newMemLog(), n, 0, nil)
			s := startSlave(t, newMemLog(), n, 1, nil)
			synctest.Wait()
			n.freeze(both)
			begun := time.Now()
			for s.Status().Connected {
				time.Sleep(time.Second)
			}
			assert.LessOrEqual(t, time.Since(begun), 21*time.Second, "the slave")
			assert.GreaterOrEqual(t, time.Since(begun), 20*time.Second, "the slave")
			assert.ErrorIs(t, s.Status().Err, ErrSilent)
			time.Sleep(time.Second)
			gone := lastOf[SlaveDisconnected](&m.rec)
			assert.EqualValues(t, 1, gone.ID)
			assert.Error(t, gone.Err)
			if both {
				assert.ErrorIs(t, gone.Err, ErrSilent)
			}
			m.log.writeMany(0, 10)
			n.thaw()
			time.Sleep(30 * time.Second)
			requireSame(t, m.log, s.log)
		})
	}
}

// Two connections of one slave are one replica: the newer one counts.
func TestANewerConnectionReplacesTheOlderOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, func(c *SlavesConfig) {
			c.InSync.Acks, c.InSync.InSyncReplicas = AckCount, 3
		})
		first := startSlave(t, newMemLog(), n, 1, nil)
		synctest.Wait()
		second := startSlave(t, newMemLog(), n, 1, func(c *ReceiverConfig) { c.Incarnation = 9 })
		synctest.Wait()
		assert.ErrorIs(t, first.Status().Err, ErrStaleConnection)
		assert.Contains(t, first.Status().Err.Error(), "replica 1 connects from slave:2")
		assert.True(t, second.Status().Connected)
		require.Len(t, m.Status().Slaves, 1)
		assert.Equal(t, "slave:2", m.Status().Slaves[0].Addr)
		p := m.log.writeMany(0, 1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, m.Wait(ctx, p), ErrNotAcknowledged, "the master and one slave, however often it connects")
		first.stop()
		synctest.Wait()
		assert.Len(t, m.Status().Slaves, 1)
	})
}

func TestWaitEndsWithTheAcksItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, func(c *SlavesConfig) {
			c.InSync.Acks, c.InSync.InSyncReplicas, c.InSync.MinInSync = AckCount, 2, 1
		})
		assert.ErrorIs(t, m.MayAppend(), ErrTooFewReplicas)
		s := startSlave(t, newMemLog(), n, 1, nil)
		synctest.Wait()
		assert.NoError(t, m.MayAppend())
		wait := func(p int64, within time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			return m.Wait(ctx, p)
		}
		n.set(func(n *testNet) { n.delay = 20 * time.Millisecond })
		begun := time.Now()
		p := m.log.writeMany(0, 3)
		assert.NoError(t, wait(p, time.Second))
		assert.Equal(t, 40*time.Millisecond, time.Since(begun), "there and back")
		assert.NoError(t, wait(p, 0), "it is known")

		var all sync.WaitGroup
		for p := range int64(50) { // answered in whatever order they were asked
			all.Go(func() { assert.NoError(t, wait(53-p, time.Second)) })
		}
		synctest.Wait()
		m.log.writeMany(0, 50)
		all.Wait()

		s.log.set(time.Minute, nil)
		p = m.log.writeMany(0, 1)
		begun = time.Now()
		err := wait(p, 3*time.Second)
		assert.ErrorIs(t, err, ErrNotAcknowledged)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(begun))

		done := make(chan error, 1)
		go func() { done <- wait(p+1000, time.Hour) }()
		synctest.Wait()
		s.stop()
		m.stop()
		assert.ErrorIs(t, <-done, ErrStopped)
		assert.ErrorIs(t, wait(p, time.Hour), ErrStopped)
		assert.ErrorIs(t, m.MayAppend(), ErrStopped)
	})
}

// With SyncFlush the master's own part counts when it is on its disk.
func TestTheMasterCountsWhenItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, func(c *SlavesConfig) {
			c.SyncFlush, c.InSync.Acks, c.InSync.InSyncReplicas = true, AckCount, 2
		})
		startSlave(t, newMemLog(), n, 1, nil)
		synctest.Wait()
		p := m.log.writeMany(0, 1)
		done := make(chan error, 1)
		go func() { done <- m.Wait(context.Background(), p) }()
		synctest.Wait()
		assert.Empty(t, done)
		m.Durable(p)
		assert.NoError(t, <-done)
	})
}

// What is confirmed goes with the next records; without any, it is sent a moment later.
func TestASlaveLearnsWhatIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 1, func(c *SlavesConfig) {
			c.InSync.Acks, c.InSync.MinInSync = AckAll, 1
		})
		s := startSlave(t, newMemLog(), n, 1, nil)
		time.Sleep(time.Second)
		p := m.log.writeMany(1, 5)
		synctest.Wait()
		assert.Equal(t, p, m.Confirmed())
		assert.Less(t, s.log.Confirmed(), p)
		time.Sleep(DefaultConfirmDelay)
		synctest.Wait()
		assert.Equal(t, p, s.log.Confirmed())
		m.rec.mu.Lock()
		assert.Equal(t, p, m.rec.told)
		m.rec.mu.Unlock()

		n.set(func(n *testNet) { n.delay = time.Second }) // the ack comes long after
		p = m.log.writeMany(1, 5)
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		assert.Equal(t, p, s.log.Confirmed(), "not at the next heartbeat only")
	})
}

// The set changes by asking the controller, one change at a time, each asked for once.
func TestTheControllerIsAskedForTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 1, func(c *SlavesConfig) {
			c.InSync.Acks, c.InSync.MinInSync, c.InSync.Controlled = AckAll, 1, true
		})
		s := startSlave(t, newMemLog(), n, 1, nil)
		time.Sleep(time.Minute)
		m.rec.mu.Lock()
		require.Len(t, m.rec.asked, 1)
		change := m.rec.asked[0]
		m.rec.mu.Unlock()
		assert.Equal(t, Change{Base: 0, Set: []Member{{ID: 0}, {ID: 1, Incarnation: 101}}}, change)
		asked, ok := m.Asked()
		assert.True(t, ok)
		assert.Equal(t, change, asked)
		m.Stored(change.Set, 1)
		_, ok = m.Asked()
		assert.False(t, ok)
		assert.Equal(t, change.Set, m.Status().Set)

		s.log.set(time.Hour, nil) // it lags, alive or not
		m.log.writeMany(1, 1)
		time.Sleep(time.Minute)
		m.rec.mu.Lock()
		require.Len(t, m.rec.asked, 2)
		assert.Equal(t, Change{Base: 1, Set: []Member{{ID: 0}}}, m.rec.asked[1])
		m.rec.mu.Unlock()
		m.Refused(1)
		synctest.Wait()
		asked, ok = m.Asked()
		assert.True(t, ok, "what is stored, with a higher version")
		m.Stored(asked.Set, 2)
		m.stop()
	})
}

func TestStatusTellsHowFarEachSlaveIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, nil)
		s := startSlave(t, newMemLog(), n, 3, nil)
		since := time.Now()
		m.log.writeMany(0, 10)
		time.Sleep(10 * time.Second)
		s.log.set(15*time.Second, nil)
		for range 4 {
			m.log.write(0, 100)
			time.Sleep(time.Second)
		}
		st := m.Status()
		assert.EqualValues(t, 14, st.End)
		require.Len(t, st.Slaves, 1)
		assert.Equal(t, SlaveStatus{
			ID: 3, Incarnation: 103, Addr: "slave:1", Connected: true, Since: since,
			Sent: 13, Acked: 10, Lacks: 11, LagRecords: 4, LagBytes: 400, Lag: 4 * time.Second, InSync: true,
			SentRecords: 12, SentBytes: st.Slaves[0].SentBytes, BytesPerSecond: st.Slaves[0].BytesPerSecond,
		}, st.Slaves[0])
		assert.Greater(t, st.Slaves[0].SentBytes, int64(200))
		assert.InDelta(t, 100, st.Slaves[0].BytesPerSecond, 60)
		own := s.Status()
		assert.Equal(t, ReceiverStatus{
			Connected: true, Addr: "master", Since: since, Position: 10, MasterEnd: 10, Confirmed: 10,
			BytesPerSecond: own.BytesPerSecond,
		}, own)
		time.Sleep(time.Minute)
		assert.Zero(t, m.Status().Slaves[0].Lag)
		time.Sleep(2 * time.Second)
		assert.Zero(t, m.Status().Slaves[0].BytesPerSecond)
		assert.EqualValues(t, 14, s.Status().MasterEnd)
	})
}

// A crash says nothing, and waits for nobody.
func TestAnEndWithACauseBreaksOff(t *testing.T) {
	for _, crash := range []bool{false, true} {
		bubble(t, fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			n := newTestNet(t)
			l := newMemLog()
			s, err := NewSlaves(SlavesConfig{Cluster: "c", Group: "g", Log: l})
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(context.Background())
			served := make(chan error, 1)
			listener := n.listen()
			go func() { served <- s.Serve(ctx, listener) }()
			slave := startSlave(t, newMemLog(), n, 1, nil)
			synctest.Wait()
			require.True(t, slave.Status().Connected)
			begun := time.Now()
			if crash {
				cancel(assert.AnError)
			} else {
				cancel(nil)
			}
			assert.NoError(t, <-served)
			synctest.Wait()
			assert.Equal(t, !crash, errors.Is(slave.Status().Err, ErrStopped))
			if crash {
				assert.Zero(t, time.Since(begun))
			}
			assert.Error(t, slave.Status().Err)
		})
	}
}

func TestConfigsNameAllThatIsWrongWithThem(t *testing.T) {
	_, err := NewSlaves(SlavesConfig{
		InSync: InSyncConfig{ID: -1, Epoch: -1}, Group: string(make([]byte, 300)), Heartbeat: -1, Housekeeping: -2,
		ConfirmDelay: -1, TransferBytes: -1, MaxFrameBytes: -2,
	})
	for _, word := range []string{"300", "id", "epoch", "Log", "Heartbeat and ConfirmDelay", "Housekeeping", "TransferBytes", "MaxFrameBytes"} {
		assert.ErrorContains(t, err, word)
	}
	_, err = NewReceiver(ReceiverConfig{ID: -1, Group: string(make([]byte, 300)), Heartbeat: -1, Housekeeping: -2, Redial: -1, MaxFrameBytes: -2})
	for _, word := range []string{"300", "id", "Dial", "Heartbeat and Redial", "Housekeeping", "MaxFrameBytes"} {
		assert.ErrorContains(t, err, word)
	}
}

// A listener that fails ends the master's part; one that fails for a moment does not.
func TestServeEndsWithItsListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		l := newMemLog()
		l.beginEpoch(0)
		s, err := NewSlaves(SlavesConfig{Log: l})
		require.NoError(t, err)
		broken := &brokenListener{Listener: n.listen(), errs: []error{temporary{}, temporary{}, net.ErrClosed}}
		begun := time.Now()
		err = s.Serve(context.Background(), broken)
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.ErrorContains(t, err, "master")
		assert.Equal(t, 15*time.Millisecond, time.Since(begun))
		assert.ErrorIs(t, s.Wait(context.Background(), 1), ErrStopped)
	})
}

type temporary struct{}

func (temporary) Temporary() bool { return true }
func (temporary) Error() string   { return "too many open files" }

type brokenListener struct {
	net.Listener
	errs []error
}

func (l *brokenListener) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}
