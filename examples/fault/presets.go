package main

import (
	"time"

	"github.com/pocketmq/pocketmq/examples/internal/walk"
	"github.com/pocketmq/pocketmq/fault"
)

// preset is one way to deal with brokers that are slow or fail.
type preset struct {
	name, about string
	config      fault.Config

	slow, failing time.Duration // how long it avoids a broker that took 600 ms, and one that failed
	worse         time.Duration // from which latency on it would be longer; 0 = from none
}

// presets lists them; the first avoids nobody.
func presets() []preset {
	return []preset{
		{"off", "takes the brokers in turn, and another one for the retry", fault.Config{}, 0, 0, 0},
		{"V5", "RocketMQ 5: 600 ms cost a broker 2 s, a failure 10 s", fault.V5(), 2 * time.Second, 10 * time.Second, 1800 * time.Millisecond},
		{"V4", "RocketMQ 4: 600 ms or a failure cost it 30 s", fault.V4(), 30 * time.Second, 30 * time.Second, time.Second},
		{"Breaker", "a circuit breaker: either costs it a minute, but 3 in 10 brokers at most, and one of 3", fault.Breaker(), time.Minute, time.Minute, 0},
	}
}

// chosen returns the presets to look at: all, or one beside "off".
func chosen(name string) []preset {
	var out []preset
	for _, p := range presets() {
		if name == "all" || p.name == "off" || p.name == name {
			out = append(out, p)
		}
	}
	return out
}

// scaled returns c for a cluster whose time runs faster. Timings have a method
// for that; what a broker costs by its latency is for its user to scale.
func scaled(c fault.Config, clock walk.Clock) fault.Config {
	for i := range c.LatencyMax {
		c.LatencyMax[i] = clock.Real(c.LatencyMax[i])
		c.NotAvailable[i] = clock.Real(c.NotAvailable[i])
	}
	c.IsolationLatency = clock.Real(c.IsolationLatency)
	return c
}
