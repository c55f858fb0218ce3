package memnet

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

const lost = "connection to broker-a/0 (127.1.0.1:10911) lost"

// FT-05: losing the connection wakes the waiting caller at once.
func TestFT05_LossWakesTheWaitingCaller(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(w *world)
		left bool // the session can still be dialled anew
	}{
		{"Cut", func(w *world) { w.Cut("c", "broker-a/0") }, false},
		{"Listener.Close", func(w *world) { _ = w.listener.Close() }, false},
		{"conn.Close", func(w *world) { _ = w.conn.Close() }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.broker.send = hold
				alive := w.conn.(interface{ Alive() bool }).Alive
				assert.True(t, alive())
				time.AfterFunc(50*time.Millisecond, func() { c.end(w) })
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start := time.Now()
				_, err := send(ctx, w.conn, "m")
				assert.Equal(t, 50*time.Millisecond, time.Since(start))
				assert.EqualError(t, err, lost)
				assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
				assert.NotErrorIs(t, err, protocol.ErrUnreachable)
				assert.False(t, isContextError(err))
				assert.False(t, alive())
				synctest.Wait()
				assert.Equal(t, []int{1}, w.broker.closes())
				assert.Empty(t, w.sessions)

				_, err = send(ctx, w.conn, "m")
				assert.ErrorIs(t, err, protocol.ErrUnreachable)
				assert.NotErrorIs(t, err, protocol.ErrUnknownOutcome)
				assert.EqualError(t, err, "connection to broker-a/0 (127.1.0.1:10911) is closed; dial again")
				_, err = w.conn.SendMessage(ctx, &protocol.SendMessageRequest{Oneway: true})
				assert.ErrorIs(t, err, protocol.ErrUnreachable, "oneway")
				assert.Equal(t, []string{"m"}, w.broker.handled())
				_, err = w.dial(ctx)
				assert.Equal(t, c.left, err == nil)
			})
		})
	}
}

func TestServerSideIsClosedExactlyOnce(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, w.conn.Close()) })
		wg.Go(func() { w.Cut("c", "*") })
		wg.Go(func() { assert.NoError(t, w.listener.Close()) })
	}
	wg.Wait()
	assert.Equal(t, []int{1}, w.broker.closes())
}

func TestListenerCloseWaitsForTheLastHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.broker.send = func(ctx context.Context, _ protocol.Session, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // a write that cannot be cancelled
			return sent, nil
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := send(t.Context(), w.conn, "m")
			assert.EqualError(t, err, lost)
		})
		synctest.Wait()
		for range 2 { // a second Close waits as well
			wg.Go(func() {
				assert.NoError(t, w.listener.Close())
				assert.Equal(t, time.Second, time.Since(start))
			})
		}
		wg.Wait()
		require.NoError(t, w.listener.Close())
		assert.Empty(t, w.listener.(*listener).sessions)
	})
}

// Also a handler whose session was cut before counts.
func TestListenerCloseWaitsForHandlersOfDeadSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.broker.send = func(context.Context, protocol.Session, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			time.Sleep(time.Second)
			return sent, nil
		}
		start := time.Now()
		go func() { _, _ = send(t.Context(), w.conn, "m") }()
		synctest.Wait()
		require.NoError(t, w.conn.Close())
		require.NoError(t, w.listener.Close())
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestRestartedServerIsReachedByNewSessionsOnly(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.listener.Close())
	_, err := w.dial(t.Context())
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	w.listen(t)
	_, err = send(t.Context(), w.conn, "old")
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	c, err := w.dial(t.Context())
	require.NoError(t, err)
	_, err = send(t.Context(), c, "new")
	assert.NoError(t, err)
	assert.Equal(t, []string{"new"}, w.broker.handled())
}

func TestCutSessionStaysDeadAfterHeal(t *testing.T) {
	w := newWorld(t)
	w.Cut("c", "broker-a/0")
	w.Heal("c", "broker-a/0")
	_, err := send(t.Context(), w.conn, "m")
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	_, err = w.dial(t.Context())
	assert.NoError(t, err)
}

