package mqtest

import (
	"context"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

func sessionCases() []transportCase {
	return []transportCase{
		{"a client that closes is gone at once, with what it waited for", func(t *transportTest) {
			w := t.stubWorld()
			begun, ended := w.hold("PullMessage")
			called := beside(func() (*protocol.PullMessageResponse, error) { return pull(t.Context(), w.conn) })
			s := await(t, begun, "the request at the server")
			t.ok(w.conn.Close(), "close")
			t.unknownOutcome(await(t, called, "the end of the call").err, "the call in flight")
			await(t, s.closed, "the end of the session at the server")
			t.is(await(t, ended, "the end of the handler's ctx"), "the handler's ctx", context.Canceled)
			t.equal("how often the session was closed", 1, s.timesClosed())

			_, err := pull(t.Context(), w.conn)
			t.notSent(err, "a call on a closed connection")
			_, err = w.conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Oneway: true})
			t.notSent(err, "a oneway call on a closed connection")
			t.ok(w.conn.Close(), "a second close")
			if a, tells := w.conn.(interface{ Alive() bool }); tells && a.Alive() {
				t.Error("a closed connection says that it is alive")
			}
			t.equal("methods served", []string{"PullMessage"}, s.methods())
			w.ping(w.dial("client"))
		}},
		{"a connection that is closed by many is closed once at the server", func(t *transportTest) {
			w := t.stubWorld()
			s := w.ping(w.conn)
			closed := together(8, func(int) {
				if err := w.conn.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			closed()
			await(t, s.closed, "the end of the session")
			t.ok(w.listener.Close(), "close of the listener")
			t.equal("how often the session was closed", 1, s.timesClosed())
		}},
		{"one session that ends leaves the others alone", func(t *transportTest) {
			w := t.stubWorld()
			other := w.dial("other")
			s := w.ping(other)
			gone := w.ping(w.conn)
			t.ok(w.conn.Close(), "close")
			await(t, gone.closed, "the end of the session")
			if w.ping(other) != s {
				t.Error("the other session is a new one")
			}
			t.equal("how often the other session was closed", 0, s.timesClosed())
		}},
		{"a session lives as long as requests cross it", func(t *transportTest) {
			// In real time this says little, in virtual time a lot.
			w := t.stubWorld()
			s := w.ping(w.conn)
			pause := time.Millisecond
			if inBubble() {
				pause = time.Minute
			}
			for range 10 {
				timer := time.NewTimer(pause)
				<-timer.C
				if w.ping(w.conn) != s {
					t.Fatal("the session is a new one")
				}
			}
		}},
		{"a session that has rested fails no call with an unknown outcome", func(t *transportTest) {
			w := t.stubWorld()
			w.ping(w.conn)
			if !inBubble() {
				return // it would take minutes
			}
			for rest := 90 * time.Second; rest <= 3*time.Minute; rest += 5 * time.Second {
				timer := time.NewTimer(rest)
				<-timer.C
				_, err := w.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
				if err != nil {
					t.notSent(err, "a call after a rest of "+rest.String())
					w.conn = w.dial("client") // as whoever holds it does
					w.ping(w.conn)
				}
			}
		}},
	}
}
