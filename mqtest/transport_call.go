package mqtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func callCases() []transportCase {
	return []transportCase{
		{"an error has the code, the remark and the server of who refused", func(t *transportTest) {
			w := t.stubWorld()
			refusal := &pocketmq.Error{Code: protocol.NoPermission, Remark: "no: größe\nand \"more\"", Broker: "broker-a"}
			for what, given := range map[string]error{"as it is": refusal, "wrapped": fmt.Errorf("more: %w", refusal)} {
				w.serve = func(context.Context, *stubSession, string, any) (any, error) { return nil, given }
				r, err := w.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
				t.refused(what, refusal, err)
				t.is(err, what, pocketmq.ErrNoPermission)
				if r != nil {
					t.Errorf("%s: a refused request has a response, %+v", what, r)
				}
			}
		}},
		{"any other error of a server is a system error with its text", func(t *transportTest) {
			w := t.stubWorld()
			for _, given := range []error{errors.New("broken"), pocketmq.ErrNoRoute, context.DeadlineExceeded} {
				w.serve = func(context.Context, *stubSession, string, any) (any, error) { return nil, given }
				_, err := w.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
				var e *pocketmq.Error
				if !errors.As(err, &e) || e.Code != protocol.SystemError || e.Remark != given.Error() || e.Broker == "" {
					t.Errorf("%q became %#v", given, err)
				}
				t.not(err, "an error of the server's own", pocketmq.ErrNoRoute, context.DeadlineExceeded, pocketmq.ErrUnknownOutcome)
			}
		}},
		{"a message that was stored, but not as asked, comes beside its error", func(t *transportTest) {
			w := t.stubWorld()
			stored := &protocol.SendMessageResponse{MsgID: "id", QueueID: 1, QueueOffset: 2}
			for code, sentinel := range map[protocol.Code]error{
				protocol.FlushDiskTimeout: pocketmq.ErrFlushDiskTimeout, protocol.FlushSlaveTimeout: pocketmq.ErrFlushSlaveTimeout, protocol.SlaveNotAvailable: pocketmq.ErrSlaveNotAvailable,
			} {
				late := &pocketmq.Error{Code: code, Remark: "late", Broker: "broker-a"}
				w.serve = func(context.Context, *stubSession, string, any) (any, error) { return stored, late }
				r, err := w.conn.SendMessage(t.Context(), &protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.UnixMilli(1)})
				t.refused("the error", late, err)
				t.is(err, "the error", sentinel)
				t.equal("the response", stored, r)
			}
		}},
		{"a deadline ends the call with an unknown outcome, and what serves it", func(t *transportTest) {
			w := t.stubWorld()
			begun, ended := w.hold("PullMessage")
			ctx, cancel := t.within(300 * time.Millisecond)
			defer cancel()
			_, err := pull(ctx, w.conn)
			t.unknownOutcome(err, "after the deadline", context.DeadlineExceeded)
			await(t, begun, "the request at the server")
			t.is(await(t, ended, "the end of the handler's ctx"), "the handler's ctx", context.DeadlineExceeded)
			w.ping(w.conn) // the connection is none the worse for it
		}},
		{"a cancelled call has an unknown outcome, and what serves it ends", func(t *transportTest) {
			w := t.stubWorld()
			begun, ended := w.hold("PullMessage", "SendMessage", "GetMaxOffset", "UpdateConsumerOffset")
			calls := []func(context.Context) error{
				func(ctx context.Context) error { _, err := pull(ctx, w.conn); return err }, // the first of the connection
				func(ctx context.Context) error {
					_, err := w.conn.SendMessage(ctx, &protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.UnixMilli(1)})
					return err
				},
				func(ctx context.Context) error {
					_, err := w.conn.GetMaxOffset(ctx, &protocol.GetMaxOffsetRequest{Topic: "T"})
					return err
				},
				func(ctx context.Context) error {
					_, err := w.conn.UpdateConsumerOffset(ctx, &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T"})
					return err
				},
			}
			for _, call := range slices.Concat(calls, calls) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				called := beside(func() (struct{}, error) { return struct{}{}, call(ctx) })
				await(t, begun, "the request at the server")
				cancel()
				t.unknownOutcome(await(t, called, "the end of the call").err, "after the cancel", context.Canceled)
				t.is(await(t, ended, "the end of the handler's ctx"), "the handler's ctx", context.Canceled)
			}
			w.ping(w.conn)
		}},
		{"a cancelled call ends nothing else", func(t *transportTest) {
			w := t.stubWorld()
			begun, ended := w.hold("PullMessage")
			const calls = 20
			var cancels [calls]context.CancelFunc
			var pulls [calls]<-chan result[*protocol.PullMessageResponse]
			for i := range calls {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancels[i] = cancel
				pulls[i] = beside(func() (*protocol.PullMessageResponse, error) { return pull(ctx, w.conn) })
				await(t, begun, "a pull at the server")
			}
			other := w.dial("other")
			kept := beside(func() (*protocol.PullMessageResponse, error) { return pull(t.Context(), other) })
			await(t, begun, "a pull of another client at the server")
			for i := 0; i < calls; i += 2 {
				cancels[i]()
				t.unknownOutcome(await(t, pulls[i], "the end of a call").err, "after the cancel", context.Canceled)
				await(t, ended, "the end of its handler's ctx")
				w.ping(w.conn)
			}
			if n := len(ended); n > 0 {
				t.Errorf("%d handlers ended without a cancel", n)
			}
			t.ok(w.conn.Close(), "close")
			for i := 1; i < calls; i += 2 {
				t.unknownOutcome(await(t, pulls[i], "the end of a call").err, "after the close")
				await(t, ended, "the end of its handler's ctx")
			}
			t.ok(other.Close(), "close")
			await(t, kept, "the end of the other client's call")
		}},
		{"a call whose ctx has ended is not sent", func(t *transportTest) {
			w := t.stubWorld()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := pull(ended, w.conn)
			t.notSent(err, "cancelled", context.Canceled)
			_, err = w.conn.UpdateConsumerOffset(ended, &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Oneway: true})
			t.notSent(err, "cancelled, oneway", context.Canceled)
			t.equal("methods served", []string{"GetMinOffset"}, w.ping(w.conn).methods())
		}},
		{"an answer that is late for its caller does not reach the next one", func(t *transportTest) {
			w := t.stubWorld()
			release := make(chan struct{})
			w.serve = func(_ context.Context, _ *stubSession, method string, q any) (any, error) {
				if q, ok := q.(*protocol.GetMaxOffsetRequest); ok {
					if q.QueueID == 0 {
						<-release // whatever becomes of its ctx
					}
					return &protocol.GetMaxOffsetResponse{Offset: int64(q.QueueID)}, nil
				}
				return nil, nil
			}
			ctx, cancel := t.within(50 * time.Millisecond)
			defer cancel()
			late := beside(func() (*protocol.GetMaxOffsetResponse, error) {
				return w.conn.GetMaxOffset(ctx, &protocol.GetMaxOffsetRequest{Topic: "T"})
			})
			<-ctx.Done()
			close(release)
			for i := range 100 {
				r, err := w.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T", QueueID: i + 1})
				t.ok(err, "a later call")
				t.equal("its answer", int64(i+1), r.Offset)
			}
			await(t, late, "the end of the late call") // an answer beside a deadline that has just passed may count
		}},
		{"calls on one connection run side by side", func(t *transportTest) {
			w := t.stubWorld()
			held, release := make(chan struct{}, 64), make(chan struct{})
			w.serve = func(ctx context.Context, _ *stubSession, method string, q any) (any, error) {
				switch q := q.(type) {
				case *protocol.PullMessageRequest:
					held <- struct{}{}
					select {
					case <-release:
					case <-ctx.Done():
					}
					return &protocol.PullMessageResponse{Code: protocol.PullNotFound, NextBeginOffset: q.Offset}, nil
				case *protocol.GetMaxOffsetRequest:
					return &protocol.GetMaxOffsetResponse{Offset: int64(q.QueueID)}, nil
				}
				return nil, nil
			}
			const pulls, callers, calls = 32, 16, 50
			pulled := together(pulls, func(i int) {
				r, err := w.conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "G", Topic: "T", Offset: int64(i), Suspend: time.Minute})
				if err != nil || r.NextBeginOffset != int64(i) {
					t.Errorf("pull %d: %+v, %v", i, r, err)
				}
			})
			for range pulls {
				await(t, held, "a pull at the server")
			}
			called := together(callers, func(c int) {
				for i := range calls {
					r, err := w.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T", QueueID: c*calls + i})
					if err != nil || r.Offset != int64(c*calls+i) {
						t.Errorf("call %d of %d: %+v, %v", i, c, r, err)
						return
					}
				}
			})
			called() // while the pulls are held
			close(release)
			pulled()
		}},
		{"bodies of megabytes arrive whole, both ways", func(t *transportTest) {
			w := t.stubWorld()
			body := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
			records := make([][]byte, 8)
			for i := range records {
				records[i] = append([]byte{0, 0x10, 0, 4}, bytes.Repeat([]byte{byte(i)}, 1<<20)...)
			}
			var got []byte
			w.serve = func(_ context.Context, _ *stubSession, _ string, q any) (any, error) {
				if q, ok := q.(*protocol.SendMessageRequest); ok {
					got = bytes.Clone(q.Body)
					return nil, nil
				}
				return &protocol.PullMessageResponse{Records: records}, nil
			}
			for range 3 {
				_, err := w.conn.SendMessage(t.Context(), &protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.UnixMilli(1), Properties: strings.Repeat("p", 32767), Body: body})
				t.ok(err, "send")
				if !bytes.Equal(body, got) {
					t.Fatalf("a body of %d bytes arrived with %d, or others", len(body), len(got))
				}
				r, err := pull(t.Context(), w.conn)
				t.ok(err, "pull")
				if len(r.Records) != len(records) || !bytes.Equal(bytes.Join(records, nil), bytes.Join(r.Records, nil)) {
					t.Fatalf("%d records of 1 MiB arrived as %d, or others", len(records), len(r.Records))
				}
			}
		}},
	}
}