// A silent link hides that the server is gone until it is healed.
func TestSilenceHidesTheEndOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.broker.send = hold
		start := time.Now()
		inFlight := make(chan error, 1)
		call := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := send(ctx, w.conn, "m")
			return err
		}
		go func() { inFlight <- call(3 * time.Second) }()
		synctest.Wait()
		w.Drop("c", "broker-a/0")
		require.NoError(t, w.listener.Close())
		assert.Equal(t, []int{1}, w.broker.closes())
		err := <-inFlight
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(start))
		assert.ErrorIs(t, call(time.Second), context.DeadlineExceeded)
		_, err = w.conn.SendMessage(t.Context(), &protocol.SendMessageRequest{Oneway: true})
		assert.NoError(t, err)

		// One way only: requests arrive where nobody is, and nobody says so.
		w.CutOneWay("broker-a/0", "*")
		w.Heal("c", "broker-a/0")
		assert.ErrorIs(t, call(time.Second), context.DeadlineExceeded)

		// A call that waits learns of the end as soon as it can be heard.
		start = time.Now()
		time.AfterFunc(time.Second, w.HealAll)
		assert.EqualError(t, call(time.Minute), lost)
		assert.Equal(t, time.Second, time.Since(start))
		assert.ErrorIs(t, call(time.Second), protocol.ErrUnreachable)
		assert.Empty(t, w.sessions)
	})
}

// The server of a silent client keeps the session, as after a power cut.
func TestSilenceHidesTheEndOfTheClient(t *testing.T) {
	for _, heal := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.broker.send = hold
			inFlight := make(chan error, 1)
			go func() {
				_, err := send(t.Context(), w.conn, "m")
				inFlight <- err
			}()
			synctest.Wait()
			w.CutOneWay("c", "broker-a/0")
			require.NoError(t, w.conn.Close())
			assert.EqualError(t, <-inFlight, lost, "its own calls end all the same")
			assert.Equal(t, []int{0}, w.broker.closes())
			w.broker.session(0).Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "g"})
			assert.Empty(t, w.peer.told())
			if heal {
				w.HealAll()
			} else {
				require.NoError(t, w.listener.Close())
			}
			assert.Equal(t, []int{1}, w.broker.closes())
			assert.Empty(t, w.sessions)
		})
	}
}

// A server that goes away with all its sessions tells nobody about anybody.
func TestNoNoticesFromAServerThatCloses(t *testing.T) {
	n := New()
	b := &gossip{fakeBroker: &fakeBroker{}}
	l, err := n.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	p := &fakePeer{}
	var last protocol.BrokerConn
	for range 3 {
		last, err = n.DialBroker(t.Context(), protocol.Dial{Node: "c", Addr: l.Addr(), Peer: p})
		require.NoError(t, err)
	}
	require.NoError(t, last.Close())
	assert.Len(t, p.told(), 2, "the others are told of one that leaves")
	require.NoError(t, l.Close())
	assert.Len(t, p.told(), 2)
}

// gossip tells every session of every session that closes.
type gossip struct{ *fakeBroker }

type gossipConn struct {
	protocol.BrokerConn
	b *gossip
}

func (b *gossip) Connect(s protocol.Session) protocol.BrokerConn {
	return &gossipConn{b.fakeBroker.Connect(s), b}
}

func (c *gossipConn) Close() error {
	err := c.BrokerConn.Close()
	c.b.mu.Lock()
	sessions := append([]protocol.Session(nil), c.b.sessions...)
	c.b.mu.Unlock()
	for _, s := range sessions {
		s.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "g"})
	}
	return err
}

func TestWhatIsDelayedIsDroppedAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Delay("c", "*", time.Second)
		_, err := w.conn.SendMessage(t.Context(), &protocol.SendMessageRequest{Oneway: true})
		require.NoError(t, err)
		w.broker.session(0).Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "g"})
		require.NoError(t, w.conn.Close())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, w.broker.handled())
		assert.Empty(t, w.peer.told())
	})
}

