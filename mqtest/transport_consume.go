package mqtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
)

func consumeCases() []transportCase {
	return []transportCase{
		{"members of a group share the queues, and take over when one leaves", func(t *transportTest) {
			c := t.twoGroups()
			var in inbox
			cfg := pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset}
			cfg.Handler = in.handler("first")
			first := t.consumer(c, cfg)
			cfg.Handler = in.handler("second")
			second := t.consumer(c, cfg)
			t.settled(4, first, second)
			t.group(c, "G", "two members share", shared(2, 4))
			p := t.producer(c, pocketmq.ProducerConfig{})
			t.send(p, 0, 40)
			in.bodies(t, 0, 40)
			t.onceEach(in.of(""), 0, 40)
			if a, b := len(in.of("first")), len(in.of("second")); a != 20 || b != 20 {
				t.Errorf("of 40 messages in 4 queues the members got %d and %d", a, b)
			}
			t.ok(second.Close(), "close of a member")
			t.group(c, "G", "one member has all", shared(1, 4))
			t.send(p, 40, 60)
			in.bodies(t, 40, 60)
			t.equal("members", 20, len(in.of("second")))
		}},
		{"a filter lets through what it names", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c"), Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("AaAa", "B")}})
			p := t.producer(c, pocketmq.ProducerConfig{})
			for i, tag := range []string{"AaAa", "C", "B", "", "BBBB", "AaAa"} { // the brokers' hash of BBBB is that of AaAa
				_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Tag: tag, Body: fmt.Append(nil, i)})
				t.ok(err, "send")
			}
			t.group(c, "G", "all are passed", consumed("T", 6))
			t.equal("what came", map[string]int{"0": 1, "2": 1, "5": 1}, in.of(""))
		}},
		{"every member of a broadcasting group gets every message", func(t *transportTest) {
			c := t.twoGroups()
			var in inbox
			cfg := pocketmq.ConsumerConfig{Group: "G", Model: pocketmq.Broadcasting, From: pocketmq.FromFirstOffset}
			for _, who := range []string{"a", "b", "c"} {
				cfg.Handler = in.handler(who)
				t.consumer(c, cfg)
			}
			t.send(t.producer(c, pocketmq.ProducerConfig{}), 0, 20)
			in.until(t, "60 messages", func(list []got) bool { return len(list) >= 60 })
			for _, who := range []string{"a", "b", "c"} {
				t.onceEach(in.of(who), 0, 20)
			}
		}},
		{"an orderly group handles each queue in order, under its broker's lock", func(t *transportTest) {
			c := t.twoGroups()
			p := t.producer(c, pocketmq.ProducerConfig{})
			const keys, each = 4, 25
			for i := range each {
				for k := range keys {
					_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", ShardingKey: fmt.Sprint("key-", k), Keys: []string{fmt.Sprint(k)}, Body: fmt.Append(nil, k*each+i)})
					t.ok(err, "send")
				}
			}
			var in inbox
			fails := make(map[string]int) // guarded by mu
			var mu sync.Mutex
			cfg := pocketmq.ConsumerConfig{Group: "G", Orderly: true, From: pocketmq.FromFirstOffset}
			ids := make(map[string]bool)
			for _, who := range []string{"first", "second"} {
				cfg.Handler = func(_ context.Context, msgs []*pocketmq.MessageExt) error {
					body := string(msgs[0].Body)
					mu.Lock()
					fails[body]++
					again := fails[body] == 1 && msgs[0].QueueOffset%10 == 3
					mu.Unlock()
					if again {
						return errors.New("not yet")
					}
					in.put(who, msgs...)
					return nil
				}
				ids[t.consumer(c, cfg).ClientID()] = true
			}
			list := in.bodies(t, 0, keys*each)
			next := make(map[pocketmq.MessageQueue]int64)
			for _, g := range list {
				if want := next[g.msg.Queue]; g.msg.QueueOffset > want {
					t.Errorf("%v: offset %d is handled before %d", g.msg.Queue, g.msg.QueueOffset, want)
				}
				next[g.msg.Queue] = max(next[g.msg.Queue], g.msg.QueueOffset+1)
			}
			t.group(c, "G", "two members with their queues", shared(2, 4))
			t.group(c, "G", "every queue is locked", func(st pocketmq.GroupStatus) bool { return len(st.Locks) == 4 })
			locks, err := c.Admin().Locks(t.Context(), "G")
			t.ok(err, "locks")
			for q, id := range locks {
				if !ids[id] {
					t.Errorf("%v is locked by %q", q, id)
				}
			}
			t.equal("locks", 4, len(locks))
		}},
	}
}

