package remoting

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/protocol"
)

// overLoopback is a broker on real sockets and a client of it.
func overLoopback(t *testing.T, b *fakeBroker) (lis protocol.Listener, conn protocol.BrokerConn) {
	t.Helper()
	b.r = &recorder{}
	tr := NewTransport("127.0.0.1", TCP{})
	lis, err := tr.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	conn, err = tr.DialBroker(t.Context(), protocol.Dial{Node: "c", Addr: lis.Addr()})
	require.NoError(t, err)
	return lis, conn
}

// A connection that is closed with an answer unread is reset, and the system throws
// away what it has not sent.
func TestWhatIsSentOnewayBeforeAClientClosesArrivesAlsoWhileAnAnswerIsDue(t *testing.T) {
	const many, rounds = 60, 5
	for range rounds {
		served := make(chan struct{}, many)
		asked, closed := make(chan struct{}), make(chan struct{})
		lis, conn := overLoopback(t, &fakeBroker{
			send: func(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
				served <- struct{}{}
				return &protocol.SendMessageResponse{}, nil
			},
			maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
				close(asked)
				<-closed // it is answered when the client is about to go
				return &protocol.GetMaxOffsetResponse{}, nil
			},
		})
		var call sync.WaitGroup
		call.Go(func() { _, _ = conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"}) }) // it may fail
		<-asked
		body := make([]byte, 32<<10)
		for range many {
			_, err := conn.SendMessage(t.Context(), &protocol.SendMessageRequest{Topic: "T", Body: body, Oneway: true})
			require.NoError(t, err)
		}
		close(closed)
		require.NoError(t, conn.Close())
		call.Wait()
		for n := range many {
			select {
			case <-served:
			case <-time.After(10 * time.Second):
				require.FailNow(t, "some are lost", "%d of %d came", n, many)
			}
		}
		require.NoError(t, lis.Close())
	}
}

func TestDrainedSessionsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, begun := make(chan struct{}), make(chan struct{})
		lis, raw := limited(t, &fakeBroker{send: func(ctx context.Context, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			close(begun)
			<-release
			return &protocol.SendMessageResponse{QueueOffset: 7}, ctx.Err()
		}}, func(*limits) {})
		conn, silent := raw(), raw()
		synctest.Wait()
		write(t, conn, sendMessage().request(&protocol.SendMessageRequest{Topic: "T"}))
		<-begun
		var drained atomic.Bool
		go func() {
			lis.Drain(t.Context())
			drained.Store(true)
		}()
		synctest.Wait()
		assert.False(t, drained.Load())
		close(release)
		synctest.Wait()
		assert.False(t, drained.Load(), "the answer has not left: nobody has read it")
		f, err := Read(conn)
		require.NoError(t, err)
		r, err := sendMessage().read(f)
		require.NoError(t, err)
		assert.EqualValues(t, 7, r.QueueOffset)
		synctest.Wait()
		assert.True(t, drained.Load())
		assert.Empty(t, lis.openSessions(), "nor does one that says nothing stay")
		require.NoError(t, errors.Join(conn.Close(), silent.Close(), lis.Close()))
	})
}

func TestDrainingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis, raw := limited(t, &fakeBroker{send: func(ctx context.Context, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, func(*limits) {})
		conn := raw()
		write(t, conn, sendMessage().request(&protocol.SendMessageRequest{Topic: "T"}))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		go func() { // what hangs ends with Close
			lis.Drain(ctx)
			assert.Equal(t, 5*time.Second, time.Since(start))
		}()
		time.Sleep(6 * time.Second)
		require.NoError(t, errors.Join(lis.Close(), conn.Close()))
	})
}

func TestAnswersOfClientsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		release := make(chan struct{})
		large := []byte(`"` + strings.Repeat("x", maxBodyText) + `"`)
		ask := func(peer protocol.Peer) error {
			_, err := peer.GetConsumerRunningInfo(t.Context(), &protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "id"})
			return err
		}
		b := &fakeBroker{}
		lis, raw := limited(t, b, func(l *limits) { l.asks = 2 })
		conn := raw()
		c := newClient(conn, "broker", "", fakePeer{info: func(context.Context) (*protocol.GetConsumerRunningInfoResponse, error) {
			asked.Add(1)
			<-release
			return &protocol.GetConsumerRunningInfoResponse{Verbatim: large}, nil
		}})
		_, err := brokerClient{c}.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
		require.NoError(t, err)
		answers := make(chan error, 3)
		for range 3 {
			go func() { answers <- ask(b.session.Peer) }()
		}
		synctest.Wait()
		assert.EqualValues(t, 2, asked.Load(), "the third waits")
		close(release)
		for range 3 {
			require.ErrorContains(t, <-answers, "larger than the 1048576 bytes that are allowed")
		}
		assert.EqualValues(t, 3, asked.Load())
		require.NoError(t, errors.Join(c.Close(), lis.Close()))
	})
}

// hungUp is a client's connection whose other side says something and is gone: a
// write fails, and what was said is read after that. It does not say more, or that
// it is over, until it is closed or nobody waits any longer.
type hungUp struct {
	net.Conn
	writes int
	failed chan struct{} // closed by the second write
}

func (c *hungUp) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 1 {
		return c.Conn.Write(b)
	}
	close(c.failed)
	return 0, syscall.EPIPE
}

func (c *hungUp) Read(b []byte) (int, error) {
	<-c.failed
	return c.Conn.Read(b)
}

// pipe is a connection of a pipenet.Network.
func pipe(t *testing.T) (near, far net.Conn) {
	t.Helper()
	n := pipenet.New()
	ln, err := n.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	var dial sync.WaitGroup
	dial.Go(func() {
		near, err = n.Dial(t.Context(), ln.Addr().String())
		assert.NoError(t, err)
	})
	far, accepted := ln.Accept()
	dial.Wait()
	require.NoError(t, errors.Join(accepted, ln.Close()))
	return near, far
}

func TestAnswersThatCameBeforeAWriteFailsCount(t *testing.T) {
	for name, goodbye := range map[string]bool{"the end is seen": true, "the end is not seen": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pipe(t)
				c := brokerClient{newClient(&hungUp{Conn: near, failed: make(chan struct{})}, "broker", "", nil)}
				var calls sync.WaitGroup
				calls.Go(func() {
					got, err := c.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
					if assert.NoError(t, err) {
						assert.EqualValues(t, 7, got.Offset)
					}
				})
				asked, err := Read(far)
				require.NoError(t, err)
				answer := answerTo(asked)
				getMaxOffset().encodeResponse(site{}, &protocol.GetMaxOffsetRequest{}, &protocol.GetMaxOffsetResponse{Offset: 7}, answer)
				said, err := answer.Append(nil)
				require.NoError(t, err)
				calls.Go(func() {
					_, err := far.Write(said)
					assert.NoError(t, err)
					if goodbye {
						assert.NoError(t, far.Close())
					}
				})
				synctest.Wait()
				start := time.Now()
				_, err = c.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
				require.ErrorIs(t, err, protocol.ErrUnknownOutcome)
				if goodbye {
					assert.Zero(t, time.Since(start))
				} else {
					assert.Equal(t, unheardLimit, time.Since(start))
				}
				calls.Wait()
				assert.False(t, c.Alive())
				require.NoError(t, c.Close())
				if !goodbye {
					require.NoError(t, far.Close())
				}
			})
		})
	}
}

func TestNothingIsAskedOfASideThatTakesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		c := brokerClient{newClient(&hungUp{Conn: near, writes: 1, failed: make(chan struct{})}, "broker", "", nil)}
		go func() {
			_, err := c.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
			assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
		}()
		synctest.Wait()
		assert.False(t, c.Alive())
		_, err := c.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		require.NoError(t, errors.Join(c.Close(), far.Close()))
	})
}
