package memnet

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

type ctxKey struct{}

func TestHandlerSeesTheCallersContext(t *testing.T) {
	w := newWorld(t)
	deadline := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(context.WithValue(t.Context(), ctxKey{}, "v"), deadline)
	defer cancel()
	var kept context.Context
	w.broker.send = func(ctx context.Context, _ protocol.Session, r *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
		kept = ctx
		for range 2 { // before and after Done was asked for
			at, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, deadline, at)
			assert.Equal(t, "v", ctx.Value(ctxKey{}))
			assert.Nil(t, ctx.Value("other"))
			assert.NoError(t, ctx.Err())
			if string(r.Body) == "waits" {
				select {
				case <-ctx.Done():
					t.Error("ended early")
				default:
				}
			}
		}
		return sent, nil
	}
	for _, body := range []string{"waits", "does not wait"} {
		_, err := send(ctx, w.conn, body)
		require.NoError(t, err)
		<-kept.Done()
		assert.ErrorIs(t, kept.Err(), context.Canceled, "the context of a call ends with it")
		assert.Equal(t, "v", kept.Value(ctxKey{}))
		child, cancelChild := context.WithCancel(kept)
		assert.Error(t, child.Err())
		cancelChild()
	}
	assert.Empty(t, kept.(*callCtx).s.waiting)
}

func TestDerivedContextsNeedNoGoroutine(t *testing.T) {
	w := newWorld(t)
	stacks := ""
	w.broker.send = func(ctx context.Context, _ protocol.Session, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
		for range 10 {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			_, cancel = context.WithCancel(context.WithValue(child, ctxKey{}, 1))
			defer cancel()
		}
		buf := make([]byte, 1<<20)
		stacks = string(buf[:runtime.Stack(buf, true)])
		return sent, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := send(ctx, w.conn, "m")
	require.NoError(t, err)
	assert.Contains(t, stacks, "TestDerivedContextsNeedNoGoroutine")
	assert.NotContains(t, stacks, "propagateCancel", "what package context starts to follow a foreign parent")
}

func TestContextOfADeadSessionIsEnded(t *testing.T) {
	for _, waits := range []bool{false, true} {
		w := newWorld(t)
		w.broker.send = func(ctx context.Context, _ protocol.Session, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			if waits {
				ctx.Done()
			}
			assert.NoError(t, ctx.Err())
			w.Cut("c", "*")
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
			<-ctx.Done()
			return sent, nil
		}
		_, err := send(t.Context(), w.conn, "m")
		assert.EqualError(t, err, "connection to broker-a/0 (127.1.0.1:10911) lost", "whatever the handler returned")
	}
}

// A broker asks a name server with the context of the request it serves.
func TestNestedCallEndsWithTheOuterSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		inner := &fakeBroker{send: hold}
		l, err := w.ListenBroker(t.Context(), protocol.Listen{Node: "broker-b/0"}, inner)
		require.NoError(t, err)
		c, err := w.DialBroker(t.Context(), protocol.Dial{Node: "broker-a/0", Addr: l.Addr()})
		require.NoError(t, err)
		var innerErr error
		w.broker.send = func(ctx context.Context, _ protocol.Session, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			_, innerErr = send(ctx, c, "inner")
			return nil, innerErr
		}
		time.AfterFunc(time.Second, func() { w.Cut("c", "broker-a/0") })
		start := time.Now()
		_, err = send(t.Context(), w.conn, "m")
		assert.Equal(t, time.Second, time.Since(start))
		assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
		assert.ErrorIs(t, innerErr, context.Canceled)
		inner.send = nil
		_, err = send(t.Context(), c, "m")
		assert.NoError(t, err, "the inner session lives on")
	})
}
