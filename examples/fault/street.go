package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// street is all shops, beside each other on one cluster, and what befalls the
// brokers.
type street struct {
	story   *walk.Story
	log     *walk.Log
	cluster *pocketmq.Cluster
	shops   []*shop
	trading sync.WaitGroup
	closing context.CancelFunc

	ailments []ailment
	moments  []walk.Moment
	healed   time.Duration
}

// open opens a shop for each preset, and all begin to trade.
func (s *street) open(ctx context.Context, presets []preset) error {
	ctx, s.closing = context.WithCancel(ctx)
	for _, p := range presets {
		shop, err := open(ctx, p, s.story.Clock, s.cluster)
		if err != nil {
			s.close()
			return err
		}
		s.shops = append(s.shops, shop)
		s.trading.Go(func() { shop.trade(ctx) })
	}
	return nil
}

// close ends the trade.
func (s *street) close() {
	s.closing()
	s.trading.Wait()
}

// ailment is what was wrong with a broker from when till when.
type ailment struct {
	broker, what string // "slow" or "failing"
	from, till   time.Duration
}

// never is the end of what has not ended.
const never = time.Duration(1<<63 - 1)

// strike makes a broker slow, or fail, for all shops.
func (s *street) strike(broker, what string, act func(*shop, string)) {
	now := s.story.Clock.Now()
	s.ailments = append(s.ailments, ailment{broker, what, now, never})
	s.moments = append(s.moments, walk.Moment{At: now, Text: letter(broker) + " is " + what})
	for _, shop := range s.shops {
		act(shop, broker)
	}
}

// heal makes all brokers well.
func (s *street) heal() {
	for _, shop := range s.shops {
		shop.heal()
	}
	s.healed = s.story.Clock.Now()
	for i := range s.ailments {
		s.ailments[i].till = s.healed
	}
	s.moments = append(s.moments, walk.Moment{At: s.healed, Text: "all are well"})
}

// sick tells whether something is wrong with a broker at a moment.
func (s *street) sick(broker string, at time.Duration) bool {
	return slices.ContainsFunc(s.ailments, func(a ailment) bool { return a.broker == broker && a.from <= at && at <= a.till })
}

// errStutter: this machine was so slow that a broker which is well counted as
// slow, or a slow one as much slower than it is. At speed 30 a pause of 18 ms is
// enough for that.
var errStutter = errors.New("this machine is too busy for this speed")

// stutters looks for what only the machine can be blamed for.
func (s *street) stutters() error {
	for _, e := range s.log.Since(0) {
		if e, ok := e.(pocketmq.BrokerAvoided); ok {
			began := s.story.Clock.At(e.Time.Add(-e.Latency))
			underway := s.story.Clock.Cluster(time.Millisecond) // it may have been on its way when the trouble began
			if !s.sick(e.Broker, began) && !s.sick(e.Broker, began+underway) {
				return fmt.Errorf("%w: %s took %s for a message, and nothing was wrong with it", errStutter, e.Broker, walk.Seconds(s.story.Clock.Cluster(e.Latency)))
			}
		}
	}
	for _, shop := range s.shops {
		if _, longest := shop.between(0, never).took(); shop.preset.worse > 0 && longest >= shop.preset.worse {
			return fmt.Errorf("%w: a send took %s, and a slow broker takes %s", errStutter, walk.Seconds(longest), walk.Seconds(slowness))
		}
	}
	return nil
}

// phase lets time pass, and returns what each shop sold meanwhile.
func (s *street) phase(ctx context.Context, d time.Duration) ([]sales, time.Duration, error) {
	begin := s.story.Clock.Now()
	if err := s.story.Clock.Until(ctx, begin+d); err != nil {
		return nil, 0, err
	}
	out := make([]sales, len(s.shops))
	for i, shop := range s.shops {
		out[i] = shop.between(begin, begin+d)
	}
	return out, begin, s.stutters()
}

// print prints what each shop sold.
func (s *street) print(sold []sales) {
	s.story.Line("")
	s.story.Line("%-8s %6s %6s %6s %6s  %8s  %9s  %9s", "", "sends", "on a", "on b", "on c", "ran into", "mean", "longest")
	for i, shop := range s.shops {
		if len(sold[i]) == 0 {
			continue
		}
		mean, longest := sold[i].took()
		s.story.Line("%-8s %6d %6d %6d %6d  %8d  %6d ms  %6d ms", shop.preset.name, len(sold[i]),
			sold[i].on("broker-a"), sold[i].on("broker-b"), sold[i].on("broker-c"), sold[i].ranInto(""), mean.Milliseconds(), longest.Milliseconds())
	}
	s.story.Line("")
}

// tell prints from when till when each shop isolated whom, as far as that began
// in this phase.
func (s *street) tell(from time.Duration) {
	s.story.Line("")
	for _, shop := range s.shops {
		windows := make(map[string][]window)
		for _, w := range shop.windows(s.log.Since(0)) {
			if w.from >= from {
				windows[w.broker] = append(windows[w.broker], w)
			}
		}
		for _, broker := range brokers() {
			if all := windows[broker]; len(all) > 0 {
				var spans []string
				for _, w := range all[:min(len(all), 5)] {
					spans = append(spans, fmt.Sprintf("%.1f-%.1f", w.from.Seconds(), w.till.Seconds()))
				}
				if len(all) > 5 {
					spans = append(spans, fmt.Sprintf("and %d times more", len(all)-5))
				}
				s.story.Line("%-8s isolates %s  %s s", shop.preset.name, letter(broker), strings.Join(spans, "  "))
			}
		}
	}
}

// all checks something of every shop.
func (s *street) all(sold []sales, what string, holds func(preset, sales) bool) error {
	for i, shop := range s.shops {
		if !holds(shop.preset, sold[i]) {
			return fmt.Errorf("%s: not true of %s", what, shop.preset.name)
		}
	}
	s.story.Checked("%s", what)
	return nil
}

// of checks something of one preset, if it is looked at.
func (s *street) of(name string, sold []sales, what string, holds func(sales) bool) error {
	for i, shop := range s.shops {
		if shop.preset.name != name {
			continue
		}
		if !holds(sold[i]) {
			return fmt.Errorf("%s: %s: not true", name, what)
		}
		s.story.Checked("%s: %s", name, what)
	}
	return nil
}
