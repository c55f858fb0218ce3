package mqtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq"
)

func adminCases() []transportCase {
	return []transportCase{
		{"topics are made, changed, listed and deleted", func(t *transportTest) {
			c := t.twoGroups()
			admin := c.Admin()
			t.ok(admin.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "New", ReadQueues: 3}), "create")
			topics, err := admin.Topics(t.Context())
			t.ok(err, "topics")
			if !slices.Contains(topics, "New") || !slices.Contains(topics, "T") {
				t.Errorf("the topics are %q", topics)
			}
			p := t.producer(c, pocketmq.ProducerConfig{})
			queues, err := p.Queues(t.Context(), "New")
			t.ok(err, "queues")
			t.equal("queues", 6, len(queues))
			for i := range 12 {
				_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "New", Body: fmt.Append(nil, i)})
				t.ok(err, "send")
			}
			t.ok(admin.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "New", ReadQueues: 5, Brokers: []string{"broker-b"}}), "change")
			route, err := admin.Route(t.Context(), "New")
			t.ok(err, "route")
			for _, q := range route.Queues {
				t.equal("queues of "+q.BrokerName, map[string]int{"broker-a": 3, "broker-b": 5}[q.BrokerName], q.ReadQueues)
			}
			t.ok(admin.DeleteTopic(t.Context(), "New"), "delete")
			_, err = admin.Route(t.Context(), "New")
			t.is(err, "the route of a deleted topic", pocketmq.ErrNoRoute)
		}},
		{"messages are found by id, unique key, key and time", func(t *transportTest) {
			c := t.twoGroups()
			p := t.producer(c, pocketmq.ProducerConfig{})
			from := time.Now()
			var last *pocketmq.SendResult
			for i := range 10 {
				r, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Keys: []string{"all", fmt.Sprint("k", i)}, Body: fmt.Append(nil, i)})
				t.ok(err, "send")
				last = r
			}
			m, err := c.Admin().MessageByID(t.Context(), last.OffsetMsgID)
			t.ok(err, "by id")
			t.equal("the message", "9", string(m.Body))
			m, err = c.Admin().MessageByUniqueKey(t.Context(), "T", last.MsgID)
			t.ok(err, "by unique key")
			t.equal("the message", "9", string(m.Body))
			found, err := c.Admin().MessagesByKey(t.Context(), "T", "all", from.Add(-time.Minute), from.Add(time.Hour), 100)
			t.ok(err, "by key")
			t.equal("messages with the key", 10, len(found))
			found, err = c.Admin().MessagesByKey(t.Context(), "T", "k3", from.Add(-time.Minute), from.Add(time.Hour), 100)
			t.ok(err, "by key")
			t.equal("messages with the key", 1, len(found))
		}},
	}
}

func groupCases() []transportCase {
	return []transportCase{
		{"a group's members, progress and locks are told alike", func(t *transportTest) {
			c := t.twoGroups()
			var in inbox
			co := t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
			t.send(t.producer(c, pocketmq.ProducerConfig{}), 0, 20)
			in.bodies(t, 0, 20)
			t.group(c, "G", "all is committed", consumed("T", 20))
			members, err := c.Admin().Members(t.Context(), "G")
			t.ok(err, "members")
			if len(members) != 1 || members[0].ClientID != co.ClientID() || members[0].Addr == "" {
				t.Errorf("the members are %+v", members)
			}
			lag, err := c.Admin().Lag(t.Context(), "G")
			t.ok(err, "lag")
			sum := int64(0)
			for _, l := range lag {
				if l.Queue.Topic == "T" {
					sum += l.Committed
					t.equal(fmt.Sprintf("lag of %v", l.Queue), int64(0), l.Lag)
				}
			}
			t.equal("committed", int64(20), sum)
			st, err := c.Admin().Group(t.Context(), "G")
			t.ok(err, "group")
			if len(st.Members) != 1 || len(st.Members[0].Assigned) != 4 || st.Members[0].Subscriptions["T"] == "" {
				t.Errorf("the group is %+v", st)
			}
		}},
		{"offsets are set, reset, skipped and cloned, for running members too", func(t *transportTest) {
			c := t.twoGroups()
			admin := c.Admin()
			t.send(t.producer(c, pocketmq.ProducerConfig{}), 0, 20)
			var in inbox
			cfg := pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")}
			co := t.consumer(c, cfg)
			in.bodies(t, 0, 20)
			t.group(c, "G", "all is committed", consumed("T", 20))
			offsets, err := admin.ResetOffsets(t.Context(), "G", "T", time.Unix(0, 0))
			t.ok(err, "reset of a running group")
			t.equal("queues that were reset", 4, len(offsets))
			in.until(t, "all messages once more", func(list []got) bool { return len(list) >= 40 })
			t.group(c, "G", "all is committed again", consumed("T", 20))
			t.ok(co.Close(), "close")

			t.ok(admin.CloneOffsets(t.Context(), "G", "H", "T"), "clone")
			cloned, err := admin.Offsets(t.Context(), "H", "T")
			t.ok(err, "offsets")
			of, err := admin.Offsets(t.Context(), "G", "T")
			t.ok(err, "offsets")
			t.equal("cloned offsets", of, cloned)
			q := pocketmq.MessageQueue{Topic: "T", BrokerName: "broker-b", QueueID: 1}
			t.ok(admin.SetOffset(t.Context(), "H", q, of[q]-2), "set")
			cfg.Group, cfg.Handler = "H", in.handler("h")
			t.consumer(c, cfg)
			in.until(t, "two messages", func(list []got) bool { return len(list) >= 42 })
			t.equal("what the other group gets", 2, len(in.of("h")))

			t.ok(admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "I"}), "create")
			_, err = admin.ResetOffsets(t.Context(), "I", "T", time.Unix(0, 0))
			t.ok(err, "reset of a group without members")
			t.ok(admin.SkipBacklog(t.Context(), "I", "T"), "skip")
			cfg.Group, cfg.Handler = "I", in.handler("i")
			t.consumer(c, cfg)
			t.group(c, "I", "the member has all", shared(1, 4))
			t.send(t.producer(c, pocketmq.ProducerConfig{}), 20, 24)
			in.until(t, "what is new", func(list []got) bool {
				n := 0
				for _, g := range list {
					if g.who == "i" {
						n++
					}
				}
				return n >= 4
			})
			t.onceEach(in.of("i"), 20, 24)
		}},
		{"settings of groups count for their members", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			t.ok(c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "G", ConsumeDisabled: true}), "a group that may not consume")
			co, err := c.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: "G"})
			t.ok(err, "start")
			q := pocketmq.MessageQueue{Topic: "T", BrokerName: "broker-a"}
			_, err = co.Pull(t.Context(), q, 0, 1)
			t.is(err, "a pull", pocketmq.ErrNoPermission)
			t.ok(c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "G"}), "a group that may consume")
			_, err = co.Pull(t.Context(), q, 0, 1)
			t.ok(err, "a pull")
			t.ok(c.Admin().DeleteGroup(t.Context(), "G"), "delete")
		}},
	}
}
