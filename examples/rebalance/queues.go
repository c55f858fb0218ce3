package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq"
)

// tooMany: 5 consumers on 4 queues, and the remedy.
func tooMany(ctx context.Context, first *team, h *history) error {
	t := *first
	t.group, t.topic, t.strategy = "auditors", audit, strategyOf("AVG")
	t.members, t.told = make(map[string]*pocketmq.Consumer), make(map[string]bool)
	t.handler = func(context.Context, []*pocketmq.MessageExt) error { return nil }
	queues := func(n int) (out []pocketmq.MessageQueue) {
		for _, broker := range []string{"broker-a", "broker-b"} {
			for id := range n {
				out = append(out, pocketmq.MessageQueue{Topic: audit, BrokerName: broker, QueueID: id})
			}
		}
		return out
	}

	t.story.Step("Five consumers on four queues")
	t.story.Say(`A queue is not divided further, so a group never has more consumers at work than the topic has queues.
		The fifth of this other group, with AVG, stands by. It is of use when another one goes.`)
	t.story.Line("")
	if err := t.story.Clock.Until(ctx, t.story.Clock.Now()+15*time.Second); err != nil {
		return err
	}
	since := t.log.Len()
	h.note(t.story.Clock.Now(), "5 consumers, 4 queues")
	if err := t.hire(ctx, "ed", "fay", "gus", "hope", "ivo"); err != nil {
		return err
	}
	if err := t.idles(ctx, since, "ivo"); err != nil {
		return err
	}
	if err := t.settle(ctx, since, 30*time.Second, queues(2)); err != nil {
		return err
	}
	t.story.Checked("ivo holds nothing, and the event ConsumerIdle told of it")

	t.story.Step("The remedy: more queues")
	t.story.Say(`Queues can be added while all run, here to 4 on each broker. The consumers see it when they ask the
		name server again, every RouteRefresh, 30 s, each at its time: until all have, a queue may have two owners.
		Let the number of queues be a multiple of the number of consumers, with room to grow: 8 for 5 are 2 2 2 1 1.`)
	t.story.Line("")
	if err := t.story.Clock.Until(ctx, t.story.Clock.Now()+15*time.Second); err != nil {
		return err
	}
	since = t.log.Len()
	h.note(t.story.Clock.Now(), "audit gets 8 queues")
	if err := t.cluster.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: audit, ReadQueues: 4}); err != nil {
		return err
	}
	if err := t.settle(ctx, since, time.Minute, queues(4)); err != nil {
		return err
	}
	return t.story.Clock.Until(ctx, t.story.Clock.Now()+10*time.Second)
}

// autoCreated: a topic that its first message makes, beside one made on all
// brokers.
func autoCreated(ctx context.Context, t *team, h *history) error {
	const surprise = "surprise"
	t.story.Step("A topic made by its first message lives on one broker")
	t.story.Say(`Nobody has made "surprise". The producer finds no route and sends to any broker, which makes the topic,
		for itself. By the time of the second message the route is known: that broker. "orders" was made on all.`)
	t.story.Line("")
	producer, err := t.cluster.StartProducer(ctx, pocketmq.ProducerConfig{InstanceName: "shop"})
	if err != nil {
		return err
	}
	since := t.log.Len()
	went := make(map[string]map[string]int)
	for _, topic := range []string{surprise, orders} {
		went[topic] = make(map[string]int)
		for range 40 {
			result, err := producer.Send(ctx, &pocketmq.Message{Topic: topic, Body: []byte("hello")})
			if err != nil {
				return err
			}
			went[topic][result.Queue.BrokerName]++
		}
		t.story.Line("40 messages to %-10s  broker-a %2d  broker-b %2d", topic, went[topic]["broker-a"], went[topic]["broker-b"])
	}
	if len(went[surprise]) != 1 || len(went[orders]) != 2 {
		return fmt.Errorf("%q is on %d brokers and %q on %d, expected 1 and 2", surprise, len(went[surprise]), orders, len(went[orders]))
	}
	route, err := t.cluster.Admin().Route(ctx, surprise)
	if err != nil {
		return err
	}
	if len(route.Queues) != 1 {
		return fmt.Errorf("the route of %q has %d brokers", surprise, len(route.Queues))
	}
	one := route.Queues[0].BrokerName
	err = t.log.Await(ctx, 10*time.Second, "the route of the new topic is told as an event", func() bool {
		return slices.ContainsFunc(t.log.Since(since), func(e pocketmq.Event) bool {
			r, ok := e.(pocketmq.RouteChanged)
			return ok && slices.Contains(r.Topics, surprise)
		})
	})
	if err != nil {
		return err
	}
	t.story.Line("")
	t.story.Checked("%q has %d queues, all on %s: when that is away, nobody can send to it", surprise, route.Queues[0].WriteQueues, one)

	if err := t.cluster.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: surprise, ReadQueues: 4}); err != nil {
		return err
	}
	if route, err = t.cluster.Admin().Route(ctx, surprise); err != nil {
		return err
	}
	if len(route.Queues) != 2 {
		return fmt.Errorf("after CreateTopic the route of %q has %d brokers", surprise, len(route.Queues))
	}
	t.story.Checked("after Admin.CreateTopic it is on both. Make topics before they are used")
	return nil
}
