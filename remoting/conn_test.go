package remoting

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

type recordedNames struct{ recordedNameServer }

func (s recordedNames) Connect(protocol.Session) protocol.NameServerConn { return s.recordedNameServer }

// callAll calls every method of a client with the request of its example.
func callAll[S any](t *testing.T, client S) {
	service := reflect.TypeFor[S]()
	for _, e := range examplesOf() {
		prefix, method, _ := strings.Cut(e.name, ".")
		if prefix != service.Name() {
			continue
		}
		out := reflect.ValueOf(client).MethodByName(method).Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(e.q)})
		assert.Nil(t, out[1].Interface(), method)
	}
}

func TestEveryMethodOfAClientReachesTheOneOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{}, nil)
		callAll(t, p.conn)
		p.close(t)
		called := slices.Sorted(slices.Values(p.broker.r.called))
		assert.Equal(t, methodsOf[protocol.BrokerConn](), called)
	})
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		tr := NewTransport("127.0.0.1", pipenet.New())
		lis, err := tr.ListenNameServer(t.Context(), protocol.Listen{Node: "ns-0"}, recordedNames{recordedNameServer{r}})
		require.NoError(t, err)
		conn, err := tr.DialNameServer(t.Context(), protocol.Dial{Addr: lis.Addr()})
		require.NoError(t, err)
		callAll(t, conn)
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
		assert.Equal(t, methodsOf[protocol.NameServerConn](), slices.Sorted(slices.Values(r.called)))
	})
}

func TestCallsAreServedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{
			pull: func(ctx context.Context, q *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				select {
				case <-time.After(q.Suspend):
					return &protocol.PullMessageResponse{Code: protocol.PullNotFound, NextBeginOffset: q.Offset}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
			maximum: func(_ context.Context, q *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
				return &protocol.GetMaxOffsetResponse{Offset: int64(q.QueueID)}, nil
			},
		}, nil)
		defer p.close(t)
		start := time.Now()
		held := make(chan error, 10)
		for i := range 10 {
			go func() {
				r, err := p.conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "G", Topic: "T", Offset: int64(i), Suspend: time.Duration(20-i) * time.Second})
				if err == nil && r.NextBeginOffset != int64(i) {
					err = errors.New("somebody else's answer")
				}
				held <- err
			}()
		}
		synctest.Wait()
		for i := range 100 {
			r, err := p.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T", QueueID: i})
			require.NoError(t, err)
			require.EqualValues(t, i, r.Offset)
		}
		assert.Zero(t, time.Since(start), "nobody waits for what is held")
		for range 10 {
			assert.NoError(t, <-held)
		}
		assert.Equal(t, 20*time.Second, time.Since(start))
	})
}

func TestErrorsWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{
			pull: func(ctx context.Context, _ *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}, nil)
		pull := &protocol.PullMessageRequest{Group: "G", Topic: "T"}

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := p.conn.PullMessage(ctx, pull)
		require.ErrorIs(t, err, protocol.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, "no answer from "+p.lis.Addr()+" within 3s: context deadline exceeded")
		_, err = p.conn.PullMessage(ctx, pull)
		require.ErrorIs(t, err, protocol.ErrUnreachable, "nothing has left")
		assert.NotErrorIs(t, err, protocol.ErrUnknownOutcome)

		_, err = p.conn.SendMessage(t.Context(), &protocol.SendMessageRequest{Body: make([]byte, MaxFrame)})
		assert.ErrorIs(t, err, protocol.ErrMessageTooLarge)
		var refused *protocol.Error
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, protocol.MessageIllegal, refused.Code)
		assert.NotErrorIs(t, err, protocol.ErrUnreachable)

		lost := make(chan error, 1)
		go func() {
			_, err := p.conn.PullMessage(t.Context(), pull)
			lost <- err
		}()
		synctest.Wait()
		require.True(t, p.conn.(brokerClient).Alive())
		start := time.Now()
		require.NoError(t, p.lis.Close())
		err = <-lost
		assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
		assert.EqualError(t, err, "connection to "+p.lis.Addr()+" lost")
		synctest.Wait()
		assert.False(t, p.conn.(brokerClient).Alive())
		_, err = p.conn.PullMessage(t.Context(), pull)
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		_, err = p.t.DialBroker(t.Context(), protocol.Dial{Addr: p.lis.Addr()})
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		_, err = p.t.DialBroker(t.Context(), protocol.Dial{Addr: "nowhere"})
		assert.ErrorIs(t, err, protocol.ErrInvalidConfig)
		_, err = p.t.DialBroker(ctx, protocol.Dial{Addr: p.lis.Addr()})
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, time.Since(start))
		require.NoError(t, p.conn.Close())
		require.NoError(t, p.conn.Close(), "once more")
		require.NoError(t, p.lis.Close(), "once more")
	})
}

