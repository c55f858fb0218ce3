// Fault shows how producers keep away from brokers that are slow or fail: the
// latency fault tolerance of RocketMQ 5, of RocketMQ 4, and a circuit breaker,
// beside a producer without any.
//
//	go run ./examples/fault
//	go run ./examples/fault -step -strategy V4
//	go run ./examples/fault -svg fault.svg
//
// Everything told is checked. It exits with 1 if something did not happen.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

func main() { walk.Main(program()) }

func program() walk.Program {
	p := walk.Program{
		Name: "fault",
		About: "Fault shows how producers keep away from brokers that are slow or fail: with the\n" +
			"settings of RocketMQ 5, of RocketMQ 4 and of a circuit breaker, on one time line.",
		Choice:  "the preset to look at, beside a producer without any",
		Choices: []string{"all"},
		Drawn:   "which broker was avoided when",
		Speed:   30,
		Fastest: 100,
		Examples: []string{
			"# two minutes of the cluster take four seconds",
			"-step # wait for Enter before each step",
			"-strategy V5 # RocketMQ 5's settings only",
			"-speed 10 -svg fault.svg # slower, and with a chart",
		},
		Run: run,
	}
	for _, preset := range presets()[1:] {
		p.Choices = append(p.Choices, preset.name)
	}
	return p
}

// run tells the story. What a machine that is too busy makes of it is no story:
// then it is told again, more slowly.
func run(ctx context.Context, s *walk.Story, o walk.Options) error {
	for try := 1; ; try++ {
		err := tell(ctx, s, o)
		if !errors.Is(err, errStutter) || try == 3 {
			return err
		}
		s.Say("%v. All of it again from the start, at half the speed: -speed %g.", err, s.Clock.Speed/2)
		s.Again(s.Clock.Speed / 2)
	}
}

func tell(ctx context.Context, s *walk.Story, o walk.Options) error {
	log := walk.NewLog()
	config := pocketmq.ClusterConfig{
		Topics:  map[string]int{topic: 4}, // on each broker
		Timings: s.Clock.Timings(),
		OnEvent: log.Record,
	}
	for _, broker := range brokers() {
		config.Groups = append(config.Groups, pocketmq.BrokerGroup{Name: broker})
	}
	cluster, err := pocketmq.StartCluster(ctx, config)
	if err != nil {
		return err
	}
	defer cluster.Close() // a second Close, as after the one below, does nothing

	all := &street{story: s, log: log, cluster: cluster}
	if err := all.open(ctx, chosen(o.Strategy)); err != nil {
		return err
	}
	defer all.close()
	for _, part := range []func(context.Context, *street) error{allWell, oneSlow, oneFails, allBad, recovery} {
		if err := part(ctx, all); err != nil {
			return err
		}
	}
	all.close()
	if err := all.end(o); err != nil {
		return err
	}
	return cluster.Close()
}

// allWell: nothing is wrong.
func allWell(ctx context.Context, s *street) error {
	s.story.Step("All is well")
	s.story.Say(`Three brokers, a, b and c, and a topic with 4 queues on each. Producers do the balancing: each takes the
		queues in turn. %d producers send ten messages a second each, and differ in whom they avoid:`, len(s.shops))
	s.story.Line("")
	for _, shop := range s.shops {
		s.story.Line("%-8s %s", shop.preset.name, shop.preset.about)
	}
	sold, _, err := s.phase(ctx, 5*time.Second+pace/2) // what comes then comes between two messages
	if err != nil {
		return err
	}
	s.print(sold)
	return s.all(sold, "everybody uses all brokers alike", evenly)
}

