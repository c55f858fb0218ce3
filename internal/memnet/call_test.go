package memnet

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// bare is the cheapest server: what is measured is the transport.
type bare struct{ protocol.BrokerConn }

func (bare) Connect(protocol.Session) protocol.BrokerConn { return bare{} }
func (bare) Close() error                                 { return nil }
func (bare) SendMessage(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	return sent, nil
}

var sent = &protocol.SendMessageResponse{MsgID: "x"}

func bareConn(tb testing.TB) protocol.BrokerConn {
	n := New()
	l, err := n.ListenBroker(context.Background(), protocol.Listen{Node: "broker-a/0"}, bare{})
	require.NoError(tb, err)
	c, err := n.DialBroker(context.Background(), protocol.Dial{Node: "p", Addr: l.Addr()})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = l.Close() })
	return c
}

func TestAnswersPassThrough(t *testing.T) {
	type answer struct {
		resp *protocol.SendMessageResponse
		err  error
	}
	stored := &protocol.SendMessageResponse{MsgID: "id"}
	refusal := &protocol.Error{Code: protocol.NoPermission, Remark: "no", Broker: "broker-a"}
	late := &protocol.Error{Code: protocol.FlushDiskTimeout, Remark: "slow", Broker: "broker-a"}
	for _, c := range []struct {
		name      string
		got, want answer
	}{
		{"result", answer{stored, nil}, answer{stored, nil}},
		{"nothing", answer{}, answer{}},
		{"error", answer{nil, refusal}, answer{nil, refusal}},
		{"error with a result", answer{stored, late}, answer{stored, late}},
		{"wrapped error", answer{nil, fmt.Errorf("more: %w", refusal)}, answer{nil, refusal}},
		{"any other error", answer{stored, protocol.ErrNoRoute}, answer{nil, &protocol.Error{Code: protocol.SystemError, Remark: "no route", Broker: "broker-a/0"}}},
		{"the handler's own timeout", answer{nil, context.DeadlineExceeded}, answer{nil, &protocol.Error{Code: protocol.SystemError, Remark: "context deadline exceeded", Broker: "broker-a/0"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.broker.send = func(context.Context, protocol.Session, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
				return c.got.resp, c.got.err
			}
			r, err := send(t.Context(), w.conn, "m")
			assert.Equal(t, c.want, answer{r, err})
			w.Delay("c", "*", 1)
			r, err = send(t.Context(), w.conn, "m")
			assert.Equal(t, c.want, answer{r, err}, "with a rule")

			w.HealAll()
			r, err = w.conn.SendMessage(t.Context(), &protocol.SendMessageRequest{Oneway: true})
			assert.NoError(t, err, "a oneway request has no answer")
			assert.Nil(t, r)
			assert.Len(t, w.broker.handled(), 3)
		})
	}
}

func TestUnansweredCallNamesServerAndTimeWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.broker.send = hold
		for _, rule := range []string{"none", "Drop"} {
			if rule == "Drop" {
				w.Drop("c", "*")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			start := time.Now()
			_, err := send(ctx, w.conn, "m")
			cancel()
			assert.Equal(t, 3*time.Second, time.Since(start))
			assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, protocol.ErrUnreachable)
			assert.EqualError(t, err, "no answer from broker-a/0 (127.1.0.1:10911) within 3s: context deadline exceeded")

			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err = send(ctx, w.conn, "m")
			assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
			assert.ErrorIs(t, err, context.Canceled)
			assert.EqualError(t, err, "no answer from broker-a/0 (127.1.0.1:10911) within 1s: context canceled")
		}
	})
}

func TestCallWithAnEndedContextIsNotSent(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := send(ctx, w.conn, "m")
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	assert.ErrorIs(t, err, context.Canceled)
	assert.EqualError(t, err, "request to broker-a/0 (127.1.0.1:10911) not sent: context canceled")
	assert.Empty(t, w.broker.handled())
}

func TestAnswerCountsWhenTheDeadlineHasJustPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.broker.send = func(context.Context, protocol.Session, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			time.Sleep(2 * time.Second) // a disk that does not look at contexts
			return sent, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := send(ctx, w.conn, "m")
		assert.NoError(t, err)
		assert.Equal(t, sent, r)
	})
}

// A handler may wait with a context of its own that ends in the same instant.
func TestHandlersTimerForTheSameDeadline(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.broker.send = func(ctx context.Context, s protocol.Session, r *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return hold(ctx, s, r)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := send(ctx, w.conn, "m")
			assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestPanicOfAHandlerReachesTheCallerAndCloseStillReturns(t *testing.T) {
	w := newWorld(t)
	w.broker.send = func(context.Context, protocol.Session, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
		panic("broken")
	}
	assert.PanicsWithValue(t, "broken", func() { _, _ = send(t.Context(), w.conn, "m") })
	require.NoError(t, w.listener.Close())
}

func TestCallCostsOneSmallAllocation(t *testing.T) {
	c, req := bareConn(t), &protocol.SendMessageRequest{}
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := c.SendMessage(context.Background(), req); err != nil {
			t.Fatal(err)
		}
	})
	assert.LessOrEqual(t, allocs, 1.0)
}

func BenchmarkCall(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := &protocol.SendMessageRequest{}
	b.Run("bare", func(b *testing.B) {
		var c protocol.BrokerConn = bare{}
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.SendMessage(ctx, req)
		}
	})
	b.Run("memnet", func(b *testing.B) {
		c := bareConn(b)
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.SendMessage(ctx, req)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		c := bareConn(b)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = c.SendMessage(ctx, req)
			}
		})
	})
}
