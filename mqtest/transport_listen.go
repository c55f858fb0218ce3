package mqtest

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func listenCases() []transportCase {
	return []transportCase{
		{"addresses are IP literals with ports, one for each server", func(t *transportTest) {
			seen := make(map[string]bool)
			for _, node := range []string{"broker-a/0", "broker-b/0", "broker-c/0"} {
				addr := t.listen(node, newStub()).Addr()
				at, err := netip.ParseAddrPort(addr)
				if err != nil || at.Port() == 0 || at.Addr().IsUnspecified() || seen[addr] {
					t.Errorf("%s listens on %q", node, addr)
				}
				seen[addr] = true
			}
		}},
		{"a node that listens again has its address again", func(t *transportTest) {
			for _, addr := range []string{"", "127.0.0.1:0"} {
				s := newStub()
				l, err := t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: addr}, stubBroker{s})
				t.ok(err, "listen")
				first := l.Addr()
				conn, err := t.DialBroker(t.Context(), protocol.Dial{Node: "client", Addr: first})
				t.ok(err, "dial")
				t.ok(l.Close(), "close")
				if addr != "" {
					addr = first
				}
				l, err = t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: addr}, stubBroker{s})
				t.ok(err, "listen again")
				t.equal("the address", first, l.Addr())
				w := &stubWorld{stub: s, transportTest: t, peer: &stubPeer{}, listener: l}
				w.ping(w.dial("client"))
				_, err = pull(t.Context(), conn)
				t.is(err, "a call on the connection of before")
				t.ok(conn.Close(), "close of the connection")
				t.ok(l.Close(), "close")
			}
		}},
		{"an address that is taken is refused by name", func(t *transportTest) {
			w := t.stubWorld()
			_, err := t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-b/0", Addr: w.listener.Addr()}, stubBroker{newStub()})
			t.is(err, "listen")
			if !strings.Contains(err.Error(), w.listener.Addr()) {
				t.Errorf("the error does not name the address: %v", err)
			}
			w.ping(w.conn)
		}},
		{"an address that is none is refused", func(t *transportTest) {
			for _, l := range []protocol.Listen{{Addr: "x:1"}, {Addr: "127.0.0.1"}, {Advertise: "host:1"}} {
				l.Node = "broker-a/0"
				_, err := t.ListenBroker(t.Context(), l, stubBroker{newStub()})
				t.is(err, "listen on "+l.Addr+l.Advertise, pocketmq.ErrInvalidConfig)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := t.ListenBroker(ended, protocol.Listen{Node: "broker-a/0"}, stubBroker{newStub()})
			t.is(err, "a start that was cancelled", context.Canceled)
			t.listen("broker-a/0", newStub()) // nothing of all that is left
		}},
		{"peers are told the advertised address", func(t *transportTest) {
			for advertise, want := range map[string]string{"192.0.2.7:4711": "192.0.2.7:4711", "[2001:db8::7]:4711": "[2001:db8::7]:4711"} {
				l, err := t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0", Advertise: advertise}, stubBroker{newStub()})
				t.ok(err, "listen")
				t.equal("the address", want, l.Addr())
				t.ok(l.Close(), "close")
			}
			l, err := t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: "127.0.0.1:0", Advertise: "192.0.2.7:0"}, stubBroker{newStub()})
			t.ok(err, "listen")
			at, err := netip.ParseAddrPort(l.Addr())
			if err != nil || at.Port() == 0 || at.Addr().String() != "192.0.2.7" {
				t.Errorf("the address is %q, %v", l.Addr(), err)
			}
			t.ok(l.Close(), "close")
		}},
		{"a broker on a wildcard address has to advertise another one", func(t *transportTest) {
			for _, addr := range []string{"0.0.0.0:0", "[::]:0"} {
				_, err := t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: addr}, stubBroker{newStub()})
				t.is(err, "listen on "+addr, pocketmq.ErrInvalidConfig)
				if !strings.Contains(err.Error(), "AdvertiseAddr") {
					t.Errorf("the error does not name AdvertiseAddr: %v", err)
				}
			}
			w := &stubWorld{stub: newStub(), transportTest: t, peer: &stubPeer{}}
			var err error
			w.listener, err = t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: "0.0.0.0:0", Advertise: "127.0.0.1:0"}, stubBroker{w.stub})
			t.ok(err, "listen")
			if !strings.HasPrefix(w.listener.Addr(), "127.0.0.1:") {
				t.Errorf("the address is %s", w.listener.Addr())
			}
			t.ok(w.listener.Close(), "close")
		}},
		{"a name server on a wildcard address can be dialled", func(t *transportTest) {
			l, err := t.ListenNameServer(t.Context(), protocol.Listen{Node: "ns-0", Addr: "0.0.0.0:0"}, stubNameServer{newStub()})
			t.ok(err, "listen")
			conn, err := t.DialNameServer(t.Context(), protocol.Dial{Node: "client", Addr: l.Addr()})
			t.ok(err, "dial")
			_, err = conn.GetAllTopics(t.Context(), &protocol.GetAllTopicsRequest{})
			t.ok(err, "a request")
			t.ok(conn.Close(), "close")
			t.ok(l.Close(), "close of the listener")
		}},
		{"a listener that closes ends what is in flight, and returns when nothing runs", func(t *transportTest) {
			w := t.stubWorld()
			begun, ended, release := make(chan *stubSession, 1), make(chan struct{}), make(chan struct{})
			var returned atomic.Bool
			w.serve = func(ctx context.Context, s *stubSession, _ string, _ any) (any, error) {
				begun <- s
				<-ctx.Done()
				close(ended)
				<-release // something that cannot be cancelled, a disk say
				returned.Store(true)
				return nil, ctx.Err()
			}
			called := beside(func() (*protocol.PullMessageResponse, error) { return pull(t.Context(), w.conn) })
			s := await(t, begun, "the request at the server")
			closed := beside(func() (bool, error) { err := w.listener.Close(); return returned.Load(), err })
			await(t, ended, "the end of the handler's ctx")
			again := beside(func() (bool, error) { err := w.listener.Close(); return returned.Load(), err })
			close(release)
			for _, c := range []<-chan result[bool]{closed, again} {
				r := await(t, c, "the end of Close")
				t.ok(r.err, "close")
				if !r.v {
					t.Error("Close has returned before the last handler")
				}
			}
			t.unknownOutcome(await(t, called, "the end of the call").err, "the call in flight")
			t.equal("how often the session was closed", 1, s.timesClosed())
			_, err := pull(t.Context(), w.conn)
			t.is(err, "a call on a lost connection")
			t.notSent(err, "a call on a lost connection")
			_, err = t.DialBroker(t.Context(), protocol.Dial{Node: "client", Addr: w.listener.Addr()})
			t.notSent(err, "a dial")
		}},
		{"nothing is served once Close of the listener has returned", func(t *transportTest) {
			for range 3 {
				w := &stubWorld{stub: newStub(), transportTest: t, peer: &stubPeer{}}
				var closed atomic.Bool
				var served atomic.Int64
				w.serve = func(context.Context, *stubSession, string, any) (any, error) {
					if served.Add(1); closed.Load() {
						t.Error("a request is served after Close")
					}
					return nil, nil
				}
				w.listener = w.transportTest.listen("broker-a/0", w.stub)
				conns := make([]protocol.BrokerConn, 8)
				for i := range conns {
					conns[i] = w.dial("client")
				}
				called := together(len(conns), func(i int) {
					for {
						q := &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Oneway: i%2 == 0}
						if _, err := conns[i].UpdateConsumerOffset(t.Context(), q); err != nil {
							return
						}
					}
				})
				for another := w.dial("another"); served.Load() < 50; {
					w.ping(another)
				}
				t.ok(w.listener.Close(), "close")
				closed.Store(true)
				called()
			}
		}},
		{"a server that closes tells its clients nothing about each other", func(t *transportTest) {
			w := t.stubWorld()
			others := []*stubSession{w.ping(w.dial("b")), w.ping(w.dial("c")), w.ping(w.conn)}
			told := together(len(others), func(i int) { // as a broker does when a member leaves
				<-others[i].closed
				for _, o := range others {
					o.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "G"})
				}
			})
			t.ok(w.listener.Close(), "close")
			for _, s := range others {
				await(t, s.closed, "the end of a session")
			}
			told()
			if n := len(w.peer.notices); n > 0 {
				t.Errorf("%d notices arrived", n)
			}
		}},
	}
}

func claimCases() []transportCase {
	return []transportCase{
		{"a client of a group is there once", func(t *transportTest) {
			release, err := t.Claim("G", "id")
			t.ok(err, "the first claim")
			_, err = t.Claim("G", "id")
			t.is(err, "a second claim", pocketmq.ErrDuplicateClient)
			other, err := t.Claim("H", "id")
			t.ok(err, "in another group")
			release()
			again, err := t.Claim("G", "id")
			t.ok(err, "after the release")
			release()
			_, err = t.Claim("G", "id")
			t.is(err, "a claim after a second release of the first one", pocketmq.ErrDuplicateClient)
			again()
			other()
		}},
	}
}
