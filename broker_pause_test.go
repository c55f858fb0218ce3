package pocketmq

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// pausedPair is a stream between a broker that can be paused and one that cannot.
type pausedPair struct {
	gate     *gate
	over     Transport // of the first
	listener net.Listener
	paused   net.Conn // the first one's end
	other    net.Conn
}

func newPausedPair(t *testing.T) *pausedPair {
	n := InMemory()
	g := &gate{disk: new(store.Disk)}
	p := &pausedPair{gate: g, over: pausable{n, g}}
	var err error
	p.listener, err = p.over.ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
	require.NoError(t, err)
	p.other, err = n.DialStream(t.Context(), protocol.Dial{Node: "a/1", Addr: p.listener.Addr().String()})
	require.NoError(t, err)
	p.paused, err = p.listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _, _ = p.paused.Close(), p.other.Close(), p.listener.Close() }) // a test may have closed them
	return p
}

// within tells what f returns, and after how long.
func within[V any](f func() (V, error)) <-chan struct {
	v     V
	err   error
	after time.Duration
} {
	type outcome = struct {
		v     V
		err   error
		after time.Duration
	}
	c, begin := make(chan outcome, 1), time.Now()
	go func() {
		v, err := f()
		c <- outcome{v, err, time.Since(begin)}
	}()
	return c
}

func TestStreamsOfAPausedBrokerStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPausedPair(t)
		read := within(func() (int, error) { return p.paused.Read(make([]byte, 10)) })
		synctest.Wait()
		p.gate.shut()
		_, err := p.other.Write([]byte("hello"))
		require.NoError(t, err, "the link holds")
		wrote := within(func() (int, error) { return p.paused.Write([]byte("late")) })
		heard := within(func() (string, error) {
			b := make([]byte, 4)
			_, err := io.ReadFull(p.other, b)
			return string(b), err
		})
		dialled := within(func() (net.Conn, error) {
			return p.over.DialStream(context.Background(), protocol.Dial{Node: "a/0", Addr: p.listener.Addr().String()})
		})
		accepted := within(p.listener.Accept)
		time.Sleep(time.Minute)
		p.gate.open()
		r := <-read
		assert.Equal(t, []any{5, nil, time.Minute}, []any{r.v, r.err, r.after})
		assert.Equal(t, time.Minute, (<-wrote).after)
		h := <-heard
		assert.Equal(t, []any{"late", nil, time.Minute}, []any{h.v, h.err, h.after})
		d, a := <-dialled, <-accepted
		require.NoError(t, d.err)
		require.NoError(t, a.err)
		assert.Equal(t, []time.Duration{time.Minute, time.Minute}, []time.Duration{d.after, a.after})
		require.NoError(t, d.v.Close())
		require.NoError(t, a.v.Close())
	})
}

func TestCallsOfAPausedBrokerGiveUpWithTheirCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPausedPair(t)
		p.gate.shut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.over.DialStream(ctx, protocol.Dial{Addr: p.listener.Addr().String()})
		require.ErrorIs(t, err, ErrUnreachable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = p.over.DialBroker(ctx, protocol.Dial{Addr: "127.0.0.1:1"})
		require.ErrorIs(t, err, ErrUnreachable)
		_, err = outward(p.gate, ctx, &protocol.GetRouteRequest{}, func(context.Context, *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
			t.Error("it has left")
			return nil, nil
		})
		require.ErrorIs(t, err, ErrUnreachable)
		p.gate.open()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = outward(p.gate, ctx, &protocol.GetRouteRequest{}, func(context.Context, *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
			p.gate.shut() // while the call is under way
			return &protocol.GetRouteResponse{}, nil
		})
		require.ErrorIs(t, err, ErrUnknownOutcome)
	})
}

func TestStreamsOfAPausedBrokerEndWithItAndWithTheirClose(t *testing.T) {
	for name, end := range map[string]func(p *pausedPair){
		"its end": func(p *pausedPair) { p.gate.end(); p.gate.end() },
		"Close":   func(p *pausedPair) { _, _ = p.paused.Close(), p.listener.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPausedPair(t)
				accepted := within(p.listener.Accept)
				read := within(func() (int, error) { return p.paused.Read(make([]byte, 10)) })
				synctest.Wait()
				p.gate.shut()
				_, err := p.other.Write([]byte("hello"))
				require.NoError(t, err)
				wrote := within(func() (int, error) { return p.paused.Write([]byte("never")) })
				another, err := p.over.(pausable).Transport.DialStream(t.Context(), protocol.Dial{Node: "a/2", Addr: p.listener.Addr().String()})
				require.NoError(t, err)
				synctest.Wait()
				end(p)
				assert.ErrorIs(t, (<-read).err, net.ErrClosed)
				assert.ErrorIs(t, (<-wrote).err, net.ErrClosed)
				assert.ErrorIs(t, (<-accepted).err, net.ErrClosed)
				require.NoError(t, another.Close())
			})
		})
	}
}