func TestListenerCloseWaitsForDelayedOnewayHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var ended atomic.Bool
		w.broker.send = func(ctx context.Context, _ protocol.Session, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			<-ctx.Done()
			ended.Store(true)
			return nil, ctx.Err()
		}
		w.Delay("c", "*", time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err := w.conn.SendMessage(ctx, &protocol.SendMessageRequest{Oneway: true})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		assert.False(t, ended.Load(), "the caller's deadline ends the wait for an answer, not the request")
		require.NoError(t, w.listener.Close())
		assert.True(t, ended.Load())
	})
}

// slowConnect tells when it is asked and waits until it may answer.
type slowConnect struct {
	*fakeBroker
	asked, answer chan struct{}
}

func (b *slowConnect) Connect(s protocol.Session) protocol.BrokerConn {
	close(b.asked)
	<-b.answer
	return b.fakeBroker.Connect(s)
}

func TestSessionThatEndsDuringConnectIsClosedAtTheServer(t *testing.T) {
	for _, end := range []func(n *Network, l protocol.Listener){
		func(n *Network, _ protocol.Listener) { n.Cut("c", "*") },
		func(_ *Network, l protocol.Listener) { _ = l.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			b := &slowConnect{&fakeBroker{}, make(chan struct{}), make(chan struct{})}
			l, err := n.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := n.DialBroker(t.Context(), protocol.Dial{Node: "c", Addr: l.Addr()})
				assert.ErrorIs(t, err, protocol.ErrUnreachable)
			})
			<-b.asked
			wg.Go(func() { end(n, l) })
			synctest.Wait()
			close(b.answer)
			wg.Wait()
			assert.Equal(t, []int{1}, b.closes())
			require.NoError(t, l.Close())
			assert.Empty(t, n.sessions)
		})
	}
}

// LK-03: using sessions while links are cut and listeners close.
func TestLK03_UseDuringCutAndClose(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	before := runtime.NumGoroutine()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range rounds {
		useDuringClose(t, rng.IntN(3), rng.IntN(200))
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+1, "goroutines")
}

func useDuringClose(t *testing.T, how, spin int) {
	n := New()
	var running, calls atomic.Int64
	b := &fakeBroker{}
	b.send = func(ctx context.Context, s protocol.Session, r *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
		running.Add(1)
		defer running.Add(-1)
		if len(r.Body) == 1 {
			s.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "g"})
			return sent, nil
		}
		return hold(ctx, s, r)
	}
	l, err := n.ListenBroker(context.Background(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	peer := &fakePeer{}
	for i := range 16 {
		body := []string{"1", "22", "1"}[i%3]
		wg.Go(func() {
			var c protocol.BrokerConn
			for {
				select {
				case <-stop:
					if c != nil {
						_ = c.Close()
					}
					return
				default:
				}
				if c == nil {
					var err error
					if c, err = n.DialBroker(context.Background(), protocol.Dial{Node: "c", Addr: l.Addr(), Peer: peer}); err != nil {
						c = nil
						runtime.Gosched()
						continue
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				_, err := c.SendMessage(ctx, &protocol.SendMessageRequest{Body: []byte(body), Oneway: i%4 == 0})
				cancel()
				calls.Add(1)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					_ = c.Close()
					c = nil
				}
			}
		})
	}
	for calls.Load() < int64(20+spin) {
		runtime.Gosched()
	}
	switch how {
	case 0:
		n.Cut("c", "broker-a/0")
		n.HealAll()
	case 1:
		n.Delay("*", "broker-a/0", 10*time.Microsecond)
		n.Cut("broker-a/0", "*")
	}
	require.NoError(t, l.Close())
	assert.Zero(t, running.Load(), "handlers running after Close")
	after := len(b.handled())
	for range 100 {
		runtime.Gosched()
	}
	assert.Equal(t, after, len(b.handled()), "served after Close")
	close(stop)
	wg.Wait()
	for id, count := range b.closes() {
		assert.Equal(t, 1, count, "closes of session %d", id)
	}
	assert.Empty(t, n.sessions)
	assert.Empty(t, n.listeners)
}
