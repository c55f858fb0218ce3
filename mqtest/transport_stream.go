package mqtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// listenStream listens for streams until the case ends.
func (t *transportTest) listenStream(node string) net.Listener {
	t.Helper()
	l, err := t.ListenStream(t.Context(), protocol.Listen{Node: node})
	t.ok(err, "listen for streams")
	t.Cleanup(func() { _ = l.Close() }) // a case may have closed it
	return l
}

// stream opens a stream with l, on which the dialler has said "hi".
func (t *transportTest) stream(l net.Listener) (dialled, accepted net.Conn) {
	t.Helper()
	taken := beside(l.Accept)
	opened := beside(func() (net.Conn, error) {
		c, err := t.DialStream(t.Context(), protocol.Dial{Node: "broker-a/1", Addr: l.Addr().String()})
		if err == nil {
			_, err = c.Write([]byte("hi"))
		}
		return c, err
	})
	r := await(t, taken, "the stream that was dialled")
	t.ok(r.err, "accept")
	t.Cleanup(func() { _ = r.v.Close() })
	t.equal("what was said first", "hi", t.read(r.v, 2))
	o := await(t, opened, "the end of the dial")
	t.ok(o.err, "dial and write")
	t.Cleanup(func() { _ = o.v.Close() })
	return o.v, r.v
}

// read reads n bytes.
func (t *transportTest) read(c net.Conn, n int) string {
	t.Helper()
	b := make([]byte, n)
	r := await(t, beside(func() (int, error) { return io.ReadFull(c, b) }), "a read")
	t.ok(r.err, "read")
	return string(b)
}

// lost demands the error of a stream whose other side is gone.
func (t *transportTest) lost(err error, what string) {
	t.Helper()
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("%s: %v, want ECONNRESET or EPIPE", what, err)
	}
}

// pattern is n bytes, of which no two parts are alike.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

