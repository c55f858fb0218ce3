package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq"
)

// start: 16 queues and 3 consumers.
func start(ctx context.Context, t *team, h *history) error {
	t.story.Step("Three consumers share 16 queues")
	t.story.Say(`A topic is a number of queues on its brokers; "orders" has 8 on broker-a and 8 on broker-b, a0 to b7
		for short. Within a group each queue belongs to one consumer. Nobody hands queues out: each member asks
		a broker who else is in the group, sorts the queues, sorts the members, and computes its own share.
		That fits together because of two rules: all see the same lists, and all use the same strategy, %s here.`, t.strategy.name)
	t.story.Line("")
	if err := t.hire(ctx, "anna", "bert", "carla"); err != nil {
		return err
	}
	h.note(t.story.Clock.Now(), "3 consumers start")
	for _, e := range t.log.Since(0) {
		if e, ok := e.(pocketmq.BrokerRegistered); ok {
			t.story.At(t.story.Clock.At(e.Time), "%s registered at the name server %s; so clients find it", e.Broker, e.Node)
		}
	}
	return t.settle(ctx, 0, time.Minute, ordersQueues())
}

// join: a fourth one.
func join(ctx context.Context, t *team, h *history) error {
	t.story.Step("A fourth one joins")
	t.story.Say(`A consumer that starts sends heartbeats to the brokers. They tell the members that the list has
		changed, and all compute anew. Who loses a queue stores how far it has come; who gets it goes on there.
		What was being handled meanwhile comes twice: make handlers idempotent.`)
	t.story.Line("")
	if err := t.story.Clock.Until(ctx, 20*time.Second); err != nil {
		return err
	}
	since := t.log.Len()
	h.note(t.story.Clock.Now(), "dora joins")
	if err := t.hire(ctx, "dora"); err != nil {
		return err
	}
	return t.settle(ctx, since, 30*time.Second, ordersQueues())
}

// leave: a member closes, and says so.
func leave(ctx context.Context, t *team, h *history) error {
	t.story.Step("One leaves")
	t.story.Say(`bert is closed: he commits his offsets and tells the brokers, so the others know at once.`)
	t.story.Line("")
	if err := t.story.Clock.Until(ctx, 40*time.Second); err != nil {
		return err
	}
	since := t.log.Len()
	h.note(t.story.Clock.Now(), "bert leaves")
	bert := t.members["bert"]
	delete(t.members, "bert")
	if err := bert.Close(); err != nil {
		return err
	}
	left, err := t.leftSince(ctx, since, "bert")
	if err != nil {
		return err
	}
	if left.Reason != "unregistered" {
		return fmt.Errorf("bert left for the reason %q", left.Reason)
	}
	return t.settle(ctx, since, 30*time.Second, ordersQueues())
}
