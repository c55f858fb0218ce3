package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// history draws who held which queue when, from the events of the cluster.
type history struct {
	clock   walk.Clock
	silent  map[string]time.Duration // members that were cut off, and when
	moments []walk.Moment
}

func (h *history) note(at time.Duration, text string) {
	h.moments = append(h.moments, walk.Moment{At: at, Text: text})
}

// holding is a queue in the hands of a member.
type holding struct {
	member string
	from   time.Duration
}

func (h *history) chart(title string, events []pocketmq.Event) *walk.Chart {
	c := &walk.Chart{
		Title:    title,
		Subtitle: "Each bar: a queue in the hands of a consumer. Faded: its consumer is cut off and nobody knows; its messages wait.",
		Moments:  h.moments,
		Until:    h.clock.Now(),
	}
	lanes := lanesOf(events)
	for _, q := range lanes {
		c.Lanes = append(c.Lanes, walk.Lane{Group: q.Topic, Name: fmt.Sprintf("%s queue %d", q.BrokerName, q.QueueID)})
	}
	colours := make(map[string]int)
	for _, name := range membersOf(events) {
		colours[name] = len(colours)
		c.Legend = append(c.Legend, walk.Key{Style: walk.Style{Colour: colours[name]}, Text: name})
	}
	draw := func(q pocketmq.MessageQueue, was holding, till time.Duration) {
		lane := slices.Index(lanes, q)
		add := func(from, till time.Duration, faded bool, what string) {
			if till > from {
				c.Windows = append(c.Windows, walk.Window{
					Lane: lane, From: from, Till: till, Style: walk.Style{Colour: colours[was.member], Faded: faded},
					Text: fmt.Sprintf("%s %s %s from %s to %s", was.member, what, q, walk.Seconds(from), walk.Seconds(till)),
				})
			}
		}
		cut, ok := h.silent[was.member]
		if !ok || cut >= till {
			add(was.from, till, false, "holds")
			return
		}
		add(was.from, cut, false, "holds")
		add(max(cut, was.from), till, true, "is cut off and keeps")
	}

	now := make(map[pocketmq.MessageQueue]holding)
	end := func(q pocketmq.MessageQueue, till time.Duration) {
		if was, ok := now[q]; ok {
			draw(q, was, till)
			delete(now, q)
		}
	}
	for _, e := range events {
		at := h.clock.At(e.Base().Time)
		switch e := e.(type) {
		case pocketmq.Rebalanced:
			member := nameOf(e.Client)
			for _, q := range e.Before {
				if !slices.Contains(e.After, q) && now[q].member == member {
					end(q, at)
				}
			}
			for _, q := range e.After {
				if !slices.Contains(e.Before, q) { // its owner before may tell of it later
					end(q, at)
					now[q] = holding{member, at}
				}
			}
		case pocketmq.MemberLeft:
			for q, was := range now {
				if was.member == nameOf(e.Client) {
					end(q, at)
				}
			}
		}
	}
	for _, q := range slices.SortedFunc(maps.Keys(now), pocketmq.MessageQueue.Compare) {
		end(q, c.Until)
	}
	return c
}

// lanesOf lists the queues that anybody held: the topics in the order in which
// they came up, their queues sorted.
func lanesOf(events []pocketmq.Event) []pocketmq.MessageQueue {
	var topics []string
	queues := make(map[pocketmq.MessageQueue]bool)
	for _, e := range events {
		if r, ok := e.(pocketmq.Rebalanced); ok {
			if !slices.Contains(topics, r.Topic) {
				topics = append(topics, r.Topic)
			}
			for _, q := range r.After {
				queues[q] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(queues), func(a, b pocketmq.MessageQueue) int {
		if a.Topic != b.Topic {
			return slices.Index(topics, a.Topic) - slices.Index(topics, b.Topic)
		}
		return a.Compare(b)
	})
}

// membersOf lists those who held anything, in the order in which they sort; a
// topic's members follow those of the topic before.
func membersOf(events []pocketmq.Event) []string {
	var all []string
	var last string
	var some []string
	for _, e := range events {
		r, ok := e.(pocketmq.Rebalanced)
		if !ok {
			continue
		}
		if r.Topic != last {
			slices.SortFunc(some, strings.Compare)
			all, some, last = append(all, some...), nil, r.Topic
		}
		if name := nameOf(r.Client); !slices.Contains(all, name) && !slices.Contains(some, name) {
			some = append(some, name)
		}
	}
	slices.SortFunc(some, strings.Compare)
	return append(all, some...)
}