// oneSlow: b answers, but late.
func oneSlow(ctx context.Context, s *street) error {
	s.story.Step("b is slow")
	s.story.Say(`From now on b takes 600 ms for each message. That is no failure: the producer without settings goes on
		as before. The others count the time of each send. From 550 ms on the broker is isolated: it gets nothing
		as long as there is another one. When its time is up, the next message finds out how it is now.`)
	s.strike("broker-b", "slow", (*shop).slow)
	sold, begin, err := s.phase(ctx, 20*time.Second)
	if err != nil {
		return err
	}
	s.tell(begin)
	s.print(sold)
	if err := errors.Join(
		s.of("off", sold, "every third message is slow, at least 10 in these 20 s", func(v sales) bool { return v.ranInto("broker-b") >= 10 }),
		s.of("V5", sold, "a message runs into b about every 2 s", func(v sales) bool { n := v.ranInto("broker-b"); return 3 <= n && n <= 10 }),
		s.of("V4", sold, "one message ran into b, and was enough for 30 s", func(v sales) bool { return v.ranInto("broker-b") == 1 }),
		s.of("Breaker", sold, "one message ran into b, and was enough for a minute", func(v sales) bool { return v.ranInto("broker-b") == 1 }),
	); err != nil {
		return err
	}
	for _, shop := range s.shops {
		for _, w := range shop.windows(s.log.Since(0)) {
			if d := w.till - w.from; w.broker != "broker-b" || d > shop.preset.slow || d < shop.preset.slow-s.story.Clock.Slack()/10 {
				return fmt.Errorf("%s avoided %s for %s, expected: b for %s", shop.preset.name, w.broker, walk.Seconds(d), walk.Seconds(shop.preset.slow))
			}
		}
	}
	s.story.Checked("b was the only one avoided, each time for as long as the preset says")
	return nil
}

// oneFails: c refuses, and b is still slow.
func oneFails(ctx context.Context, s *street) error {
	s.story.Step("c fails, and b is still slow")
	s.story.Say(`c refuses every message from now on. A failed attempt is repeated on another broker, so nothing is lost;
		it costs an attempt. A failure isolates, too, and marks the broker as one that can't be reached. Breaker has
		a limit: of three brokers it keeps away from one at most, so that they don't all end up on the last one.
		The one that is isolated longest gets its share again, and so b and c take turns.`)
	s.strike("broker-c", "failing", (*shop).fail)
	sold, begin, err := s.phase(ctx, 20*time.Second)
	if err != nil {
		return err
	}
	s.tell(begin)
	s.print(sold)
	return errors.Join(
		s.all(sold, "no message is lost", func(_ preset, v sales) bool { return v.lost() == 0 && v.on("broker-c") == 0 }),
		s.of("off", sold, "messages run into c in every round of the queues", func(v sales) bool { return v.ranInto("broker-c") >= 3 }),
		s.of("V5", sold, "c is asked about every 10 s", func(v sales) bool { n := v.ranInto("broker-c"); return 1 <= n && n <= 3 }),
		s.of("V4", sold, "c is asked once", func(v sales) bool { return v.ranInto("broker-c") == 1 }),
		s.of("Breaker", sold, "never is everything on a alone, and the price is a message now and then that runs into trouble", func(v sales) bool {
			return v.on("broker-b") > 0 && v.ranInto("") > 5
		}),
	)
}

// allBad: none is good. Somebody has to take the messages all the same.
func allBad(ctx context.Context, s *street) error {
	s.story.Step("None is good: a is slow, too")
	s.story.Say(`Now every broker is isolated. The choice has three steps: a broker that is not isolated; else one that
		can be reached, slow or not; else any. So the slow ones take the messages, and c is left alone, except when its
		time is up. A client of one's own asks fault.Tracker.PickAtLeastOne for the second step.`)
	s.strike("broker-a", "slow", (*shop).slow)
	sold, _, err := s.phase(ctx, 10*time.Second)
	if err != nil {
		return err
	}
	shop := s.shops[len(s.shops)-1]
	for _, o := range s.shops {
		if o.preset.name == "V4" {
			shop = o
		}
	}
	table := shop.producer.FaultTable()
	s.story.Line("")
	s.story.Line("FaultTable of %s at %s:", shop.preset.name, walk.Seconds(s.story.Clock.Now()))
	s.story.Line("%-10s %15s %18s %10s", "broker", "last attempt", "avoided until", "reachable")
	for _, item := range table {
		s.story.Line("%-10s %12d ms %18s %10v", item.Broker, s.story.Clock.Cluster(item.Latency).Milliseconds(), walk.Seconds(s.story.Clock.At(item.AvailableFrom)), item.Reachable)
	}
	s.print(sold)
	picked := pickAtLeastOne(table, time.Now())
	return errors.Join(
		s.all(sold, "no message is lost, though no broker is good", func(_ preset, v sales) bool { return len(v) > 0 && v.lost() == 0 && v.on("broker-c") == 0 }),
		s.of("V5", sold, "all go to a and b; c is asked twice at most", func(v sales) bool { return v.ranInto("broker-c") <= 2 }),
		s.of("V4", sold, "all go to a and b; c is asked once at most", func(v sales) bool { return v.ranInto("broker-c") <= 1 }),
		s.pick(picked),
	)
}

