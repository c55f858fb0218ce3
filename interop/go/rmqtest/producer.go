package rmqtest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	officialerrors "github.com/apache/rocketmq-client-go/v2/errors"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/pocketmq/pocketmq"
)

// arriveWithin bounds how long Shutdown of a producer waits for the brokers to have
// read what was sent oneway.
const arriveWithin = 3 * time.Second

// answersAfter is how much longer than a send may take Shutdown waits for its callback.
const answersAfter = time.Second

// Producer starts an official producer for t, which ends with it. opts come
// after those that the package sets (name servers, an instance name), so they
// win. Whatever goes wrong ends the test.
//
// It retries three times unless told otherwise, with producer.WithRetry, and
// creates topics where brokers let it. Close it earlier with its Shutdown, which
// beyond the official one's doing loses nothing: it waits until the callbacks of
// asynchronous sends have returned, as long as a send may take and a second more,
// and up to 3 s until the brokers have read what was sent oneway. From its beginning
// on asynchronous sends are refused. Callbacks that have not been called by then are
// never called; their number is Shutdown's error, and fails the test.
//
// What a callback panics with goes to t.Log, and on: the official client makes
// nothing of it.
func Producer(t testing.TB, c *pocketmq.Cluster, opts ...producer.Option) rocketmq.Producer {
	t.Helper()
	ready(t, c)
	p := &lossless{t: t, cluster: c}
	var set settings
	all := []producer.Option{
		ownConnections[producer.Option](),
		producer.WithNsResolver(resolver{c}),
		producer.WithInstanceName(instanceName(t)),
	}
	all = append(all, opts...)
	all = append(all, readSettings[producer.Option](&set))
	var err error
	tracing.during(c, func() { p.Producer, err = rocketmq.NewProducer(all...) })
	if err != nil {
		t.Fatalf("rmqtest: make a producer: %v", err)
	}
	p.wait = set.sendTimeout + answersAfter
	// Before the producer starts: it reads without a lock what this writes.
	p.asks, err = admin.NewAdmin(ownConnections[admin.AdminOption](), sameClient[admin.AdminOption](&set))
	if err != nil {
		set.endTraces()
		t.Fatalf("rmqtest: make a producer: %v", err)
	}
	if err := p.Start(); err != nil {
		set.endTraces() // no Shutdown, which would end the client whose group or name this one has
		t.Fatalf("rmqtest: start a producer: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(); err != nil {
			t.Errorf("rmqtest: shut a producer down: %v", err)
		}
	})
	return p
}

// lossless is an official producer whose Shutdown loses nothing.
//
// The official one does not wait for answers: callbacks are called with an error of the
// connection then, or never.
//
// And it closes its connections as soon as it has handed everything to the
// system. What a broker has not read then is thrown away by the system when answers
// lie unread, and they do: brokers answer oneway sends, which the client does not
// mark. An answer that comes after them on the same connection says that they
// have been read; what was read is done, whatever becomes of the connection.
//
// Consumers need none of this: all they say right before they end are a few commits,
// which fit into what a system takes at once, and is not thrown away.
type lossless struct {
	rocketmq.Producer
	t       testing.TB
	cluster *pocketmq.Cluster
	asks    admin.Admin   // of the same client, and so on the same connections; never closed, which would count as an end of the client
	wait    time.Duration // for callbacks
	oneway  atomic.Bool   // something was sent oneway
	once    sync.Once
	err     error

	mu       sync.Mutex    // guards the fields below; leaf
	awaited  int           // asynchronous sends whose callback has not been called
	running  int           // callbacks that have not returned
	ending   bool          // Shutdown has begun
	ended    bool          // Shutdown waits no longer: no callback begins
	finished chan struct{} // closed by the last callback after ending; nil before that, or without any
}

func (p *lossless) SendOneWay(ctx context.Context, msgs ...*primitive.Message) error {
	p.oneway.Store(true)
	return p.Producer.SendOneWay(ctx, msgs...)
}

func (p *lossless) SendAsync(ctx context.Context, callback func(context.Context, *primitive.SendResult, error), msgs ...*primitive.Message) error {
	p.mu.Lock()
	if p.ending {
		p.mu.Unlock()
		return officialerrors.ErrNotRunning
	}
	p.awaited++
	p.mu.Unlock()
	send := &asyncSend{}
	err := p.Producer.SendAsync(ctx, func(ctx context.Context, result *primitive.SendResult, err error) {
		if !p.begin(send) {
			return
		}
		defer p.leave()
		defer func() {
			if v := recover(); v != nil {
				p.t.Logf("rmqtest: the callback of an asynchronous send panicked: %v\n%s", v, debug.Stack())
				panic(v)
			}
		}()
		callback(ctx, result, err)
	}, msgs...)
	if err != nil {
		p.settle(send) // nobody calls the callback
	}
	return err
}

// asyncSend is an asynchronous send.
type asyncSend struct {
	settled bool // it is not awaited any more; guarded by lossless.mu
}

// settle ends the wait for a send.
func (p *lossless) settle(s *asyncSend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.settled {
		s.settled = true
		p.awaited--
	}
	p.look()
}

// begin begins a callback, unless Shutdown waits no longer; leave ends it.
func (p *lossless) begin(s *asyncSend) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	if !s.settled {
		s.settled = true
		p.awaited--
	}
	p.running++
	return true
}

func (p *lossless) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	p.look()
}

// look tells Shutdown when it has nothing to wait for. The caller holds mu.
func (p *lossless) look() {
	if p.finished != nil && p.awaited == 0 && p.running == 0 {
		close(p.finished)
		p.finished = nil
	}
}

func (p *lossless) Shutdown() error {
	p.once.Do(func() {
		p.err = p.answered()
		if p.oneway.Load() {
			p.arrived()
		}
		p.err = errors.Join(p.err, p.Producer.Shutdown())
	})
	return p.err
}

// answered lets no asynchronous send begin, and returns when the callbacks of all have
// returned. The official client calls each when the send timeout has passed, at the
// latest.
func (p *lossless) answered() error {
	finished := make(chan struct{})
	p.mu.Lock()
	p.ending = true
	p.finished = finished
	p.look()
	p.mu.Unlock()
	late := time.NewTimer(p.wait)
	defer late.Stop()
	select {
	case <-finished:
	case <-late.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.awaited == 0 && p.running == 0 {
		return nil
	}
	return fmt.Errorf("%d asynchronous sends have no answer and %d callbacks have not returned %v after Shutdown began: let the test wait for its callbacks", p.awaited, p.running, p.wait)
}

// arrived returns when all brokers have read what was sent to them. A broker that
// does not answer has ended, or a fault of the test keeps it from answering: what
// was sent to it is as lost as it would be to any client.
func (p *lossless) arrived() {
	var asked sync.WaitGroup
	for b := range p.cluster.Brokers() {
		asked.Go(func() {
			// Any question will do that changes nothing.
			if _, err := p.asks.GetAllSubscriptionGroup(context.Background(), b.Addr(), arriveWithin); err != nil {
				p.t.Logf("rmqtest: messages that were sent oneway to broker %s may be lost: %v", b.Name(), err)
			}
		})
	}
	asked.Wait()
}
