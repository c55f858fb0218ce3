package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// team is a consumer group, watched through the events of the cluster.
type team struct {
	story   *walk.Story
	log     *walk.Log
	cluster *pocketmq.Cluster

	group, topic string
	strategy     strategy
	handler      func(context.Context, []*pocketmq.MessageExt) error

	members map[string]*pocketmq.Consumer // those who are there, by name
	told    map[string]bool               // comings and goings that have been told: every broker reports them
}

// hire starts members, one after the other.
func (t *team) hire(ctx context.Context, names ...string) error {
	for _, name := range names {
		consumer, err := t.cluster.StartConsumer(ctx, pocketmq.ConsumerConfig{
			Group:         t.group,
			InstanceName:  name, // the client id is address@name: members sort by it
			Subscriptions: map[string]pocketmq.Filter{t.topic: {}},
			Strategy:      t.strategy.of(name),
			Handler:       t.handler,
		})
		if err != nil {
			return err
		}
		t.members[name] = consumer
	}
	return nil
}

// names lists the members in the order in which every client sorts them.
func (t *team) names() []string { return slices.Sorted(maps.Keys(t.members)) }

// settle waits until every member holds what the strategy gives it, and tells
// how it came to that: the events from number since on. limit is cluster time.
func (t *team) settle(ctx context.Context, since int, limit time.Duration, queues []pocketmq.MessageQueue) error {
	shares, err := t.strategy.shares(queues, t.names()...)
	if err != nil {
		return err
	}
	settled := func() bool {
		held := t.held()
		for name, share := range shares {
			if !slices.Equal(held[name], share) {
				return false
			}
		}
		return true
	}
	what := fmt.Sprintf("each of %s holds the share that %s gives it", strings.Join(t.names(), ", "), t.strategy.name)
	if err := t.log.Await(ctx, t.story.Clock.Real(limit)+5*time.Second, what, settled); err != nil {
		return err
	}
	for name, consumer := range t.members { // the events are one thing, the consumers themselves another
		if !slices.Equal(consumer.Assignment(), shares[name]) {
			return fmt.Errorf("%s holds %s, its events say %s", name, short(consumer.Assignment()), short(shares[name]))
		}
	}
	t.tell(since)
	t.showOwners(queues, shares)
	t.story.Line("")
	t.story.Checked("%s", what)
	return nil
}

// held tells what each member holds, from the events.
func (t *team) held() map[string][]pocketmq.MessageQueue {
	held := make(map[string][]pocketmq.MessageQueue)
	for _, e := range t.log.Since(0) {
		if r, ok := e.(pocketmq.Rebalanced); ok && r.Group == t.group {
			held[nameOf(r.Client)] = r.After
		}
	}
	return held
}

// holders tells who holds each queue, as far as the events say. Nobody knows of
// the dead, so they keep what they had until they are out of the group.
func (t *team) holders() map[pocketmq.MessageQueue]string {
	out := make(map[pocketmq.MessageQueue]string)
	drop := func(client string) {
		maps.DeleteFunc(out, func(_ pocketmq.MessageQueue, holder string) bool { return holder == nameOf(client) })
	}
	for _, e := range t.log.Since(0) {
		switch e := e.(type) {
		case pocketmq.Rebalanced:
			if e.Group == t.group {
				drop(e.Client)
				for _, q := range e.After {
					out[q] = nameOf(e.Client)
				}
			}
		case pocketmq.MemberLeft:
			drop(e.Client)
		}
	}
	return out
}

// leftSince waits for the event that a member left.
func (t *team) leftSince(ctx context.Context, since int, name string) (left pocketmq.MemberLeft, err error) {
	limit := t.story.Clock.Real(140*time.Second) + 10*time.Second
	err = t.log.Await(ctx, limit, name+" leaves the group", func() bool {
		for _, e := range t.log.Since(since) {
			if e, ok := e.(pocketmq.MemberLeft); ok && e.Group == t.group && nameOf(e.Client) == name {
				left = e
				return true
			}
		}
		return false
	})
	return left, err
}

