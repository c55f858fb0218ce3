package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
	"github.com/pocketmq/pocketmq/fault"
	"github.com/pocketmq/pocketmq/protocol"
)

const (
	topic    = "orders"
	pace     = 100 * time.Millisecond // a shop sends ten messages a second
	slowness = 600 * time.Millisecond // of a slow broker: more than the 550 ms from which on it counts
)

// brokers are the three of the cluster.
func brokers() []string { return []string{"broker-a", "broker-b", "broker-c"} }

// shop sends messages, one after the other, with a producer of one preset, and
// keeps account.
type shop struct {
	preset   preset
	clock    walk.Clock
	cluster  *pocketmq.Cluster
	producer *pocketmq.Producer

	mu       sync.Mutex                       // guards the fields below
	troubles map[string]*pocketmq.FaultHandle // by the broker that it has trouble with
	sales    []sale
	sighted  []sighting
}

// sale is one send.
type sale struct {
	at, took time.Duration
	broker   string   // that has it now; "" = the send failed
	sick     []string // brokers in trouble that were asked
	err      error
}

// sighting is a look into the producer's fault table: an isolation that was not
// there before, or has become longer.
type sighting struct {
	at, until time.Duration
	broker    string
}

func open(ctx context.Context, p preset, clock walk.Clock, cluster *pocketmq.Cluster) (*shop, error) {
	producer, err := cluster.StartProducer(ctx, pocketmq.ProducerConfig{
		InstanceName: p.name,
		Fault:        scaled(p.config, clock), // Producer.SetFault replaces it at run time
		SendTimeout:  10 * time.Second,        // brokers are slow here, not silent: nothing is to time out
	})
	if err != nil {
		return nil, err
	}
	return &shop{preset: p, clock: clock, cluster: cluster, producer: producer, troubles: make(map[string]*pocketmq.FaultHandle)}, nil
}

// trade sends until ctx ends.
func (s *shop) trade(ctx context.Context) {
	ticker := time.NewTicker(max(s.clock.Real(pace), time.Microsecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		before := s.hits()
		begin := time.Now()
		result, err := s.producer.Send(context.WithoutCancel(ctx), &pocketmq.Message{Topic: topic, Body: []byte("an order")})
		took := time.Since(begin)
		s.book(begin, took, result, err, before)
	}
}

// book notes how a send went, and looks into the fault table.
func (s *shop) book(begin time.Time, took time.Duration, result *pocketmq.SendResult, err error, before map[*pocketmq.FaultHandle]int) {
	sale := sale{at: s.clock.At(begin), took: s.clock.Cluster(took), err: err}
	if err == nil {
		sale.broker = result.Queue.BrokerName
	}
	table := s.producer.FaultTable()
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, broker := range brokers() {
		if h := s.troubles[broker]; h != nil && h.Hits() > before[h] {
			sale.sick = append(sale.sick, broker)
		}
	}
	s.sales = append(s.sales, sale)
	for _, item := range table {
		if item.AvailableFrom.IsZero() {
			continue
		}
		until := s.clock.At(item.AvailableFrom)
		known := slices.ContainsFunc(s.sighted, func(o sighting) bool { return o.broker == item.Broker && o.until == until })
		if !known {
			s.sighted = append(s.sighted, sighting{now, until, item.Broker})
		}
	}
}

// hits tells how often each trouble has been run into.
func (s *shop) hits() map[*pocketmq.FaultHandle]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[*pocketmq.FaultHandle]int)
	for _, h := range s.troubles {
		out[h] = h.Hits()
	}
	return out
}

// slow makes a broker take slowness for each message of this shop.
func (s *shop) slow(broker string) {
	s.trouble(broker, pocketmq.Fault{Delay: s.clock.Real(slowness)})
}

// fail makes a broker refuse each message of this shop.
func (s *shop) fail(broker string) {
	s.trouble(broker, pocketmq.Fault{Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "too busy"}})
}

func (s *shop) trouble(broker string, f pocketmq.Fault) {
	f.Code, f.Node, f.From = protocol.CodeSendMessage, broker+"/0", s.producer.ClientID()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubles[broker] = s.cluster.Inject(f)
}

// heal ends all troubles.
func (s *shop) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.troubles {
		h.Remove()
	}
	clear(s.troubles)
}

// between returns the sends that began after one moment and not after another.
func (s *shop) between(from, till time.Duration) sales {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out sales
	for _, v := range s.sales {
		if v.at > from && v.at <= till {
			out = append(out, v)
		}
	}
	return out
}

// window is a time in which a broker is avoided.
type window struct {
	broker     string
	from, till time.Duration
}

// windows makes the avoidance windows out of the events, which tell when each
// begins, and of the fault table, which tells when one becomes longer.
func (s *shop) windows(events []pocketmq.Event) []window {
	var out []window
	for _, e := range events {
		if e, ok := e.(pocketmq.BrokerAvoided); ok && e.Node == s.producer.ClientID() {
			out = append(out, window{e.Broker, s.clock.At(e.Time), s.clock.At(e.Until)})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.sighted {
		for i := len(out) - 1; i >= 0; i-- {
			if out[i].broker == g.broker && out[i].from <= g.at {
				out[i].till = max(out[i].till, g.until)
				break
			}
		}
	}
	return out
}

// isolated lists the brokers that the fault table avoids now.
func (s *shop) isolated() []string {
	var out []string
	for _, item := range s.producer.FaultTable() {
		if time.Now().Before(item.AvailableFrom) {
			out = append(out, item.Broker)
		}
	}
	return out
}

// sales are sends in the order of time.
type sales []sale

// on counts those that a broker has.
func (s sales) on(broker string) (n int) {
	for _, v := range s {
		if v.broker == broker {
			n++
		}
	}
	return n
}

// ranInto counts those that asked a broker in trouble; "" = any.
func (s sales) ranInto(broker string) (n int) {
	for _, v := range s {
		if slices.ContainsFunc(v.sick, func(b string) bool { return broker == "" || b == broker }) {
			n++
		}
	}
	return n
}

// lost counts those that failed.
func (s sales) lost() (n int) {
	for _, v := range s {
		if v.err != nil {
			n++
		}
	}
	return n
}

// took returns the mean and the longest time of a send.
func (s sales) took() (mean, longest time.Duration) {
	for _, v := range s {
		mean += v.took
		longest = max(longest, v.took)
	}
	return mean / time.Duration(max(len(s), 1)), longest
}

// letter is a broker's name for short.
func letter(broker string) string { return strings.TrimPrefix(broker, "broker-") }

// pickAtLeastOne is what a client of one's own may ask when all are avoided: a
// broker that can be reached, be it isolated. Here it is asked of a copy of the
// table, over and over.
func pickAtLeastOne(table []fault.Item, now time.Time) []string {
	copied := fault.NewTracker(fault.V5())
	for _, item := range table {
		copied.Report(item.Broker, item.Latency, false, item.Reachable, now)
	}
	var out []string
	for range 6 {
		if broker, ok := copied.PickAtLeastOne(now); ok && !slices.Contains(out, broker) {
			out = append(out, broker)
		}
	}
	slices.Sort(out)
	return out
}
