package mqtest

import (
	"context"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func dialCases() []transportCase {
	return []transportCase{
		{"a dial to where nobody listens is refused", func(t *transportTest) {
			l, err := t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, stubBroker{newStub()})
			t.ok(err, "listen")
			t.ok(l.Close(), "close")
			ctx, cancel := t.within(t.patience())
			defer cancel()
			start := time.Now()
			_, err = t.DialBroker(ctx, protocol.Dial{Node: "client", Addr: l.Addr()})
			t.notSent(err, "dial of a broker")
			t.not(err, "dial of a broker", context.DeadlineExceeded)
			_, err = t.DialNameServer(ctx, protocol.Dial{Node: "client", Addr: l.Addr()})
			t.notSent(err, "dial of a name server")
			if d := time.Since(start); d > t.patience()/2 {
				t.Errorf("the refusals took %v", d)
			}
		}},
		{"a dial whose ctx has ended is not made", func(t *transportTest) {
			w := t.stubWorld()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := t.DialBroker(ended, protocol.Dial{Node: "other", Addr: w.listener.Addr()})
			t.notSent(err, "cancelled", context.Canceled)
			late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			defer cancel()
			_, err = t.DialNameServer(late, protocol.Dial{Node: "other", Addr: w.listener.Addr()})
			t.notSent(err, "too late", context.DeadlineExceeded)
		}},
		{"an address that is none is refused by name", func(t *transportTest) {
			_, err := t.DialBroker(t.Context(), protocol.Dial{Node: "client", Addr: "nowhere"})
			t.is(err, "dial of a broker", pocketmq.ErrUnreachable, pocketmq.ErrInvalidConfig)
			_, err = t.DialNameServer(t.Context(), protocol.Dial{Node: "client", Addr: ""})
			t.is(err, "dial of a name server", pocketmq.ErrUnreachable, pocketmq.ErrInvalidConfig)
		}},
		{"a broker is no name server", func(t *transportTest) {
			w := t.stubWorld()
			conn, err := t.DialNameServer(t.Context(), protocol.Dial{Node: "client", Addr: w.listener.Addr()})
			if err != nil {
				return // it was seen at once
			}
			_, err = conn.GetAllTopics(t.Context(), &protocol.GetAllTopicsRequest{})
			t.is(err, "a request to the wrong kind of server")
			t.ok(conn.Close(), "close")
		}},
		{"callers have a name and an address", func(t *transportTest) {
			w := t.stubWorld()
			for _, node := range []string{"10.0.0.1@7#0badf00d", "broker-b/0", ""} {
				s := w.ping(w.dial(node))
				t.equal("the caller's node", node, s.Node)
				if !s.Remote.IsValid() || s.Remote.Port() == 0 || s.Remote.Addr().IsUnspecified() {
					t.Errorf("the caller %q comes from %v, which is no address", node, s.Remote)
				}
				if s.Peer == nil {
					t.Errorf("the session of %q has no Peer", node)
				}
			}
		}},
		{"each dial is a session of its own", func(t *transportTest) {
			w := t.stubWorld()
			first, second := w.ping(w.conn), w.ping(w.dial("client"))
			if first == second || first.Remote == second.Remote {
				t.Errorf("two sessions are one: %v, %v", first.Remote, second.Remote)
			}
		}},
	}
}
