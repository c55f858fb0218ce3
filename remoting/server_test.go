package remoting

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limited serves b with limits of the test's own, and returns a dialler.
func limited(t *testing.T, b *fakeBroker, change func(*limits)) (lis *listener[protocol.BrokerConn], raw func() net.Conn) {
	t.Helper()
	if b.r == nil {
		b.r = &recorder{}
	}
	n := pipenet.New()
	ln, err := n.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	lim := defaultLimits()
	change(&lim)
	lis = serve(ln, ln.Addr().String(), site{broker: "broker-a"}, brokerRows(), b.Connect, newSecurity(Options{}), lim)
	return lis, func() net.Conn {
		conn, err := n.Dial(t.Context(), ln.Addr().String())
		require.NoError(t, err)
		return conn
	}
}

// write writes a frame beside the test; whatever becomes of it.
func write(t *testing.T, conn net.Conn, frames ...*Frame) {
	t.Helper()
	var b []byte
	var err error
	for _, f := range frames {
		b, err = f.Append(b)
		require.NoError(t, err)
	}
	go func() { _, _ = conn.Write(b) }()
}

func blocking(running *atomic.Int64) *fakeBroker {
	wait := func(ctx context.Context) error {
		running.Add(1)
		defer running.Add(-1)
		<-ctx.Done()
		return ctx.Err()
	}
	return &fakeBroker{
		pull: func(ctx context.Context, _ *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			return nil, wait(ctx)
		},
		maximum: func(ctx context.Context, _ *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			return nil, wait(ctx)
		},
	}
}

func manyOf(f *Frame, n int) (frames []*Frame) {
	for i := range n {
		own := *f
		own.Opaque = int32(i)
		frames = append(frames, &own)
	}
	return frames
}

func TestPullsBeyondTheBoundsAreRefusedAsBusy(t *testing.T) {
	pull := pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"})
	for what, change := range map[string]func(*limits){
		"the connection holds 3 pulls": func(l *limits) { l.connHeld = 3 },
		"the server holds 3 pulls":     func(l *limits) { l.ownHeld, l.held = 0, 3 },
	} {
		synctest.Test(t, func(t *testing.T) {
			var running atomic.Int64
			lis, raw := limited(t, blocking(&running), change)
			conn := raw()
			write(t, conn, manyOf(pull, 5)...)
			for range 2 {
				f, err := Read(conn)
				require.NoError(t, err)
				assert.EqualValues(t, protocol.SystemBusy, f.Code)
				assert.Equal(t, "[OVERLOAD] "+what, f.Remark)
			}
			synctest.Wait()
			assert.EqualValues(t, 3, running.Load())
			// Everything else goes on.
			write(t, conn, getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T"}))
			f, err := Read(conn)
			require.NoError(t, err)
			assert.EqualValues(t, protocol.Success, f.Code)
			require.NoError(t, conn.Close())
			synctest.Wait()
			assert.Zero(t, running.Load(), "a client that is gone holds nothing")
			require.NoError(t, lis.Close())
		})
	}
}

func TestAConnectionWithEnoughToDoIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		lis, raw := limited(t, blocking(&running), func(l *limits) { l.connServed, l.ownServed, l.served = 3, 0, 5 })
		busy := raw()
		request := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
		write(t, busy, manyOf(request, 10)...)
		synctest.Wait()
		assert.EqualValues(t, 3, running.Load())
		second := raw()
		write(t, second, manyOf(request, 10)...)
		synctest.Wait()
		assert.EqualValues(t, 5, running.Load(), "of all connections")
		require.NoError(t, lis.Close())
		assert.Zero(t, running.Load())
		require.NoError(t, errors.Join(busy.Close(), second.Close()))
	})
}

func TestOneConnectionTooManyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis, raw := limited(t, &fakeBroker{}, func(l *limits) { l.conns = 2 })
		first, second := raw(), raw()
		synctest.Wait()
		_, err := raw().Read(make([]byte, 1))
		require.Error(t, err)
		require.NoError(t, first.Close())
		synctest.Wait()
		third := raw()
		write(t, third, getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T"}))
		_, err = Read(third)
		require.NoError(t, err)
		require.NoError(t, errors.Join(lis.Close(), second.Close(), third.Close()))
	})
}

func TestAClientThatNeverReadsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := make([]byte, 2<<20)
		record[1] = 0x20
		arrived := make(chan struct{})
		lis, raw := limited(t, &fakeBroker{pull: func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			<-arrived
			return &protocol.PullMessageResponse{Records: [][]byte{record}}, nil
		}}, func(l *limits) { l.answers = 64 << 20 })
		conn := raw()
		write(t, conn, manyOf(pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}), 100)...)
		synctest.Wait()
		close(arrived) // all are answered at a time
		synctest.Wait()
		require.Empty(t, lis.openSessions(), "its answers were more than may wait")
		require.NoError(t, conn.Close())

		// One that asks for little stays until a write has taken too long.
		conn = raw()
		start := time.Now()
		write(t, conn, manyOf(pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}), 5)...)
		synctest.Wait()
		require.Len(t, lis.openSessions(), 1)
		time.Sleep(idleLimit)
		synctest.Wait()
		require.Empty(t, lis.openSessions())
		assert.Equal(t, idleLimit, time.Since(start))
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
	})
}

// openSessions lists the sessions.
func (l *listener[S]) openSessions() (open []*session[S]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.sessions {
		open = append(open, s)
	}
	return open
}

func TestLargeRequestsShareWhatThereIsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		release := make(chan struct{})
		b := &fakeBroker{send: func(ctx context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			running.Add(1)
			defer running.Add(-1)
			<-release
			return &protocol.SendMessageResponse{QueueOffset: int64(len(q.Body))}, nil
		}}
		lis, raw := limited(t, b, func(l *limits) { l.large = 3 << 20 })
		large := sendMessage().request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.Now(), Body: make([]byte, 1<<20)})
		small := sendMessage().request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.Now(), Body: make([]byte, 1<<10)})
		var conns []net.Conn
		for range 4 {
			conns = append(conns, raw())
			write(t, conns[len(conns)-1], large)
		}
		synctest.Wait()
		assert.EqualValues(t, 2, running.Load(), "a frame is more than its body")
		conns = append(conns, raw())
		write(t, conns[4], small)
		synctest.Wait()
		assert.EqualValues(t, 3, running.Load(), "small ones do not wait for large ones")
		close(release)
		for _, conn := range conns {
			f, err := Read(conn)
			require.NoError(t, err)
			assert.EqualValues(t, protocol.Success, f.Code)
			require.NoError(t, conn.Close())
		}
		// Whoever claims much and sends nothing of it goes after the idle limit.
		start := time.Now()
		var claimers []net.Conn
		for range 4 {
			conn := raw()
			claimers = append(claimers, conn)
			go func() { _, _ = conn.Write([]byte{0, 0xFF, 0xFF, 0xFC}) }()
		}
		for _, conn := range claimers {
			_, err := conn.Read(make([]byte, 1))
			require.Error(t, err)
			require.NoError(t, conn.Close())
		}
		assert.Less(t, time.Since(start), 2*idleLimit+time.Second)
		require.NoError(t, lis.Close())
		require.True(t, lis.large.bytes.TryAcquire(3<<20), "all is given back")
	})
}

// TestWhatAClientSaysLastIsDone: an official Go client marks nothing as oneway,
// and closes the connection behind its last commits and messages without waiting
// for the answers.
func TestWhatAClientSaysLastIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the next two
		var offsets []int64
		atEnd := 0
		var sent atomic.Int64
		b := &fakeBroker{
			commit: func(ctx context.Context, q *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if ctx.Err() == nil {
					offsets = append(offsets, q.Offset)
				}
				return &protocol.UpdateConsumerOffsetResponse{}, ctx.Err()
			},
			send: func(ctx context.Context, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
				time.Sleep(time.Millisecond)
				if ctx.Err() == nil {
					sent.Add(1)
				}
				return &protocol.SendMessageResponse{}, ctx.Err()
			},
		}
		b.close = func() {
			mu.Lock()
			defer mu.Unlock()
			atEnd = len(offsets)
		}
		lis, raw := limited(t, b, func(*limits) {})
		conn := raw()
		var frames []*Frame
		var want []int64
		for i := range int64(100) {
			f := updateConsumerOffset().request(&protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Offset: i})
			f.Opaque = int32(i)
			frames, want = append(frames, f), append(want, i)
		}
		for i := range 20 {
			f := sendMessage().request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.Now(), Body: []byte("x")})
			f.Opaque = int32(1000 + i)
			frames = append(frames, f)
		}
		var all []byte
		var err error
		for _, f := range frames {
			all, err = f.Append(all)
			require.NoError(t, err)
		}
		go func() { // the client of a pipe has to read, or nothing would be read from it
			for {
				if _, err := Read(conn); err != nil {
					return
				}
			}
		}()
		_, err = conn.Write(all)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, want, offsets, "commits, in their order")
		assert.Len(t, want, atEnd, "before the other members of the group are told that this one has left")
		assert.EqualValues(t, 20, sent.Load())
		require.NoError(t, lis.Close())
	})
}

// TestWhatLiesUnreadWhenAClientClosesIsDone: over TCP, where the answers that the
// client has not read make of its close a reset, and of the next answer an error.
func TestWhatLiesUnreadWhenAClientClosesIsDone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems may throw away at a reset what was not read")
	}
	const n = 40 // with their bodies more than is read ahead, and less than what lies in a socket
	served, gate := make(chan int, n), make(chan struct{})
	count := 0
	b := &fakeBroker{
		send: func(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			count++ // one at a time
			served <- count
			if count == 2 {
				<-gate
			}
			return &protocol.SendMessageResponse{}, nil
		},
	}
	b.r = &recorder{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	lim := defaultLimits()
	lim.connServed = 1
	lis := serve(ln, ln.Addr().String(), site{broker: "broker-a"}, brokerRows(), b.Connect, newSecurity(Options{}), lim)
	defer func() { assert.NoError(t, lis.Close()) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	var all []byte
	for _, f := range manyOf(sendMessage().request(&protocol.SendMessageRequest{Topic: "T", Body: make([]byte, 900)}), n) {
		all, err = f.Append(all)
		require.NoError(t, err)
	}
	_, err = conn.Write(all)
	require.NoError(t, err)
	late := time.After(20 * time.Second)
	for want := 1; want <= n; want++ {
		if want == 3 { // the answer to the first one has arrived, and is not read
			_, err := conn.(*net.TCPConn).Read(make([]byte, 1))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			close(gate)
		}
		select {
		case got := <-served:
			require.Equal(t, want, got)
		case <-late:
			require.FailNow(t, "requests that were not served", "%d of %d", n-want+1, n)
		}
	}
}
