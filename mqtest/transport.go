package mqtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq"
)

// TestTransport is the conformance suite of transports: whoever writes a
// pocketmq.Transport runs it, and learns whether clusters work over it as they
// do in memory and over TCP, with the same results and the same errors.
//
//	func TestMyTransport(t *testing.T) {
//		mqtest.TestTransport(t, func(t *testing.T) pocketmq.Transport { return mine.New() })
//	}
//
// make is called once for each case, with the case's t; what the transport holds
// is given back by t.Cleanup. Cases run one after the other, in real time, each
// as a subtest whose name states the rule that it tests: half of them talk to
// servers of the suite, which shows what a transport does wrong, the others to
// whole clusters. The suite waits for events, never for a time to pass, so that it
// takes seconds. It needs a transport within one process, whose addresses are IP
// literals with ports; 127.0.0.1 has to be one that can be listened on.
func TestTransport(t *testing.T, make func(t *testing.T) pocketmq.Transport) {
	for _, c := range transportCases() {
		t.Run(c.name, func(t *testing.T) { c.over(t, make) })
	}
}

// TestTransportInBubble is TestTransport with each case in a testing/synctest
// bubble of its own: with RocketMQ's timings, in virtual time. It is for
// transports of which everything that waits is durably blocked, as it is in
// memory and on a net.Pipe, but not on a socket. make is called in the bubble.
func TestTransportInBubble(t *testing.T, make func(t *testing.T) pocketmq.Transport) {
	for _, c := range transportCases() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.over(t, make) })
		})
	}
}

// transportCase is a rule that every transport keeps.
type transportCase struct {
	name string
	test func(t *transportTest)
}

// transportCases lists all cases. No two have one name.
func transportCases() []transportCase {
	return slices.Concat(
		dialCases(), methodCases(), callCases(), onewayCases(), sessionCases(), peerCases(), listenCases(), claimCases(), streamCases(),
		startCases(), sendCases(), consumeCases(), failureCases(), pollCases(), adminCases(), groupCases(), crashCases(),
	)
}

func (c transportCase) over(t *testing.T, make func(t *testing.T) pocketmq.Transport) {
	c.test(&transportTest{T: t, Transport: make(t)})
}

// transportTest is one case over one transport. Methods that report a failure
// end the case, so that they are for its own goroutine.
type transportTest struct {
	*testing.T
	pocketmq.Transport
}

// patience is how long a case waits for what has to happen, before it gives up.
// Virtual time costs nothing, and RocketMQ's intervals are long.
func (t *transportTest) patience() time.Duration {
	if inBubble() {
		return 10 * time.Minute
	}
	return 30 * time.Second
}

// ok ends the case on an error.
func (t *transportTest) ok(err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// is demands that err matches all of want.
func (t *transportTest) is(err error, what string, want ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error, want one that matches %q", what, want)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("%s: the error %q does not match %q", what, err, w)
		}
	}
}

// not demands that err matches none of unwanted.
func (t *transportTest) not(err error, what string, unwanted ...error) {
	t.Helper()
	for _, u := range unwanted {
		if errors.Is(err, u) {
			t.Fatalf("%s: the error %q matches %q, which it must not", what, err, u)
		}
	}
}

// unknownOutcome demands the error of a request that may have been served.
func (t *transportTest) unknownOutcome(err error, what string, want ...error) {
	t.Helper()
	t.is(err, what, append(want, pocketmq.ErrUnknownOutcome)...)
	t.not(err, what, pocketmq.ErrUnreachable)
	t.unanswered(err, what)
}

// notSent demands the error of a request that nobody has got.
func (t *transportTest) notSent(err error, what string, want ...error) {
	t.Helper()
	t.is(err, what, append(want, pocketmq.ErrUnreachable)...)
	t.not(err, what, pocketmq.ErrUnknownOutcome)
	t.unanswered(err, what)
}

// unanswered demands that err is not one that a server answered.
func (t *transportTest) unanswered(err error, what string) {
	t.Helper()
	if e := (*pocketmq.Error)(nil); errors.As(err, &e) {
		t.Fatalf("%s: the error %q holds an *Error, which only an answer of a server does", what, err)
	}
}

// equal demands that two values are the same to whoever uses them.
func (t *transportTest) equal(what string, want, got any) {
	t.Helper()
	if d := difference(want, got); d != "" {
		t.Fatalf("%s: %s", what, d)
	}
}

// within is the ctx of something that has to be done soon.
func (t *transportTest) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// await waits for a value.
func await[V any](t *transportTest, c <-chan V, what string) V {
	t.Helper()
	timer := time.NewTimer(t.patience())
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("%s: not within %v", what, t.patience())
		panic("unreachable")
	}
}

// together calls f for 0 to below n, all at the same time. done returns when all
// calls have.
func together(n int, f func(i int)) (done func()) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	return all.Wait
}

// result is what a call on another goroutine came to.
type result[V any] struct {
	v   V
	err error
}

// beside calls f on a goroutine of its own.
func beside[V any](f func() (V, error)) <-chan result[V] {
	c := make(chan result[V], 1) // nobody has to wait for it
	go func() {
		v, err := f()
		c <- result[V]{v, err}
	}()
	return c
}
