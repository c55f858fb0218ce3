package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// die: a member falls silent. Its connections stay open, as when a host loses
// its network or a process hangs. (Network().Cut would reset them, as the end of
// a process does: brokers notice that at once.)
func die(ctx context.Context, t *team, h *history, mail *mail) error {
	clock := t.story.Clock
	producer, err := t.cluster.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		return err
	}
	t.story.Step("One dies, and nobody is told")
	t.story.Say(`Everything between carla and the others vanishes from now on, silently. For the brokers she is a
		member that has nothing to say. Only when they have not heard of her for ClientExpire, 120 s, the next
		scan, every 10 s, takes her out. Heartbeats come every 30 s, so that is 90 to 130 s after her death.`)
	t.story.Line("")
	if err := clock.Until(ctx, 60*time.Second); err != nil {
		return err
	}
	since := t.log.Len()
	carla := t.members["carla"]
	hers := carla.Assignment()
	died := clock.Now()
	t.cluster.Network().Drop(carla.ClientID(), "*")
	h.silent["carla"] = died
	h.note(died, "carla falls silent")
	delete(t.members, "carla")

	// One message to each queue. Those in carla's queues, and in queues that the
	// strategy leaves to nobody, wait.
	held := t.holders()
	var waiting, served []pocketmq.MessageQueue
	for _, q := range ordersQueues() {
		if held[q] == "" || held[q] == "carla" {
			waiting = append(waiting, q)
		} else {
			served = append(served, q)
		}
	}
	if err := mail.send(ctx, producer, ordersQueues()); err != nil {
		return err
	}
	sent := clock.Now()
	err = t.log.Await(ctx, 10*time.Second, "the others consume what is in their queues", func() bool { return len(mail.unread(served)) == 0 })
	if err != nil {
		return err
	}
	t.story.At(sent, "a message went to each queue; %d are consumed, %d wait: %s", len(served), len(waiting), short(waiting))

	left, err := t.leftSince(ctx, since, "carla")
	if err != nil {
		return err
	}
	h.note(clock.At(left.Time), "the brokers drop carla")
	if err := t.settle(ctx, since, 30*time.Second, ordersQueues()); err != nil {
		return err
	}
	return judgeDeath(ctx, t, mail, left, died, hers, waiting)
}

// judgeDeath checks when carla was found out, and what became of the messages.
func judgeDeath(ctx context.Context, t *team, mail *mail, left pocketmq.MemberLeft, died time.Duration, hers, waiting []pocketmq.MessageQueue) error {
	clock := t.story.Clock
	after := clock.At(left.Time) - died
	if left.Reason != "silent" || after < 90*time.Second-clock.Slack()/2 || after > 130*time.Second+clock.Slack() {
		return fmt.Errorf("carla left for the reason %q, %s after her death; expected: silent, 90 to 130 s", left.Reason, walk.Seconds(after))
	}
	t.story.Checked("a scan found carla out %s after her death", walk.Seconds(after))

	var taken []pocketmq.MessageQueue
	held := t.holders()
	for _, q := range waiting {
		if _, ok := t.members[held[q]]; ok {
			taken = append(taken, q)
		}
	}
	err := t.log.Await(ctx, 10*time.Second, "the new owners consume what waited", func() bool { return len(mail.unread(taken)) == 0 })
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		waited := clock.At(mail.last(taken)) - died
		if waited < after {
			return fmt.Errorf("a message of carla's was consumed %s after her death, before she was out of the group", walk.Seconds(waited))
		}
		t.story.Checked("the messages in her queues waited that long too, then the new owners had them")
	}
	if left := len(waiting) - len(taken); left > 0 {
		if !t.strategy.gaps {
			return fmt.Errorf("%d of carla's queues (%s) belong to nobody", left, short(hers))
		}
		if n := len(mail.unread(waiting)); n != left {
			return fmt.Errorf("%d messages wait in %d queues that belong to nobody", n, left)
		}
		t.story.Checked("%d queues belong to nobody, and their messages wait: %s has no stand-ins", left, t.strategy.name)
	}
	return nil
}
