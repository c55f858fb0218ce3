package memnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// streamWorld is a master "a/0" that listens for streams, and one stream of the
// slave "a/1".
type streamWorld struct {
	*Network
	listener      net.Listener
	slave, master net.Conn
}

func newStreamWorld(t *testing.T) *streamWorld {
	w := &streamWorld{Network: New()}
	var err error
	w.listener, err = w.ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
	require.NoError(t, err)
	w.slave, err = w.dial(t.Context())
	require.NoError(t, err)
	w.master, err = w.listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		w.HealAll()
		_, _, _ = w.slave.Close(), w.master.Close(), w.listener.Close() // a test may have closed them
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Empty(t, w.sessions, "nothing is left")
	})
	return w
}

func (w *streamWorld) dial(ctx context.Context) (net.Conn, error) {
	return w.DialStream(ctx, protocol.Dial{Node: "a/1", Addr: w.listener.Addr().String()})
}

// said reads one time, for a minute at most, and tells what came and when.
func said(c net.Conn) string {
	start := time.Now()
	_ = c.SetReadDeadline(start.Add(time.Minute))
	b := make([]byte, 1<<20)
	n, err := c.Read(b)
	switch {
	case err == io.EOF:
		return fmt.Sprintf("end after %v", time.Since(start))
	case errors.Is(err, syscall.ECONNRESET):
		return fmt.Sprintf("reset after %v", time.Since(start))
	case err != nil:
		return fmt.Sprintf("%v after %v", errors.Unwrap(err), time.Since(start))
	case n > 20:
		return fmt.Sprintf("%d bytes after %v", n, time.Since(start))
	}
	return fmt.Sprintf("%s after %v", b[:n], time.Since(start))
}

// TestStreamsObeyTheRules has both sides say something under a rule, and the
// rule healed five seconds later.
func TestStreamsObeyTheRules(t *testing.T) {
	const nothing = "i/o timeout after 1m0s"
	for _, c := range []struct {
		name                 string
		rule                 func(n *Network)
		atMaster, atSlave    string // what arrives of what is said under the rule
		masterLate, slaveNow string // the same, when the rule is healed after 5 s
		dial                 string
	}{
		{"none", func(*Network) {}, "up after 0s", "down after 0s", "up after 0s", "down after 0s", "ok after 0s"},
		{"another link", func(n *Network) { n.Cut("a/2", "a/0"); n.Drop("x", "*") }, "up after 0s", "down after 0s", "up after 0s", "down after 0s", "ok after 0s"},
		{"Cut", func(n *Network) { n.Cut("a/0", "a/1") }, "reset after 0s", "reset after 0s", "reset after 0s", "reset after 0s", "refused after 0s"},
		{"CutOneWay to the master", func(n *Network) { n.CutOneWay("a/1", "a/0") }, nothing, "down after 0s", "up after 5s", "down after 0s", "timeout after 1s"},
		{"CutOneWay to the slave", func(n *Network) { n.CutOneWay("a/0", "a/1") }, "up after 0s", nothing, "up after 0s", "down after 5s", "timeout after 1s"},
		{"Drop", func(n *Network) { n.Drop("*", "a/0") }, nothing, nothing, "up after 5s", "down after 5s", "timeout after 1s"},
		{"Delay", func(n *Network) { n.Delay("a/0", "a/1", time.Second/10) }, "up after 100ms", "down after 100ms", "up after 100ms", "down after 100ms", "ok after 200ms"},
		{"a long Delay", func(n *Network) { n.Delay("a/0", "a/1", 20*time.Second) }, "up after 20s", "down after 20s", "up after 20s", "down after 20s", "timeout after 1s"},
	} {
		for _, healed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, healed %v", c.name, healed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newStreamWorld(t)
					c.rule(w.Network)
					_, _ = w.slave.Write([]byte("up"))
					_, _ = w.master.Write([]byte("down"))
					wantMaster, wantSlave := c.atMaster, c.atSlave
					if healed {
						time.AfterFunc(5*time.Second, w.HealAll)
						wantMaster, wantSlave = c.masterLate, c.slaveNow
					}
					master := make(chan string, 1)
					go func() { master <- said(w.master) }()
					assert.Equal(t, wantSlave, said(w.slave))
					assert.Equal(t, wantMaster, <-master)
					if healed {
						return
					}
					start := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					another, err := w.dial(ctx)
					got := "ok"
					if err != nil {
						require.ErrorIs(t, err, protocol.ErrUnreachable)
						if got = "refused"; errors.Is(err, context.DeadlineExceeded) {
							got = "timeout"
						}
					} else {
						require.NoError(t, another.Close())
					}
					assert.Equal(t, c.dial, fmt.Sprintf("%s after %v", got, time.Since(start)))
				})
			})
		}
	}
}

func TestTheEndOfAStreamIsNewsThatCanBeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStreamWorld(t)
		w.Drop("a/0", "a/1")
		_, err := w.slave.Write([]byte("last words"))
		require.NoError(t, err)
		require.NoError(t, w.slave.Close())
		assert.ErrorIs(t, w.slave.Close(), net.ErrClosed)
		assert.Equal(t, "i/o timeout after 1m0s", said(w.master), "nothing tells the master")
		_, err = w.master.Write([]byte("to nobody"))
		require.NoError(t, err)
		w.Heal("a/0", "a/1")
		assert.Equal(t, "last words after 0s", said(w.master))
		assert.Equal(t, "end after 0s", said(w.master))
		_, err = w.master.Write([]byte("x"))
		assert.ErrorIs(t, err, syscall.EPIPE)
	})
}

func TestWhatIsUnderWayArrivesBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStreamWorld(t)
		w.Delay("a/0", "a/1", time.Second)
		_, err := w.slave.Write([]byte("slow"))
		require.NoError(t, err)
		w.HealAll()
		_, err = w.slave.Write([]byte(" and late"))
		require.NoError(t, err)
		require.NoError(t, w.slave.Close())
		assert.Equal(t, "slow and late after 1s", said(w.master), "nothing overtakes what left before it")
		assert.Equal(t, "end after 0s", said(w.master))
	})
}

func TestACutLosesWhatIsUnderWayAndWakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStreamWorld(t)
		wrote := make(chan error, 1)
		go func() {
			_, err := w.slave.Write(make([]byte, 1<<20))
			wrote <- err
		}()
		read := make(chan string, 1)
		go func() { read <- said(w.slave) }()
		synctest.Wait()
		w.Cut("a/1", "*")
		assert.ErrorIs(t, <-wrote, syscall.ECONNRESET)
		assert.Equal(t, "reset after 0s", <-read)
		assert.Equal(t, "reset after 0s", said(w.master), "64 KiB had arrived")
		w.HealAll()
		assert.Equal(t, "reset after 0s", said(w.master), "what is cut stays so")
	})
}

func TestAWriterWaitsForAReaderItCannotHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStreamWorld(t)
		w.CutOneWay("a/0", "a/1") // the master's acknowledgements are lost
		wrote := make(chan time.Duration, 1)
		start := time.Now()
		go func() {
			_, err := w.slave.Write(make([]byte, streamBuffer+1))
			assert.NoError(t, err)
			wrote <- time.Since(start)
		}()
		synctest.Wait()
		assert.Equal(t, "65536 bytes after 0s", said(w.master))
		time.AfterFunc(time.Second, w.HealAll)
		assert.Equal(t, "\x00 after 1s", said(w.master), "the rest comes when the writer has learnt that there is room")
		assert.Equal(t, time.Second, <-wrote)
	})
}

func TestStreamsThatNobodyAcceptsWaitAndAreReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStreamWorld(t)
		var conns []net.Conn
		for range acceptBacklog {
			c, err := w.dial(t.Context())
			require.NoError(t, err)
			conns = append(conns, c)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.dial(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		dialled := make(chan error, 1)
		go func() { _, err := w.dial(t.Context()); dialled <- err }()
		synctest.Wait()
		require.NoError(t, w.listener.Close())
		assert.ErrorIs(t, w.listener.Close(), net.ErrClosed)
		assert.ErrorIs(t, <-dialled, protocol.ErrUnreachable)
		for _, c := range conns {
			assert.Equal(t, "reset after 0s", said(c))
			require.NoError(t, c.Close())
		}
		_, err = w.slave.Write([]byte("accepted"))
		require.NoError(t, err)
		assert.Equal(t, "accepted after 0s", said(w.master))
	})
}

func TestKindsOfServersAreToldApart(t *testing.T) {
	w := newStreamWorld(t)
	_, err := w.DialBroker(t.Context(), protocol.Dial{Addr: w.listener.Addr().String()})
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	assert.ErrorContains(t, err, "a server of streams listens there")
	assert.Equal(t, "127.1.0.1:10912", w.listener.Addr().String())
}

// TestStreamsLoseNothing writes and reads pieces of any size under rules that
// come and go.
func TestStreamsLoseNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newStreamWorld(t)
		want := make([]byte, 1<<20)
		for i := range want {
			want[i] = byte(r.Uint32())
		}
		go func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for b := want; len(b) > 0; {
				k := min(len(b), 1+r.IntN(100_000))
				_, err := w.slave.Write(b[:k])
				assert.NoError(t, err)
				b = b[k:]
			}
			assert.NoError(t, w.slave.Close())
		}()
		done := make(chan []byte)
		go func() {
			r := rand.New(rand.NewPCG(seed, 2))
			var got []byte
			for {
				b := make([]byte, 1+r.IntN(50_000))
				n, err := w.master.Read(b)
				if got = append(got, b[:n]...); err != nil {
					assert.Equal(t, io.EOF, err)
					done <- got
					return
				}
			}
		}()
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case got := <-done:
				tick.Stop()
				assert.True(t, bytes.Equal(want, got), "%d of %d bytes arrived, or others", len(got), len(want))
				return
			case <-tick.C:
				switch r.IntN(5) {
				case 0:
					w.Delay("a/0", "a/1", time.Duration(r.IntN(30))*time.Millisecond)
				case 1:
					w.Drop("a/0", "a/1")
				case 2:
					w.CutOneWay("a/0", "a/1")
				default:
					w.HealAll()
				}
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	n := New()
	l, err := n.ListenStream(b.Context(), protocol.Listen{Node: "a/0"})
	require.NoError(b, err)
	c, err := n.DialStream(b.Context(), protocol.Dial{Node: "a/1", Addr: l.Addr().String()})
	require.NoError(b, err)
	s, err := l.Accept()
	require.NoError(b, err)
	piece := make([]byte, 32<<10)
	b.SetBytes(int64(len(piece)))
	read := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, s)
		read <- err
	}()
	for b.Loop() {
		_, err := c.Write(piece)
		require.NoError(b, err)
	}
	require.NoError(b, errors.Join(c.Close(), <-read, s.Close(), l.Close()))
}
