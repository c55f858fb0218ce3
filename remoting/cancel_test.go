package remoting

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/internal/deadline"
	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scripted is a client whose server is the test: it reads and writes frames.
type scripted struct {
	t      *testing.T
	conn   *client
	server net.Conn
	sent   chan *Frame // by the client; closed with the connection
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	n := pipenet.New()
	ln, err := n.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	s := &scripted{t: t, sent: make(chan *Frame, 1000)}
	dialled := make(chan struct{})
	go func() {
		defer close(dialled)
		s.conn, err = NewTransport("127.0.0.1", n).dial(t.Context(), protocol.Dial{Node: "client", Addr: ln.Addr().String()})
	}()
	var accepted error
	s.server, accepted = ln.Accept()
	<-dialled
	require.NoError(t, errors.Join(err, accepted))
	require.NoError(t, ln.Close())
	go func() {
		defer close(s.sent)
		for {
			f, err := Read(s.server)
			if err != nil {
				return
			}
			s.sent <- f
		}
	}()
	return s
}

// cancelled makes a call and cancels it, and returns its id.
func (s *scripted) cancelled() int32 {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error)
	go func() {
		_, err := brokerClient{s.conn}.GetMaxOffset(ctx, &protocol.GetMaxOffsetRequest{Topic: "T"})
		done <- err
	}()
	f := <-s.sent
	require.EqualValues(s.t, protocol.CodeGetMaxOffset, f.Code)
	cancel()
	err := <-done
	require.ErrorIs(s.t, err, context.Canceled)
	require.ErrorIs(s.t, err, protocol.ErrUnknownOutcome)
	return f.Opaque
}

// said is what the client has sent until everybody waits.
func (s *scripted) said() (cancels []int32) {
	s.t.Helper()
	synctest.Wait()
	for len(s.sent) > 0 {
		f := <-s.sent
		require.EqualValues(s.t, codeCancel, f.Code)
		require.True(s.t, f.Oneway())
		text, _ := f.Ext.Get(fieldOpaque)
		opaque, err := strconv.Atoi(text)
		require.NoError(s.t, err)
		cancels = append(cancels, int32(opaque))
	}
	return cancels
}

func (s *scripted) close() {
	require.NoError(s.t, errors.Join(s.conn.Close(), s.server.Close()))
}

func TestAServerThatIsNotOursHearsOfNoCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		for range 3 * maxEarly {
			s.cancelled()
			assert.Empty(t, s.said())
		}
		assert.Len(t, s.conn.cancels.early, maxEarly)
		s.close()
	})
}

func TestAServerThatIsOursHearsOfEachCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		early := []int32{s.cancelled(), s.cancelled()}
		assert.Empty(t, s.said(), "it has not said yet that it is ours")
		write(t, s.server, ownCommand(codeOurs))
		assert.Equal(t, early, s.said())
		for range 3 * maxEarly {
			opaque := s.cancelled()
			assert.Equal(t, []int32{opaque}, s.said())
		}
		s.close()
	})
}

// TestStrangersAreToldNothingOfOurs: an official client gets no frame that RocketMQ
// would not send, and cannot cancel.
func TestStrangersAreToldNothingOfOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		lis, raw := limited(t, &fakeBroker{maximum: func(ctx context.Context, _ *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			select {
			case <-ctx.Done():
			case <-released:
			}
			return &protocol.GetMaxOffsetResponse{Offset: 7}, ctx.Err()
		}}, func(*limits) {})
		conn := raw()
		f := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
		f.Opaque = 5
		cancel := ownCommand(codeCancel)
		cancel.Ext = Fields{{fieldOpaque, "5"}}
		asked := *cancel
		asked.Flag, asked.Opaque = 0, 6
		write(t, conn, f, cancel, &asked)
		got, err := Read(conn)
		require.NoError(t, err)
		assert.Equal(t, []int32{6, int32(protocol.RequestCodeNotSupported)}, []int32{got.Opaque, got.Code})
		close(released)
		got, err = Read(conn)
		require.NoError(t, err)
		assert.Equal(t, []int32{5, int32(protocol.Success)}, []int32{got.Opaque, got.Code})
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
	})
}

func TestACancelOfNothingIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends atomic.Int64
		lis, raw := limited(t, &fakeBroker{pull: func(ctx context.Context, _ *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			<-ctx.Done()
			ends.Add(1)
			return nil, ctx.Err()
		}}, func(*limits) {})
		conn := raw()
		pull := pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"})
		pull.Ext = append(pull.Ext, Field{fieldNode, "client"})
		pull.Opaque = 5
		write(t, conn, pull)
		got, err := Read(conn)
		require.NoError(t, err)
		assert.EqualValues(t, codeOurs, got.Code)
		assert.True(t, got.Oneway())
		var cancels []*Frame
		for _, text := range []string{"", "x", "-1", "4", "4294967301", "5", "5"} {
			f := ownCommand(codeCancel)
			f.Ext = Fields{{fieldOpaque, text}}
			cancels = append(cancels, f)
		}
		write(t, conn, append(cancels[:5:5], ownCommand(codeCancel))...)
		synctest.Wait()
		assert.Zero(t, ends.Load())
		write(t, conn, cancels[5:]...)
		synctest.Wait()
		assert.EqualValues(t, 1, ends.Load())
		for s := range lis.sessions {
			assert.Equal(t, new([64]*cancellable), s.serving.lists, "nothing is remembered of what has ended")
		}

		// The same id twice, as no client of ours would: each ends with the connection.
		write(t, conn, pull, pull)
		synctest.Wait()
		require.NoError(t, conn.Close())
		synctest.Wait()
		assert.EqualValues(t, 3, ends.Load())
		require.NoError(t, lis.Close())
	})
}

// TestACommitThatHangsDoesNotKeepWhatComesAfterIt: of a client that does not say how
// long it waits, for as long as official ones wait.
func TestACommitThatHangsDoesNotKeepWhatComesAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis, raw := limited(t, &fakeBroker{commit: func(ctx context.Context, _ *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, func(*limits) {})
		commit := updateConsumerOffset().request(&protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T"})
		hasty := updateConsumerOffset().request(&protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T"})
		hasty.putLeft(time.Second)
		for _, tc := range []struct {
			commit *Frame
			takes  time.Duration
		}{{commit, commitLimit}, {hasty, time.Second}} {
			conn := raw()
			start := time.Now()
			next := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
			next.Opaque = 7
			write(t, conn, tc.commit, next)
			f, err := Read(conn)
			require.NoError(t, err)
			assert.EqualValues(t, 7, f.Opaque, "nobody waits for the first")
			assert.Equal(t, tc.takes, time.Since(start))
			require.NoError(t, conn.Close())
		}
		require.NoError(t, lis.Close())
	})
}

// BenchmarkServing is what it costs a server that a request can be cancelled, while
// others are served, and what a deadline alone costs.
func BenchmarkServing(b *testing.B) {
	until := time.Now().Add(time.Hour)
	b.Run("deadline", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c := new(deadline.Context)
			c.Set(b.Context(), until)
			_ = c.Err()
			c.End()
		}
	})
	b.Run("cancellable", func(b *testing.B) {
		var s serving
		for i := range int32(64) {
			s.begin(b.Context(), -i, until)
		}
		b.ReportAllocs()
		for i := int32(1); b.Loop(); i++ {
			c := s.begin(b.Context(), i, until)
			_ = c.Err()
			s.end(c)
		}
	})
}