// idles waits for the event that this member, and no other, holds nothing.
func (t *team) idles(ctx context.Context, since int, name string) error {
	var idle []string
	err := t.log.Await(ctx, 10*time.Second, name+" is idle", func() bool {
		idle = nil
		for _, e := range t.log.Since(since) {
			if e, ok := e.(pocketmq.ConsumerIdle); ok && e.Group == t.group {
				idle = append(idle, nameOf(e.Client))
			}
		}
		return slices.Contains(idle, name)
	})
	if err == nil && len(idle) > 1 {
		err = errors.New("idle are " + strings.Join(idle, ", "))
	}
	return err
}

// change is how the share of one member changed in a step.
type change struct {
	at            time.Duration // the first part of it
	name, reason  string
	before, after []pocketmq.MessageQueue
}

// tell prints the events from number since on: who came and went, then what
// that did to the shares, one line per member.
func (t *team) tell(since int) {
	var changes []*change
	for _, e := range t.log.Since(since) {
		at := t.story.Clock.At(e.Base().Time)
		switch e := e.(type) {
		case pocketmq.MemberJoined:
			t.tellOnce(e.Group, at, nameOf(e.Client)+" joined; the brokers told the other members")
		case pocketmq.MemberLeft:
			t.tellOnce(e.Group, at, nameOf(e.Client)+" is out ("+e.Reason+"); the brokers told the others")
		case pocketmq.ConsumerIdle:
			t.tellOnce(e.Group, at, fmt.Sprintf("%s is idle: %d members, %d queues", nameOf(e.Client), e.Members, e.Queues))
		case pocketmq.RouteChanged:
			if slices.Contains(e.Topics, t.topic) && len(t.told) > 0 {
				t.tellOnce(t.group, at, "the name server has another route of "+t.topic)
			}
		case pocketmq.Rebalanced:
			if e.Group != t.group {
				break
			}
			i := slices.IndexFunc(changes, func(c *change) bool { return c.name == nameOf(e.Client) })
			if i < 0 {
				i = len(changes)
				changes = append(changes, &change{at: at, name: nameOf(e.Client), before: e.Before, reason: e.Reason})
			}
			changes[i].after = e.After
		}
	}
	slices.SortFunc(changes, func(a, b *change) int { return strings.Compare(a.name, b.name) })
	for _, c := range changes {
		t.story.At(c.at, "%-6s had %-16s has %-16s (%s)", c.name, short(c.before), short(c.after), c.reason)
	}
}

func (t *team) tellOnce(group string, at time.Duration, text string) {
	if group == t.group && !t.told[text] {
		t.told[text] = true
		t.story.At(at, "%s", text)
	}
}

// showOwners prints the owner of each queue.
func (t *team) showOwners(queues []pocketmq.MessageQueue, shares map[string][]pocketmq.MessageQueue) {
	owners := letters(queues, shares)
	head, line := "", ""
	for i, q := range queues {
		if i > 0 && q.BrokerName != queues[i-1].BrokerName {
			head, line = head+"  ", line+"  "
		}
		head += fmt.Sprintf(" %s%d", strings.TrimPrefix(q.BrokerName, "broker-"), q.QueueID)
		line += fmt.Sprintf("  %c", owners[i])
	}
	t.story.Line("")
	t.story.Line("queue %s", head)
	t.story.Line("owner %s", line)
}

// short prints queues by broker and number: "a0-5 b7"; "-" for none.
func short(queues []pocketmq.MessageQueue) string {
	var parts []string
	for i := 0; i < len(queues); {
		j := i + 1
		for j < len(queues) && queues[j].BrokerName == queues[i].BrokerName && queues[j].QueueID == queues[j-1].QueueID+1 {
			j++
		}
		part := fmt.Sprintf("%s%d", strings.TrimPrefix(queues[i].BrokerName, "broker-"), queues[i].QueueID)
		if j-i > 1 {
			part += fmt.Sprintf("-%d", queues[j-1].QueueID)
		}
		parts = append(parts, part)
		i = j
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, " ")
}
