// Rebalance shows how a consumer group shares the queues of a topic: who gets
// what, and what happens when members come, go, and die without a word.
//
//	go run ./examples/rebalance
//	go run ./examples/rebalance -step -strategy STICKY
//	go run ./examples/rebalance -svg rebalance.svg
//
// Everything told is checked. It exits with 1 if something did not happen.
package main

import (
	"context"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

const (
	group  = "billing"
	orders = "orders" // 16 queues, 8 on each of two brokers
	audit  = "audit"  // 4 queues
)

func main() { walk.Main(program()) }

func program() walk.Program {
	return walk.Program{
		Name: "rebalance",
		About: "Rebalance shows how a consumer group shares the queues of a topic: who gets what,\n" +
			"what moves when members come, go, and die silently, and RocketMQ's strategies beside\n" +
			"each other.",
		Choice:  "who gets which queues of the topic \"orders\"",
		Choices: names(),
		Drawn:   "who held which queue when",
		Speed:   60,
		Fastest: 1000,
		Examples: []string{
			"# a minute of the cluster takes a second",
			"-step # wait for Enter before each step",
			"-strategy CONSISTENT_HASH # another strategy",
			"-strategy CONFIG # the one with which nobody stands in for the dead",
			"-speed 10 -svg rebalance.svg # slower, and with a chart",
		},
		Run: run,
	}
}

// run tells the story. Each of its parts returns an error if something that it
// claims did not happen.
func run(ctx context.Context, s *walk.Story, o walk.Options) error {
	log := walk.NewLog()
	cluster, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{
		Groups:  []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}},
		Topics:  map[string]int{orders: 8, audit: 2}, // on each of the brokers
		Timings: s.Clock.Timings(),
		OnEvent: log.Record,
	})
	if err != nil {
		return err
	}
	defer cluster.Close() // a second Close, as after the one below, does nothing

	mail := newMail(log)
	team := &team{
		story: s, log: log, cluster: cluster,
		group: group, topic: orders, strategy: strategyOf(o.Strategy), handler: mail.handle,
		members: make(map[string]*pocketmq.Consumer), told: make(map[string]bool),
	}
	history := &history{clock: s.Clock, silent: make(map[string]time.Duration)}
	for _, part := range []func() error{
		func() error { return start(ctx, team, history) },
		func() error { return join(ctx, team, history) },
		func() error { return leave(ctx, team, history) },
		func() error { return die(ctx, team, history, mail) },
		func() error { return tooMany(ctx, team, history) },
		func() error { return autoCreated(ctx, team, history) },
		func() error { return sideBySide(s) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	if o.SVG != "" {
		if err := history.chart("Who holds which queue, with "+o.Strategy, log.Since(0)).Write(o.SVG); err != nil {
			return err
		}
		s.Line("")
		s.Line("%s shows who held which queue when.", o.SVG)
	}
	cluster.Network().HealAll()
	return cluster.Close()
}