func TestWhatComesAfterAOnewayRequestIsServedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var committed atomic.Int64
		p := newPair(t, &fakeBroker{
			commit: func(_ context.Context, q *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
				time.Sleep(time.Second)
				committed.Store(q.Offset)
				return &protocol.UpdateConsumerOffsetResponse{}, nil
			},
			maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
				return &protocol.GetMaxOffsetResponse{Offset: committed.Load()}, nil
			},
		}, nil)
		for i := range int64(10) {
			_, err := p.conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Offset: i, Oneway: true})
			require.NoError(t, err)
			r, err := p.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
			require.NoError(t, err)
			require.Equal(t, i, r.Offset)
		}
		p.close(t)
	})
}

func TestAClientThatLeavesIsGoneAtOnceAndHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		var got []int64
		cancelled := make(chan struct{})
		p := newPair(t, &fakeBroker{
			close: func() { closed.Store(true) },
			commit: func(_ context.Context, q *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
				got = append(got, q.Offset)
				return &protocol.UpdateConsumerOffsetResponse{}, nil
			},
			pull: func(ctx context.Context, _ *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				<-ctx.Done()
				close(cancelled)
				return nil, ctx.Err()
			},
		}, nil)
		lost := make(chan error, 1)
		go func() {
			_, err := p.conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "G", Topic: "T"})
			lost <- err
		}()
		synctest.Wait()
		var want []int64
		for i := range int64(500) {
			r, err := p.conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Offset: i, Oneway: true})
			require.NoError(t, err)
			require.Nil(t, r)
			want = append(want, i)
		}
		start := time.Now()
		require.NoError(t, p.conn.Close())
		assert.ErrorIs(t, <-lost, protocol.ErrUnknownOutcome)
		<-cancelled
		synctest.Wait()
		assert.True(t, closed.Load())
		assert.Zero(t, time.Since(start))
		assert.Equal(t, want, got, "oneway requests in their order, all of them")
		require.NoError(t, p.lis.Close())
	})
}

// fakePeer is a client.
type fakePeer struct {
	protocol.Peer
	notices chan string
	info    func(context.Context) (*protocol.GetConsumerRunningInfoResponse, error)
}

func (p fakePeer) NotifyConsumerIDsChanged(q *protocol.NotifyConsumerIDsChangedRequest) {
	p.notices <- q.Group
}

func (p fakePeer) GetConsumerRunningInfo(ctx context.Context, _ *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return p.info(ctx)
}

func TestServersReachTheirClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakePeer{notices: make(chan string, 10), info: func(context.Context) (*protocol.GetConsumerRunningInfoResponse, error) {
			return &protocol.GetConsumerRunningInfoResponse{Concurrency: 7}, nil
		}}
		p := newPair(t, &fakeBroker{}, client)
		_, err := p.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
		require.NoError(t, err)
		peer := p.broker.session.Peer
		assert.Equal(t, "127.0.0.1", p.broker.session.Remote.Addr().String())
		for _, g := range []string{"G", "H", "I"} {
			peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: g})
		}
		for _, g := range []string{"G", "H", "I"} {
			assert.Equal(t, g, <-client.notices)
		}
		ask := &protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "id"}
		r, err := peer.GetConsumerRunningInfo(t.Context(), ask)
		require.NoError(t, err)
		assert.Equal(t, 7, r.Concurrency)

		require.NoError(t, p.conn.Close())
		synctest.Wait()
		_, err = peer.GetConsumerRunningInfo(t.Context(), ask)
		var e *protocol.Error
		require.ErrorAs(t, err, &e)
		assert.EqualValues(t, protocol.SystemError, e.Code)
		assert.Contains(t, e.Remark, "is not online")
		peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "G"})
		require.NoError(t, p.lis.Close())
	})
	synctest.Test(t, func(t *testing.T) { // a client that wants no calls, and one that does not answer
		p := newPair(t, &fakeBroker{}, nil)
		require.NoError(t, ask(t, p.conn))
		_, err := p.broker.session.Peer.GetConsumerRunningInfo(t.Context(), &protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "id"})
		assert.ErrorIs(t, err, protocol.ErrNotSupported)
		p.close(t)
		p = newPair(t, &fakeBroker{}, fakePeer{info: func(ctx context.Context) (*protocol.GetConsumerRunningInfoResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		require.NoError(t, ask(t, p.conn))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = p.broker.session.Peer.GetConsumerRunningInfo(ctx, &protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "id"})
		assert.Equal(t, context.DeadlineExceeded, err)
		p.close(t)
	})
}

func TestSilentConnectionsEndAfterTheIdleLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{}, nil)
		start := time.Now()
		silent, trickle := p.raw(t), p.raw(t)
		trickled := make(chan struct{})
		go func() { // one byte every 10 s, never a whole frame
			defer close(trickled)
			for _, b := range []byte("\x00\x00\x10\x00\x00\x00\x00\x64{\"code\":") {
				if _, err := trickle.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(10 * time.Second)
			}
		}()
		_, err := silent.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, 120*time.Second, time.Since(start))
		_, err = trickle.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, idleLimit, time.Since(start))
		<-trickled
		p.close(t)
	})
	synctest.Test(t, func(t *testing.T) { // traffic keeps a connection
		p := newPair(t, &fakeBroker{}, nil)
		for range 10 {
			time.Sleep(restLimit - time.Second)
			_, err := p.conn.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
			require.NoError(t, err)
		}
		require.True(t, p.conn.(brokerClient).Alive())
		time.Sleep(idleLimit)
		synctest.Wait()
		assert.False(t, p.conn.(brokerClient).link.alive())
		p.close(t)
	})
	synctest.Test(t, func(t *testing.T) { // whoever is about to send gives a rested one up first
		p := newPair(t, &fakeBroker{pull: func(ctx context.Context, _ *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			time.Sleep(restLimit + time.Second)
			return &protocol.PullMessageResponse{}, nil
		}}, nil)
		_, err := p.conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "G", Topic: "T"})
		require.NoError(t, err, "not one on which something is awaited")
		time.Sleep(restLimit - 1)
		require.True(t, p.conn.(brokerClient).Alive())
		time.Sleep(time.Nanosecond)
		require.True(t, p.conn.(brokerClient).link.alive())
		_, err = p.conn.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.False(t, p.conn.(brokerClient).link.alive())
		p.close(t)
	})
}

