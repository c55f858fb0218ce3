package mqtest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func peerCases() []transportCase {
	ask := &protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "client"}
	return []transportCase{
		{"notices of a server reach its client in their order", func(t *transportTest) {
			w := t.stubWorld()
			s := w.ping(w.conn)
			for i := range 100 {
				s.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: strconv.Itoa(i)})
			}
			for i := range 100 {
				t.equal("a notice", strconv.Itoa(i), await(t, w.peer.notices, "a notice"))
			}
		}},
		{"a server asks its client, also while it serves a request of it", func(t *transportTest) {
			w := t.stubWorld()
			w.peer.running = func(context.Context) (*protocol.GetConsumerRunningInfoResponse, error) {
				return exampleRunningInfo(), nil
			}
			r, err := w.ping(w.conn).Peer.GetConsumerRunningInfo(t.Context(), ask)
			t.ok(err, "a question")
			t.equal("its answer", exampleRunningInfo(), r)

			w.serve = func(ctx context.Context, s *stubSession, _ string, _ any) (any, error) {
				return s.Peer.GetConsumerRunningInfo(ctx, ask)
			}
			r, err = w.conn.GetConsumerRunningInfo(t.Context(), ask)
			t.ok(err, "a request that is answered with what the client says")
			t.equal("its answer", exampleRunningInfo(), r)
		}},
		{"an error of a client reaches the server that asked", func(t *transportTest) {
			w := t.stubWorld()
			s := w.ping(w.conn)
			_, err := s.Peer.GetConsumerRunningInfo(t.Context(), ask)
			var e *pocketmq.Error
			if !errors.As(err, &e) || e.Code != protocol.SystemError || e.Remark != "nothing runs" {
				t.Errorf("the error is %#v", err)
			}
		}},
		{"a question to a client ends with the ctx of the server, and so does what answers it", func(t *transportTest) {
			w := t.stubWorld()
			asked, ended := make(chan struct{}, 1), make(chan error, 1)
			w.peer.running = func(ctx context.Context) (*protocol.GetConsumerRunningInfoResponse, error) {
				asked <- struct{}{}
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, ctx.Err()
			}
			s := w.ping(w.conn)
			late, cancelLate := t.within(100 * time.Millisecond)
			defer cancelLate()
			_, err := s.Peer.GetConsumerRunningInfo(late, ask)
			t.is(err, "the question", context.DeadlineExceeded)
			await(t, asked, "the question at the client")
			t.is(await(t, ended, "the end of the client's ctx"), "the client's ctx", context.DeadlineExceeded)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			called := beside(func() (*protocol.GetConsumerRunningInfoResponse, error) {
				return s.Peer.GetConsumerRunningInfo(ctx, ask)
			})
			await(t, asked, "the question at the client")
			cancel()
			t.is(await(t, called, "the end of the question").err, "the question", context.Canceled)
			t.is(await(t, ended, "the end of the client's ctx"), "the client's ctx", context.Canceled)
			w.ping(w.conn)
		}},
		{"a client that is gone, or wants no calls, answers with an error", func(t *transportTest) {
			w := t.stubWorld()
			s := w.ping(w.conn)
			t.ok(w.conn.Close(), "close")
			await(t, s.closed, "the end of the session")
			_, err := s.Peer.GetConsumerRunningInfo(t.Context(), ask)
			var e *pocketmq.Error
			if !errors.As(err, &e) || e.Code != protocol.SystemError {
				t.Errorf("the error of one that is gone is %#v", err)
			}
			s.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "G"})

			conn, err := t.DialBroker(t.Context(), protocol.Dial{Node: "deaf", Addr: w.listener.Addr()})
			t.ok(err, "dial without a Peer")
			s = w.ping(conn)
			s.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "G"})
			_, err = s.Peer.GetConsumerRunningInfo(t.Context(), ask)
			if !errors.As(err, &e) {
				t.Errorf("the error of one without a Peer is %#v", err)
			}
			w.ping(conn)
			t.ok(conn.Close(), "close")
		}},
	}
}
