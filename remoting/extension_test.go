package remoting

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheFirstRequestOfAConnectionNamesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipenet.New()
		ln, err := n.Listen(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		tr := NewTransport("127.0.0.1", n)
		conns := make(chan *client, 1)
		go func() {
			for _, node := range []string{"broker-a/0", "", strings.Repeat("x", maxNode+1)} {
				conn, err := tr.dial(t.Context(), protocol.Dial{Node: node, Addr: ln.Addr().String()})
				assert.NoError(t, err)
				conns <- conn
			}
		}()
		for _, node := range []string{"broker-a/0", "", ""} {
			server, err := ln.Accept()
			require.NoError(t, err)
			conn := <-conns
			go func() {
				for range 3 {
					_, _ = brokerClient{conn}.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Oneway: true})
				}
			}()
			for i := range 3 {
				f, err := Read(server)
				require.NoError(t, err)
				name, told := f.Ext.Get(fieldNode)
				assert.Equal(t, i == 0 && node != "", told)
				if told {
					assert.Equal(t, node, name)
				}
				_, told = f.Ext.Get(fieldLeft)
				assert.False(t, told, "nobody waits for the answer to a oneway request")
			}
			require.NoError(t, errors.Join(server.Close(), conn.Close()))
		}
		require.NoError(t, ln.Close())
	})
}

func TestWhatAFrameCannotHoldDoesNotCostTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{}, nil)
		_, err := p.conn.SendMessage(t.Context(), &protocol.SendMessageRequest{Body: make([]byte, MaxFrame)})
		require.ErrorIs(t, err, protocol.ErrMessageTooLarge)
		_, err = p.conn.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
		require.NoError(t, err)
		assert.Equal(t, "client", p.broker.session.Node)
		p.close(t)
	})
}

func TestAHandlersCtxEndsWhenItsCallerHasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited time.Duration
		p := newPair(t, &fakeBroker{maximum: func(ctx context.Context, _ *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			start := time.Now()
			<-ctx.Done()
			waited = time.Since(start)
			return nil, ctx.Err()
		}}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 1234567*time.Microsecond)
		defer cancel()
		_, err := p.conn.GetMaxOffset(ctx, &protocol.GetMaxOffsetRequest{Topic: "T"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 1235*time.Millisecond, waited, "never before its caller")
		p.close(t)
	})
}

func TestWhatWaitedTooLongIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		release := make(chan struct{})
		lis, raw := limited(t, &fakeBroker{maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			served++
			<-release
			return &protocol.GetMaxOffsetResponse{}, nil
		}}, func(l *limits) { l.ownServed, l.served = 0, 1 })
		conn := raw()
		f := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
		f.putLeft(time.Second)
		write(t, conn, manyOf(f, 2)...) // the second one has been read, and waits for a place
		time.Sleep(time.Second)
		close(release)
		_, err := Read(conn)
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, 1, served)
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
	})
}

func TestTimesThatNobodyCouldMeanAreNone(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "x": 0, "-5": 0, "0": 0, "1": time.Millisecond, "9223372036854775807": duration(1 << 62)} {
		left, ok := (&Frame{Ext: Fields{{fieldLeft, text}}}).left()
		assert.Equal(t, want > 0, ok, text)
		assert.Equal(t, want, left, text)
	}
	var f Frame
	f.putLeft(-time.Second)
	left, ok := f.left()
	assert.True(t, ok)
	assert.Equal(t, time.Millisecond, left)
}

func TestAStrangerThatSaysNothingIsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, closed := 0, 0
		b := &fakeBroker{close: func() { closed++ }}
		b.r = &recorder{}
		n := pipenet.New()
		ln, err := n.Listen(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		lis := serve(ln, ln.Addr().String(), site{broker: "broker-a"}, brokerRows(), func(s protocol.Session) protocol.BrokerConn {
			opened++
			return b.Connect(s)
		}, newSecurity(Options{}), defaultLimits())
		conn, err := n.Dial(t.Context(), ln.Addr().String())
		require.NoError(t, err)
		write(t, conn, &Frame{Code: 4711})
		_, err = Read(conn)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		synctest.Wait()
		assert.Zero(t, opened)
		conn, err = n.Dial(t.Context(), ln.Addr().String())
		require.NoError(t, err)
		write(t, conn, manyOf(getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T"}), 2)...)
		for range 2 {
			_, err = Read(conn)
			require.NoError(t, err)
		}
		require.NoError(t, conn.Close())
		synctest.Wait()
		assert.Equal(t, []int{1, 1}, []int{opened, closed})
		require.NoError(t, lis.Close())
	})
}
