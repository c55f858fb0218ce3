package fault

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Config says when a producer avoids a broker, and for how long. The zero value
// avoids nobody. It is copied by whoever takes it. The names in brackets are
// Java's.
//
// An attempt of latency l isolates its broker for NotAvailable[i], where i is
// the last index with l >= LatencyMax[i]. One that failed counts as if it had
// taken IsolationLatency. An isolation never gets shorter, only longer.
type Config struct {
	// Enabled makes a Tracker keep the table. Without it nothing is recorded,
	// and only the broker of a send's last attempt is avoided, by its next one
	// (sendLatencyFaultEnable).
	Enabled bool

	// LatencyMax are the latencies from which on a broker is isolated, ascending
	// [50 100 550 1800 3000 5000 15000 ms] (latencyMax). NotAvailable says for
	// each for how long, 0 = not at all [0 0 2 5 6 10 30 s]
	// (notAvailableDuration). Both have the same length.
	LatencyMax, NotAvailable []time.Duration

	IsolationLatency time.Duration // the latency that counts for a failed attempt [10 s] (10000L in MQFaultStrategy.updateFaultItem)

	// MaxIsolated is the most of a route's brokers that are avoided at once, as
	// a share from 0 to 1: max(1, floor(MaxIsolated x brokers)) of them. Beyond
	// that, those isolated longest get their share of calls again; counted from
	// the report that last made an isolation longer, so those that stay bad take
	// turns. 0 = no limit. RocketMQ has none.
	MaxIsolated float64

	// Detect makes a producer ask brokers whether they can be reached again,
	// instead of finding out with a message (startDetectorEnable). It has no
	// effect without Enabled.
	Detect bool
}

// longest bounds every duration of a Config, so that it can be added to any
// point in time.
const longest = 100 * 365 * 24 * time.Hour

// V5 returns the settings of RocketMQ 5: 550 ms isolate a broker for 2 s, more
// latency for longer, up to 30 s, and a failure for 10 s.
// Java: MQFaultStrategy.
func V5() Config { return Config{Enabled: true}.withDefaults() }

// V4 returns the settings of RocketMQ 4, which isolates for longer: 550 ms for
// 30 s, 1 s for 60 s, more latency for up to 10 min, and a failure for 30 s.
//
// Differs: there a failure isolates for 10 min, and a broker that was only
// restarted gets nothing for that long. And only the settings are those of 4:
// Select chooses as RocketMQ 5 does.
func V4() Config {
	return Config{
		Enabled: true,
		LatencyMax: []time.Duration{
			50 * time.Millisecond, 100 * time.Millisecond, 550 * time.Millisecond,
			time.Second, 2 * time.Second, 3 * time.Second, 15 * time.Second,
		},
		NotAvailable: []time.Duration{
			0, 0, 30 * time.Second,
			time.Minute, 2 * time.Minute, 3 * time.Minute, 10 * time.Minute,
		},
		IsolationLatency: 550 * time.Millisecond,
	}
}

// Breaker returns the settings of a circuit breaker: a broker that takes 550 ms,
// or fails, gets nothing for a minute, but never more than three brokers in ten
// at once (one of them if there are fewer).
func Breaker() Config {
	return Config{
		Enabled:          true,
		LatencyMax:       []time.Duration{550 * time.Millisecond},
		NotAvailable:     []time.Duration{time.Minute},
		IsolationLatency: defaultIsolation,
		MaxIsolated:      0.3,
	}
}

const defaultIsolation = 10 * time.Second

// withDefaults returns c with its zero fields filled in; it shares no slice
// with c.
func (c Config) withDefaults() Config {
	if len(c.LatencyMax) == 0 {
		c.LatencyMax = []time.Duration{
			50 * time.Millisecond, 100 * time.Millisecond, 550 * time.Millisecond,
			1800 * time.Millisecond, 3 * time.Second, 5 * time.Second, 15 * time.Second,
		}
	}
	if len(c.NotAvailable) == 0 {
		c.NotAvailable = []time.Duration{
			0, 0, 2 * time.Second,
			5 * time.Second, 6 * time.Second, 10 * time.Second, 30 * time.Second,
		}
	}
	c.LatencyMax, c.NotAvailable = slices.Clone(c.LatencyMax), slices.Clone(c.NotAvailable)
	if c.IsolationLatency == 0 {
		c.IsolationLatency = defaultIsolation
	}
	return c
}

// Validate returns an error that lists everything that is wrong with c, nil
// when nothing is. Defaults are filled in first.
func (c Config) Validate() error {
	c = c.withDefaults()
	var bad []string
	add := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if len(c.LatencyMax) != len(c.NotAvailable) {
		add("LatencyMax has %d entries and NotAvailable %d, each latency needs its duration (nil = the %d defaults)",
			len(c.LatencyMax), len(c.NotAvailable), len(V5().LatencyMax))
	}
	for i, d := range c.LatencyMax {
		switch {
		case d < 0:
			add("LatencyMax[%d] is %v, must not be negative", i, d)
		case i > 0 && d <= c.LatencyMax[i-1]:
			add("LatencyMax[%d] is %v, must be more than LatencyMax[%d] = %v", i, d, i-1, c.LatencyMax[i-1])
		}
	}
	for i, d := range c.NotAvailable {
		if d < 0 || d > longest {
			add("NotAvailable[%d] is %v, must be between 0 and 100 years", i, d)
		}
	}
	if c.IsolationLatency < 0 {
		add("IsolationLatency is %v, must be positive (0 = %v)", c.IsolationLatency, defaultIsolation)
	}
	if !(c.MaxIsolated >= 0 && c.MaxIsolated <= 1) {
		add("MaxIsolated is %v, must be between 0 (no limit) and 1", c.MaxIsolated)
	}
	if len(bad) == 0 {
		return nil
	}
	return errors.New(strings.Join(bad, "; "))
}

// isolation tells for how long an attempt of this latency isolates its broker.
// Java: MQFaultStrategy.computeNotAvailableDuration.
func (c *Config) isolation(latency time.Duration) time.Duration {
	for i := min(len(c.LatencyMax), len(c.NotAvailable)) - 1; i >= 0; i-- {
		if latency >= c.LatencyMax[i] {
			return min(c.NotAvailable[i], longest)
		}
	}
	return 0
}

// limit is how many of so many brokers are avoided at once.
func (c *Config) limit(brokers int) int {
	if !(c.MaxIsolated > 0) {
		return brokers
	}
	return max(1, int(c.MaxIsolated*float64(brokers)+1e-9)) // 0.57 x 100 is a little less than 57
}
