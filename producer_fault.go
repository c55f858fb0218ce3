package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/fault"
	"github.com/pocketmq/pocketmq/protocol"
)

// faultTable is what a producer knows of sick brokers under one fault.Config.
// SetFault replaces it as a whole.
type faultTable struct {
	*fault.Tracker
	cfg fault.Config
}

// sickness is a producer's fault tolerance: its table, and the detector.
type sickness struct {
	table atomic.Pointer[faultTable]

	mu       sync.Mutex         // guards what follows, and replacements of table; a leaf
	life     context.Context    // of detectors; nil = none may run: before Start, and once Close has begun
	stop     context.CancelFunc // of the running detector; nil = none runs
	running  sync.WaitGroup     // detectors
	detector func(ctx context.Context, table *faultTable)
}

// set makes cfg, which is valid, count from now on, with an empty table.
func (s *sickness) set(cfg fault.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.Store(&faultTable{fault.NewTracker(cfg), cfg})
	s.detectLocked()
}

// start lets detectors run, until life ends.
func (s *sickness) start(life context.Context, detector func(context.Context, *faultTable)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life, s.detector = life, detector
	s.detectLocked()
}

// detectLocked replaces the running detector by one for the present table, if
// that wants one.
func (s *sickness) detectLocked() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	table := s.table.Load()
	if s.life == nil || !table.cfg.Enabled || !table.cfg.Detect {
		return
	}
	ctx, cancel := context.WithCancel(s.life)
	s.stop = cancel
	s.running.Go(func() { s.detector(ctx, table) }) // ends with ctx; close joins it
}

// close ends the detectors and joins them.
func (s *sickness) close() {
	s.mu.Lock()
	s.life = nil
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	s.mu.Unlock()
	s.running.Wait()
}

// SetFault replaces ProducerConfig.Fault while the producer runs, or before. It
// begins with an empty table: nobody is avoided. An unusable cfg is
// ErrInvalidConfig and changes nothing; after Close it is ErrClosed. It does not
// block. Java: setSendLatencyFaultEnable, setLatencyMax, setNotAvailableDuration,
// setStartDetectorEnable.
func (p *Producer) SetFault(cfg fault.Config) error {
	bad := problems{what: "fault.Config"}
	if err := cfg.Validate(); err != nil {
		bad.list = append(bad.list, err.Error())
	}
	if err := bad.err(); err != nil {
		return err
	}
	if err := p.life.use(); errors.Is(err, ErrClosed) {
		return err
	}
	p.sick.set(cfg)
	return nil
}

// FaultTable returns what the producer knows of the brokers that it has sent
// to, sorted by name: whom it avoids, until when and why. It is the caller's. It
// is empty when ProducerConfig.Fault is not enabled.
func (p *Producer) FaultTable() []fault.Item { return p.sick.table.Load().Items() }

// report tells the table how an attempt at broker went that began at begin and
// got res and err. ctx is the caller's.
//
// Java: MQFaultStrategy.updateFaultItem as DefaultMQProducerImpl calls it.
// Differs: an answer that refuses the message as it is (13 and the like) speaks
// for the broker, not against it: there one bad message isolates good brokers.
// Sends to a chosen queue are reported too, and a oneway send that has left says
// nothing: there it is the other way round.
func (p *Producer) report(ctx context.Context, out *outgoing, broker string, res *SendResult, err error, begin time.Time) {
	table := p.sick.table.Load()
	if !table.cfg.Enabled || out.req.Oneway && err == nil {
		return
	}
	now := time.Now()
	failed, reachable := false, true
	var answered *protocol.Error
	switch {
	case err == nil || res != nil: // stored, be it not as asked
	case errors.As(err, &answered):
		failed = retriable(err)
		reachable = !failed || out.async // an asynchronous send leaves it to others to find out
	case errors.Is(err, errNoMaster) || p.ctx.Err() != nil || ended(ctx, now):
		// The caller's own doing, or nobody was asked.
	default:
		failed, reachable = true, !table.cfg.Detect
	}
	latency := now.Sub(begin)
	until, began := table.Observe(broker, latency, failed, reachable, now)
	if !began {
		return
	}
	p.log.Info("broker avoided", "broker", broker, "latency", latency, "until", until, "err", err)
	p.events.emit(p.id.clientID, func(b EventBase) Event { return BrokerAvoided{b, broker, latency, until} })
}

// ended tells whether ctx is over at now, also when its timer is the second one
// of this instant.
func ended(ctx context.Context, now time.Time) bool {
	if ctx.Err() != nil {
		return true
	}
	d, ok := ctx.Deadline()
	return ok && !now.Before(d)
}

// errNoMaster tells that a broker has no address to send to. It stays inside the
// package.
var errNoMaster = fmt.Errorf("no known master: %w", ErrUnreachable)

// notRetried says which brokers of a failed send's route it has kept away from
// because the table says so, each with until when: those that it has not tried,
// and those that it has tried only before others.
func (p *Producer) notRetried(route []MessageQueue, tried []attempt) []string {
	table := p.sick.table.Load()
	if !table.cfg.Enabled || len(tried) == 0 {
		return nil
	}
	now := time.Now()
	var out []string
	for _, item := range table.Items() {
		if !now.Before(item.AvailableFrom) || tried[len(tried)-1].broker == item.Broker ||
			!slices.ContainsFunc(route, func(q MessageQueue) bool { return q.BrokerName == item.Broker }) {
			continue
		}
		what := "not tried"
		if slices.ContainsFunc(tried, func(a attempt) bool { return a.broker == item.Broker }) {
			what = "not retried"
		}
		out = append(out, fmt.Sprintf("%s: %s, avoided until %s", item.Broker, what, item.AvailableFrom.Format(time.TimeOnly)))
	}
	return out
}