func failureCases() []transportCase {
	fails := errors.New("the handler fails")
	return []transportCase{
		{"a failed message comes again after growing delays and is a dead letter in the end", func(t *transportTest) {
			c := t.twoGroups()
			var in inbox
			co := t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, MaxReconsume: 2, Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				in.put("c", msgs...)
				if string(msgs[0].Body) == "bad" {
					return fails
				}
				return nil
			}})
			p := t.producer(c, pocketmq.ProducerConfig{})
			r, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Tag: "tag", Keys: []string{"k"}, Properties: map[string]string{"p": "v"}, Body: []byte("bad")})
			t.ok(err, "send")
			_, err = p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("good")})
			t.ok(err, "send")
			list := in.until(t, "3 attempts", func(list []got) bool { return len(list) >= 4 })
			attempt := 0
			for _, g := range list {
				if string(g.msg.Body) != "bad" {
					continue
				}
				t.equal("attempts before", attempt, g.msg.ReconsumeTimes)
				t.equal("the topic", "T", g.msg.Topic)
				t.equal("the id", r.MsgID, g.msg.MsgID)
				t.equal("the properties", map[string]string{"p": "v"}, g.msg.Properties)
				attempt++
			}
			letters, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
				Group: "undertaker", From: pocketmq.FromFirstOffset, Subscriptions: map[string]pocketmq.Filter{"%DLQ%G": {}}, Handler: in.handler("undertaker"),
			})
			t.ok(err, "a consumer of dead letters")
			in.until(t, "the dead letter", func(list []got) bool { return len(list) >= 5 })
			t.equal("dead letters", map[string]int{"bad": 1}, in.of("undertaker"))
			t.equal("attempts", map[string]int{"bad": 3, "good": 1}, in.of("c"))
			t.poll("what was sent back", func() bool { return co.Status().SentBack == 3 }) // the letter may be consumed before its sender has the answer
			t.ok(letters.Close(), "close")
		}},
		{"a handler says when, or that it is of no use", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				in.put("c", msgs...)
				switch m := msgs[0]; {
				case string(m.Body) == "dead":
					return pocketmq.DeadLetter(fails)
				case string(m.Body) == "later" && m.ReconsumeTimes == 0:
					return pocketmq.RetryAfter(fails, 1)
				}
				return nil
			}})
			p := t.producer(c, pocketmq.ProducerConfig{})
			for _, body := range []string{"dead", "later"} {
				_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte(body)})
				t.ok(err, "send")
			}
			in.until(t, "what comes again", func(list []got) bool { return len(list) >= 3 })
			t.equal("attempts", map[string]int{"dead": 1, "later": 2}, in.of(""))
			t.consumer(c, pocketmq.ConsumerConfig{Group: "undertaker", From: pocketmq.FromFirstOffset, Subscriptions: map[string]pocketmq.Filter{"%DLQ%G": {}}, Handler: in.handler("undertaker")})
			in.until(t, "the dead letter", func(list []got) bool { return len(list) >= 4 })
			t.equal("dead letters", map[string]int{"dead": 1}, in.of("undertaker"))
		}},
	}
}

func pollCases() []transportCase {
	return []transportCase{
		{"a pull consumer polls, seeks, commits and goes on where it was", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			t.send(t.producer(c, pocketmq.ProducerConfig{}), 0, 20)
			q := pocketmq.MessageQueue{Topic: "T", BrokerName: "broker-a"}
			start := func() *pocketmq.PullConsumer {
				co, err := c.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, ManualCommit: true, PullBatchSize: 5})
				t.ok(err, "start")
				t.ok(co.Assign(t.Context(), q), "assign")
				return co
			}
			poll := func(co *pocketmq.PullConsumer, from, n int) {
				t.Helper()
				for i := from; i < from+n; {
					ctx, cancel := t.within(t.patience())
					msgs, err := co.Poll(ctx)
					cancel()
					t.ok(err, "poll")
					for _, m := range msgs {
						t.equal("a body", fmt.Sprint(i), string(m.Body))
						i++
					}
				}
			}
			co := start()
			poll(co, 0, 10)
			t.ok(co.Commit(t.Context()), "commit")
			poll(co, 10, 10)
			at, err := co.Committed(t.Context(), q)
			t.ok(err, "committed")
			t.equal("the committed offset", int64(10), at)
			t.ok(co.Seek(t.Context(), q, 3), "seek")
			poll(co, 3, 17)
			ended, cancel := context.WithCancel(t.Context())
			polled := beside(func() ([]*pocketmq.MessageExt, error) { return co.Poll(ended) })
			cancel()
			t.is(await(t, polled, "the end of Poll").err, "a Poll of nothing", context.Canceled)
			t.ok(co.Close(), "close")
			co = start()
			poll(co, 10, 10)

			for offset, want := range map[int64]pocketmq.PullStatus{0: pocketmq.PullFound, 20: pocketmq.PullNoNewMessage, 99: pocketmq.PullOffsetIllegal, -5: pocketmq.PullOffsetIllegal} {
				r, err := co.Pull(t.Context(), q, offset, 7)
				t.ok(err, "pull")
				t.equal(fmt.Sprintf("a pull at %d", offset), want, r.Status)
				t.equal("the bounds", []int64{0, 20}, []int64{r.MinOffset, r.MaxOffset})
			}
		}},
		{"a pull that nobody waits for any more is not held any longer", func(t *transportTest) {
			timings := Fast()
			timings.PullSuspend, timings.PullExpire = time.Hour, 2*time.Hour
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 4, "U": 2}, Timings: timings})
			var in inbox
			co := t.consumer(c, pocketmq.ConsumerConfig{Group: "G", Handler: in.handler("c"), Subscriptions: map[string]pocketmq.Filter{"T": {}, "U": {}}})
			held := func(n int) func() bool {
				return func() bool { return c.Broker("broker-a", 0).Status().HeldPulls == n }
			}
			t.poll("a pull of each queue, and of that of the retry topic", held(7))
			t.ok(co.Unsubscribe(t.Context(), "T"), "unsubscribe")
			t.poll("pulls of the other queues only", held(3))
		}},
		{"a held pull is answered by the next message", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			p := t.producer(c, pocketmq.ProducerConfig{})
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
			t.group(c, "G", "the consumer pulls", shared(1, 1))
			for i := range 20 {
				begin := time.Now()
				t.send(p, i, i+1)
				in.bodies(t, i, i+1)
				if d := time.Since(begin); d > 5*time.Second {
					t.Errorf("message %d took %v", i, d)
				}
			}
		}},
	}
}