func streamCases() []transportCase {
	return []transportCase{
		{"streams carry bytes both ways at the same time", func(t *transportTest) {
			l := t.listenStream("broker-a/0")
			const each, size = 3, 1 << 20
			var ends [][2]net.Conn
			for range each {
				dialled, accepted := t.stream(l)
				t.equal("who was dialled", l.Addr().String(), dialled.RemoteAddr().String())
				t.equal("whom the other side sees", dialled.LocalAddr().String(), accepted.RemoteAddr().String())
				ends = append(ends, [2]net.Conn{dialled, accepted}, [2]net.Conn{accepted, dialled})
			}
			done := together(len(ends), func(i int) {
				written := beside(func() (int, error) { return ends[i][0].Write(pattern(size + i)) })
				got := make([]byte, size+i)
				if _, err := io.ReadFull(ends[i][1], got); err != nil || !bytes.Equal(got, pattern(size+i)) {
					t.Errorf("way %d: %v, or something else was read than was written", i, err)
				}
				if w := <-written; w.err != nil || w.v != size+i {
					t.Errorf("way %d: wrote %d: %v", i, w.v, w.err)
				}
			})
			done()
		}},
		{"what was written before a close arrives, and then the end", func(t *transportTest) {
			l := t.listenStream("broker-a/0")
			dialled, accepted := t.stream(l)
			read := beside(func() ([]byte, error) { return io.ReadAll(dialled) })
			_, err := accepted.Write(pattern(10_000))
			t.ok(err, "write")
			t.ok(accepted.Close(), "close")
			r := await(t, read, "the end of the stream")
			t.ok(r.err, "read to the end")
			t.equal("what arrived", string(pattern(10_000)), string(r.v))
			t.ok(dialled.SetDeadline(time.Now().Add(t.patience())), "a deadline after the end of the other side")
			for err = nil; err == nil; { // the first ones may be on their way yet
				_, err = dialled.Write([]byte("x"))
			}
			t.lost(err, "a write to who has gone")
			_, err = accepted.Read(make([]byte, 1))
			t.is(err, "a read after Close", net.ErrClosed)
			_, err = accepted.Write(make([]byte, 1))
			t.is(err, "a write after Close", net.ErrClosed)
			t.is(accepted.SetDeadline(time.Time{}), "a deadline after Close", net.ErrClosed)
		}},
		{"Close ends a read and a write that wait", func(t *transportTest) {
			l := t.listenStream("broker-a/0")
			for _, closer := range []int{0, 1} {
				var ends [2]net.Conn
				ends[0], ends[1] = t.stream(l)
				read := beside(func() (int, error) { return ends[0].Read(make([]byte, 1)) })
				written := beside(func() (int, error) { return ends[0].Write(make([]byte, 64<<20)) })
				t.ok(ends[closer].Close(), "close")
				r, w := await(t, read, "the end of the read"), await(t, written, "the end of the write")
				if closer == 0 {
					t.is(r.err, "the read", net.ErrClosed)
					t.is(w.err, "the write", net.ErrClosed)
					continue
				}
				if r.err != io.EOF { // bytes that were never read may reset what is over
					t.lost(r.err, "the read")
				}
				t.lost(w.err, "the write")
			}
		}},
		{"deadlines end a read and a write, and not the stream", func(t *transportTest) {
			l := t.listenStream("broker-a/0")
			dialled, accepted := t.stream(l)
			t.ok(accepted.SetReadDeadline(time.Now().Add(-time.Second)), "a deadline that has passed")
			_, err := accepted.Read(make([]byte, 1))
			t.is(err, "a read after its deadline", os.ErrDeadlineExceeded)
			if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
				t.Errorf("%v is no timeout", err)
			}
			t.ok(accepted.SetReadDeadline(time.Now().Add(20*time.Millisecond)), "a deadline to come")
			_, err = accepted.Read(make([]byte, 1))
			t.is(err, "a read until its deadline", os.ErrDeadlineExceeded)
			t.ok(accepted.SetReadDeadline(time.Time{}), "no deadline")
			waiting := beside(func() (int, error) { return dialled.Read(make([]byte, 1)) })
			t.ok(dialled.SetDeadline(time.Now()), "a deadline for who waits")
			t.is(await(t, waiting, "the end of the read").err, "a read that waited", os.ErrDeadlineExceeded)
			t.ok(dialled.SetDeadline(time.Time{}), "no deadline")

			// Nobody reads: the writer waits, and nothing of what it was told is lost.
			t.ok(dialled.SetWriteDeadline(time.Now().Add(50*time.Millisecond)), "a deadline of the writer")
			piece, taken := pattern(256<<10), 0
			for err = nil; err == nil && taken < 64<<20; {
				var n int
				n, err = dialled.Write(piece)
				taken += n
			}
			t.is(err, "a write that nobody reads: nothing makes a writer wait", os.ErrDeadlineExceeded)
			t.ok(dialled.SetWriteDeadline(time.Time{}), "no deadline")
			rest := beside(func() (int, error) { return dialled.Write([]byte("more")) })
			for left := taken; left > 0; {
				n := min(left, len(piece))
				if t.read(accepted, n) != string(piece[:n]) {
					t.Fatal("something else was read than was written")
				}
				left -= n
			}
			t.equal("what came behind it", "more", t.read(accepted, 4))
			t.ok(await(t, rest, "the end of a write").err, "write")
		}},
		{"a stream to where nobody listens is refused", func(t *transportTest) {
			l := t.listenStream("broker-a/0")
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := t.DialStream(ended, protocol.Dial{Node: "broker-a/1", Addr: l.Addr().String()})
			t.notSent(err, "a dial that was cancelled", context.Canceled)
			_, err = t.DialStream(t.Context(), protocol.Dial{Node: "broker-a/1", Addr: "nowhere"})
			t.notSent(err, "a dial of no address", pocketmq.ErrInvalidConfig)
			t.ok(l.Close(), "close")
			_, err = t.DialStream(t.Context(), protocol.Dial{Node: "broker-a/1", Addr: l.Addr().String()})
			t.notSent(err, "a dial")
			_, err = l.Accept()
			t.is(err, "accept after Close", net.ErrClosed)
		}},
		{"a listener for streams leaves to their owners what was accepted, and ends the rest", func(t *transportTest) {
			l := t.listenStream("broker-a/0")
			dialled, accepted := t.stream(l)
			waiting := beside(func() (string, error) {
				c, err := t.DialStream(t.Context(), protocol.Dial{Node: "broker-a/2", Addr: l.Addr().String()})
				if err != nil {
					return "refused", err
				}
				_, err = c.Read(make([]byte, 1))
				return "opened", errors.Join(err, c.Close())
			})
			t.ok(l.Close(), "close of the listener")
			r := await(t, waiting, "the end of a stream that nobody accepted")
			if r.v == "refused" {
				t.notSent(r.err, "a dial that nobody accepted")
			} else if r.err == nil {
				t.Error("a stream that nobody accepted could be read")
			}
			written := beside(func() (int, error) { return accepted.Write([]byte("still here")) })
			t.equal("what arrived on what was accepted", "still here", t.read(dialled, 10))
			t.ok(await(t, written, "the end of the write").err, "the write")
		}},
		{"a node has a broker and streams at addresses of their own, the same ones again", func(t *transportTest) {
			for _, addr := range []string{"", "127.0.0.1:0"} {
				again := addr
				var first string
				for range 2 {
					w := &stubWorld{stub: newStub(), transportTest: t, peer: &stubPeer{}}
					w.listener = w.transportTest.listen("broker-a/0", w.stub)
					l, err := t.ListenStream(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: again})
					t.ok(err, "listen for streams")
					at, err := netip.ParseAddrPort(l.Addr().String())
					if err != nil || at.Port() == 0 || l.Addr().String() == w.listener.Addr() {
						t.Errorf("the broker is at %s, its streams at %s", w.listener.Addr(), l.Addr())
					}
					if first == "" {
						first = l.Addr().String()
					}
					t.equal("the address", first, l.Addr().String())
					_, err = t.ListenStream(t.Context(), protocol.Listen{Node: "broker-b/0", Addr: first})
					t.is(err, "an address that is taken")
					if !strings.Contains(err.Error(), first) {
						t.Errorf("the error does not name the address: %v", err)
					}
					t.stream(l)
					w.ping(w.dial("client"))
					t.ok(l.Close(), "close of the listener")
					t.ok(w.listener.Close(), "close of the broker")
					if addr != "" {
						again = first
					}
				}
			}
		}},
		{"streams on a wildcard address have to be advertised at another one", func(t *transportTest) {
			_, err := t.ListenStream(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: "0.0.0.0:0"})
			t.is(err, "listen", pocketmq.ErrInvalidConfig)
			_, err = t.ListenStream(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: "x:1"})
			t.is(err, "listen on no address", pocketmq.ErrInvalidConfig)
			l, err := t.ListenStream(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: "0.0.0.0:0", Advertise: "127.0.0.1:0"})
			t.ok(err, "listen")
			if !strings.HasPrefix(l.Addr().String(), "127.0.0.1:") {
				t.Errorf("the address is %v", l.Addr())
			}
			t.stream(l)
			t.ok(l.Close(), "close")
		}},
		{"a broker is no server of streams", func(t *transportTest) {
			w := t.stubWorld()
			c, err := t.DialStream(t.Context(), protocol.Dial{Node: "broker-a/1", Addr: w.listener.Addr()})
			if err != nil {
				t.notSent(err, "a dial")
				return
			}
			_, err = c.Write(make([]byte, 100))
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			t.is(err, "a stream to a broker")
			t.ok(c.Close(), "close")
		}},
	}
}