func onewayCases() []transportCase {
	return []transportCase{
		{"a oneway request has no answer, not even an error", func(t *transportTest) {
			w := t.stubWorld()
			served := make(chan any, 3)
			w.serve = func(_ context.Context, _ *stubSession, _ string, q any) (any, error) {
				served <- q
				return nil, &pocketmq.Error{Code: protocol.NoPermission, Remark: "no"}
			}
			send := &protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.UnixMilli(1), Body: []byte("x"), Oneway: true}
			s, err := w.conn.SendMessage(t.Context(), send)
			t.ok(err, "send")
			t.equal("what is served", any(send), await(t, served, "the send"))
			commit := &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Offset: 7, Oneway: true}
			u, err := w.conn.UpdateConsumerOffset(t.Context(), commit)
			t.ok(err, "commit")
			t.equal("what is served", any(commit), await(t, served, "the commit"))
			unlock := &protocol.UnlockQueuesRequest{Group: "G", ClientID: "id", Queues: []pocketmq.MessageQueue{{Topic: "T", BrokerName: "broker-a"}}, Oneway: true}
			l, err := w.conn.UnlockQueues(t.Context(), unlock)
			t.ok(err, "unlock")
			t.equal("what is served", any(unlock), await(t, served, "the unlock"))
			notice := &protocol.NotifyMinBrokerIDRequest{BrokerName: "broker-a", MinBrokerID: 1, MinBrokerAddr: "127.0.0.1:1", OfflineAddr: "127.0.0.1:2", HAAddr: "127.0.0.1:3", Oneway: true}
			n, err := w.conn.NotifyMinBrokerID(t.Context(), notice)
			t.ok(err, "notice")
			t.equal("what is served", any(notice), await(t, served, "the notice"))
			if s != nil || u != nil || l != nil || n != nil {
				t.Errorf("there are responses: %v, %v, %v, %v", s, u, l, n)
			}
		}},
		{"oneway requests are served in their order, and what comes after them later", func(t *transportTest) {
			w := t.stubWorld()
			var last int64
			w.serve = func(_ context.Context, _ *stubSession, _ string, q any) (any, error) {
				switch q := q.(type) {
				case *protocol.UpdateConsumerOffsetRequest:
					if q.Offset != last+1 {
						t.Errorf("commit %d is served after %d", q.Offset, last)
					}
					last = q.Offset
				case *protocol.GetMaxOffsetRequest:
					return &protocol.GetMaxOffsetResponse{Offset: last}, nil
				}
				return nil, nil
			}
			for i := range int64(300) {
				_, err := w.conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Offset: i + 1, Oneway: true})
				t.ok(err, "commit")
				if i%10 == 0 {
					r, err := w.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
					t.ok(err, "a call")
					t.equal("commits served before a call that was made after them", i+1, r.Offset)
				}
			}
		}},
		{"the memory of a request is its caller's again once the call has returned", func(t *transportTest) {
			w := t.stubWorld()
			served := make(chan string, 100)
			w.serve = func(_ context.Context, _ *stubSession, _ string, q any) (any, error) {
				served <- string(q.(*protocol.SendMessageRequest).Body)
				return nil, nil
			}
			q := &protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.UnixMilli(1), Body: make([]byte, 3), Oneway: true}
			for i := range 100 {
				copy(q.Body, fmt.Sprintf("%03d", i))
				_, err := w.conn.SendMessage(t.Context(), q)
				t.ok(err, "send")
				copy(q.Body, "xxx")
			}
			for i := range 100 {
				t.equal("a body", fmt.Sprintf("%03d", i), await(t, served, "a send"))
			}
		}},
		{"what a client sends oneway before it closes is served", func(t *transportTest) {
			w := t.stubWorld()
			s := w.ping(w.conn)
			for range 200 {
				_, err := w.conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Oneway: true})
				t.ok(err, "commit")
			}
			t.ok(w.conn.Close(), "close")
			await(t, s.closed, "the end of the session")
			t.equal("requests served by the end of the session", 201, len(s.methods()))
		}},
	}
}

// refused demands that err is an answer of a server.
func (t *transportTest) refused(what string, want *pocketmq.Error, err error) {
	t.Helper()
	var e *pocketmq.Error
	if !errors.As(err, &e) {
		t.Fatalf("%s: want an *Error, got %v", what, err)
	}
	t.equal(what, want, e)
	t.not(err, what, pocketmq.ErrUnreachable, pocketmq.ErrUnknownOutcome)
}
