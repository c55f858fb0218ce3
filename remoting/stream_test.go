package remoting

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// acceptOne serves one stream: it answers what it reads with serve.
func acceptOne(t *testing.T, l net.Listener, serve func(net.Conn) error) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = errors.Join(serve(c), c.Close())
		}
		done <- err
	}()
	return done
}

func echo(c net.Conn) error {
	_, err := io.Copy(c, c)
	return err
}

func TestStreamsComeWithAndWithoutTLS(t *testing.T) {
	for _, c := range []struct {
		listen, dial Options
		works        bool
	}{
		{Options{}, Options{}, true},
		{Options{}, Options{DialTLS: anybody}, true},
		{Options{TLS: TLSDisabled}, Options{TLS: TLSDisabled}, true},
		{Options{TLS: TLSDisabled}, Options{DialTLS: anybody}, false},
		{Options{TLS: TLSEnforcing}, Options{DialTLS: anybody}, true},
		{Options{TLS: TLSEnforcing}, Options{}, false},
	} {
		t.Run(fmt.Sprintf("%v, dialled with TLS %v", c.listen.TLS, c.dial.DialTLS != nil), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := pipenet.New()
				l, err := NewTransportWith("127.0.0.1", n, c.listen).ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
				require.NoError(t, err)
				done := acceptOne(t, l, echo)
				conn, err := NewTransportWith("127.0.0.1", n, c.dial).DialStream(t.Context(), protocol.Dial{Addr: l.Addr().String()})
				if err == nil {
					_, err = conn.Write([]byte("hello"))
					if err == nil {
						_, err = io.ReadFull(conn, make([]byte, 5))
					}
					_ = conn.Close() // the case is over
				} else {
					assert.ErrorIs(t, err, protocol.ErrUnreachable)
				}
				served := <-done
				if c.works {
					assert.NoError(t, errors.Join(err, served))
				} else {
					assert.Error(t, err)
					assert.Error(t, served)
				}
				require.NoError(t, l.Close())
			})
		})
	}
}

func TestAnEnforcingTransportHasStreamsOfItsOwn(t *testing.T) {
	n := TCP{} // on a pipe both sides would be heard only when the other listens
	own := NewTransportWith("127.0.0.1", n, Options{TLS: TLSEnforcing})
	l, err := own.ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
	require.NoError(t, err)
	done := acceptOne(t, l, echo)
	conn, err := own.DialStream(t.Context(), protocol.Dial{Addr: l.Addr().String()})
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, <-done)
	done = acceptOne(t, l, echo)
	_, err = NewTransportWith("127.0.0.1", n, Options{TLS: TLSEnforcing}).DialStream(t.Context(), protocol.Dial{Addr: l.Addr().String()})
	assert.ErrorIs(t, err, errNotOurs)
	assert.Error(t, <-done)
	_, err = NewTransportWith("127.0.0.1", n, Options{TLS: 7}).ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
	assert.ErrorIs(t, err, protocol.ErrInvalidConfig)
	require.NoError(t, l.Close())
}

func TestWhatIsNoStreamIsRefused(t *testing.T) {
	for said, want := range map[string]error{
		"\x00\x00\x00\x20\x00\x00\x00\x10{}": errNoStream, // a frame
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n": errNoStream,
		"PMQ\x02":                            errNoStream,
		"PM":                                 io.ErrUnexpectedEOF,
		"":                                   io.EOF,
	} {
		n := pipenet.New()
		l, err := NewTransport("127.0.0.1", n).ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
		require.NoError(t, err)
		done := acceptOne(t, l, func(c net.Conn) error { _, err := c.Read(make([]byte, 100)); return err })
		conn, err := n.Dial(t.Context(), l.Addr().String())
		require.NoError(t, err)
		_, _ = conn.Write([]byte(said)) // it may be refused in the middle
		_ = conn.Close()
		assert.ErrorIs(t, <-done, want, "%q", said)
		require.NoError(t, l.Close())
	}
}

func TestAStreamThatBeginsSlowlyIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipenet.New()
		l, err := NewTransport("127.0.0.1", n).ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
		require.NoError(t, err)
		done := acceptOne(t, l, func(c net.Conn) error {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
			for range 2 {
				_, err := c.Read(make([]byte, 1))
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			require.NoError(t, c.SetReadDeadline(time.Time{}))
			var answered sync.WaitGroup
			answered.Go(func() { // it waits for the beginning
				_, err := c.Write([]byte("up?"))
				assert.NoError(t, err)
			})
			b := make([]byte, 2)
			_, err := io.ReadFull(c, b)
			assert.Equal(t, "hi", string(b))
			answered.Wait()
			return err
		})
		conn, err := n.Dial(t.Context(), l.Addr().String())
		require.NoError(t, err)
		_, err = conn.Write([]byte(streamMark[:2]))
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		_, err = conn.Write([]byte(streamMark[2:] + "hi"))
		require.NoError(t, err)
		_, err = io.ReadFull(conn, make([]byte, 3))
		require.NoError(t, err)
		require.NoError(t, <-done)
		require.NoError(t, errors.Join(conn.Close(), l.Close()))
	})
}

func TestTheFirstWritesOfAStreamKeepItsMarkInFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipenet.New()
		tr := NewTransport("127.0.0.1", n)
		l, err := tr.ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
		require.NoError(t, err)
		taken := make(chan net.Conn, 1)
		go func() {
			c, err := l.Accept()
			assert.NoError(t, err)
			taken <- c
		}()
		conn, err := tr.DialStream(t.Context(), protocol.Dial{Addr: l.Addr().String()})
		require.NoError(t, err)
		accepted := <-taken
		require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
		k, err := conn.Write([]byte("never read"))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Zero(t, k)
		require.NoError(t, conn.SetWriteDeadline(time.Time{}))
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() {
				k, err := conn.Write([]byte("1234567"))
				assert.NoError(t, err)
				assert.Equal(t, 7, k)
			})
		}
		b := make([]byte, 8*7)
		_, err = io.ReadFull(accepted, b)
		require.NoError(t, err)
		for i := range 8 {
			assert.Equal(t, "1234567", string(b[7*i:7*i+7]))
		}
		writers.Wait()
		require.NoError(t, errors.Join(conn.Close(), accepted.Close(), l.Close()))
	})
}

func TestAStreamThatIsNotTrustedSaysWhatToDo(t *testing.T) {
	n := TCP{} // on a pipe both sides would be heard only when the other listens
	l, err := NewTransport("127.0.0.1", n).ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
	require.NoError(t, err)
	done := acceptOne(t, l, echo)
	_, err = NewTransportWith("127.0.0.1", n, Options{DialTLS: &tls.Config{}}).DialStream(t.Context(), protocol.Dial{Addr: l.Addr().String()})
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	assert.ErrorContains(t, err, "RootCAs")
	assert.Error(t, <-done)
	require.NoError(t, l.Close())
}