func TestWhatIsNoFrameEndsItsConnectionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{}, nil)
		for _, bytes := range []string{
			"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "\x00\x00\x00\x00", "\x00\x00\x00\x03abc", "\xff\xff\xff\xff", "\x01\x00\x00\x01",
			"\x00\x00\x00\x04\x00\xff\xff\xff", "\x00\x00\x00\x04\x7f\x00\x00\x00", "\x00\x00\x00\x04\x00\x00\x00\x00", "\x00\x00\x00\x06\x00\x00\x00\x02{]", "\x00\x00\x00\x19\x01\x00\x00\x15" + strings.Repeat("\xff", 21),
		} {
			conn := p.raw(t)
			go func() { _, _ = conn.Write([]byte(bytes)) }()
			all, err := io.ReadAll(conn)
			require.NoError(t, err)
			assert.Empty(t, all, "%q", bytes)
		}
		_, err := p.conn.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
		assert.NoError(t, err, "the others are unharmed")
		p.close(t)
	})
}

func TestUnknownCodesAreAnsweredSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{}, nil)
		conn := p.raw(t)
		for _, f := range []*Frame{{Code: 4711, Flag: FlagOneway}, {Code: 0, Flag: FlagResponse, Opaque: 99}, {Code: 4711, Opaque: -5, Serialize: Binary}} {
			b, err := f.Append(nil)
			require.NoError(t, err)
			_, err = conn.Write(b)
			require.NoError(t, err)
		}
		f, err := Read(conn)
		require.NoError(t, err)
		assert.Equal(t, &Frame{Code: 3, Flag: FlagResponse, Opaque: -5, Serialize: Binary, Language: LanguageGo, Version: Version, Remark: " request type 4711 not supported"}, f,
			"the first two are not answered")
		require.NoError(t, conn.Close())
		p.close(t)
	})
}

// What many callers send, or are answered, at a time is more than may wait on
// the connection: they take turns.
func TestManyLargeMessagesAtATimeDoNotCutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, size = 40, 2 << 20
		record := make([]byte, size)
		record[1] = size >> 16
		all := make(chan struct{})
		var pulls atomic.Int64
		p := newPair(t, &fakeBroker{
			send: func(_ context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
				return &protocol.SendMessageResponse{QueueOffset: int64(len(q.Body))}, nil
			},
			pull: func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				if pulls.Add(1) == callers {
					close(all)
				}
				<-all // they are answered together
				return &protocol.PullMessageResponse{Records: [][]byte{record}}, nil
			},
		}, nil)
		body := make([]byte, size)
		var sending sync.WaitGroup
		for range callers {
			sending.Go(func() {
				r, err := p.conn.SendMessage(t.Context(), &protocol.SendMessageRequest{Topic: "T", Body: body})
				if assert.NoError(t, err) {
					assert.EqualValues(t, size, r.QueueOffset)
				}
			})
		}
		sending.Wait()
		for range callers {
			sending.Go(func() {
				r, err := p.conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "G", Topic: "T"})
				if assert.NoError(t, err) {
					assert.Len(t, r.Records, 1)
				}
			})
		}
		sending.Wait()
		require.True(t, p.conn.(brokerClient).Alive())
		p.close(t)
	})
}

// An answer that no frame can hold is an error that says so, and the connection stays:
// the offsets of a broker with hundreds of thousands of them are one.
func TestAnAnswerThatIsTooLargeIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{offsets: func() *protocol.GetAllConsumerOffsetResponse {
			r := &protocol.GetAllConsumerOffsetResponse{}
			for i := range 300_000 {
				r.Offsets = append(r.Offsets, protocol.GroupOffset{Group: "a-group-with-a-name-" + strconv.Itoa(i), Topic: "a-topic-with-a-name", Offset: 1 << 40})
			}
			return r
		}}, nil)
		_, err := p.conn.GetAllConsumerOffset(t.Context(), &protocol.GetAllConsumerOffsetRequest{})
		var answer *protocol.Error
		require.ErrorAs(t, err, &answer)
		assert.Equal(t, protocol.SystemError, answer.Code)
		assert.ErrorContains(t, err, "at most 16777216 are allowed")
		_, err = p.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
		assert.NoError(t, err)
		p.close(t)
	})
}