// pick checks what PickAtLeastOne answers while a and b are slow and c fails.
func (s *street) pick(picked []string) error {
	if len(picked) != 2 || picked[0] != "broker-a" || picked[1] != "broker-b" {
		return fmt.Errorf("PickAtLeastOne names %v", picked)
	}
	s.story.Checked("PickAtLeastOne names a and b, never c")
	return nil
}

// recovery: all are well again.
func recovery(ctx context.Context, s *street) error {
	clock := s.story.Clock
	s.story.Step("All are well again")
	s.story.Say(`Nobody tells the producers. Each finds out when an isolation is over and the next message goes well: with
		V5 soon, with Breaker after a minute. That is what avoiding for long costs: a broker that was only restarted
		stands idle. ProducerConfig.Fault.Detect asks for the reachability meanwhile, and SetFault begins anew.`)
	s.heal()
	calm := make([]time.Duration, len(s.shops))
	for i, shop := range s.shops {
		for len(shop.isolated()) > 0 {
			if err := clock.Until(ctx, clock.Now()+pace); err != nil {
				return err
			}
		}
		calm[i] = s.lastWindow(shop)
		if d, limit := calm[i]-s.healed, max(shop.preset.slow, shop.preset.failing); d > limit+slowness+clock.Slack() {
			return fmt.Errorf("%s avoided somebody until %s after all were well, expected: at most %s", shop.preset.name, walk.Seconds(d), walk.Seconds(limit))
		}
	}
	meanwhile := make([]sales, len(s.shops))
	for i, shop := range s.shops {
		meanwhile[i] = shop.between(s.healed, calm[i])
	}
	sold, _, err := s.phase(ctx, 5*time.Second)
	if err != nil {
		return err
	}
	s.story.Line("")
	for i, shop := range s.shops {
		if calm[i] > s.healed {
			s.story.Line("%-8s avoided the last one until %s after that", shop.preset.name, walk.Seconds(calm[i]-s.healed))
		}
	}
	s.story.Say(`Until then the messages went where the table let them. V5 and V4 have no limit: whoever is out of isolation
		first gets everything. Breaker keeps away from one of three at most.`)
	s.print(meanwhile)
	s.story.Line("Then, in 5 s:")
	s.print(sold)
	s.story.Checked("nobody was avoided for longer than the preset says")
	everything := make([]sales, len(s.shops))
	for i, shop := range s.shops {
		everything[i] = shop.between(0, never)
	}
	return errors.Join(
		s.all(sold, "everybody uses all brokers alike again", evenly),
		s.all(everything, "no message was lost from the beginning to the end", func(_ preset, v sales) bool { return v.lost() == 0 }),
	)
}

// lastWindow tells when the last isolation of a shop is over.
func (s *street) lastWindow(shop *shop) time.Duration {
	var last time.Duration
	for _, w := range shop.windows(s.log.Since(0)) {
		last = max(last, w.till)
	}
	return last
}

// evenly: each broker has a third of the messages, more or less.
func evenly(_ preset, v sales) bool {
	for _, broker := range brokers() {
		if n := v.on(broker); n*5 < len(v) || n*2 > len(v) {
			return false
		}
	}
	return len(v) > 0
}

// end prints the time line, and draws it.
func (s *street) end(o walk.Options) error {
	until := s.story.Clock.Now()
	s.story.Step("On one time line")
	s.timeline(until)
	if o.SVG != "" {
		if err := s.chart(until).Write(o.SVG); err != nil {
			return err
		}
		s.story.Line("")
		s.story.Line("%s shows it, too.", o.SVG)
	}
	return nil
}
