package pipenet

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConnectionsCarryBytesBetweenAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l, err := n.Listen(t.Context(), "127.0.0.7:0")
		require.NoError(t, err)
		_, err = n.Listen(t.Context(), l.Addr().String())
		assert.ErrorIs(t, err, syscall.EADDRINUSE)
		_, err = n.Listen(t.Context(), "localhost:1")
		assert.Error(t, err)

		accepted := make(chan net.Conn, 1)
		go func() {
			c, err := l.Accept()
			assert.NoError(t, err)
			accepted <- c
		}()
		ours, err := n.Dial(t.Context(), l.Addr().String())
		require.NoError(t, err)
		theirs := <-accepted
		assert.Equal(t, l.Addr(), ours.RemoteAddr())
		assert.Equal(t, l.Addr(), theirs.LocalAddr())
		assert.Equal(t, ours.LocalAddr(), theirs.RemoteAddr())
		go func() { _, _ = ours.Write([]byte("hello")); _ = ours.Close() }()
		all, err := io.ReadAll(theirs)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(all))

		// Nobody accepts.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = n.Dial(ctx, l.Addr().String())
		assert.Equal(t, context.DeadlineExceeded, err)
		refused := make(chan error, 1)
		go func() {
			_, err := n.Dial(t.Context(), l.Addr().String())
			refused <- err
		}()
		synctest.Wait()
		require.NoError(t, l.Close())
		assert.ErrorIs(t, <-refused, syscall.ECONNREFUSED)
		_, err = n.Dial(t.Context(), l.Addr().String())
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = l.Accept()
		assert.True(t, errors.Is(err, net.ErrClosed) && errors.Is(l.Close(), net.ErrClosed))
		again, err := n.Listen(t.Context(), l.Addr().String())
		require.NoError(t, err, "the address is free")
		require.NoError(t, again.Close())

		for _, addrs := range [][2]string{{"0.0.0.0:7", "127.0.0.9:7"}, {"[::]:8", "[::1]:8"}} {
			l, err := n.Listen(t.Context(), addrs[0])
			require.NoError(t, err)
			go func() {
				c, err := l.Accept()
				assert.NoError(t, err)
				accepted <- c
			}()
			ours, err := n.Dial(t.Context(), addrs[1])
			require.NoError(t, err, "a wildcard is every address")
			require.NoError(t, errors.Join(ours.Close(), (<-accepted).Close(), l.Close()))
		}
		_, err = n.Dial(t.Context(), "nowhere")
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}
