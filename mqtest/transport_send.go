package mqtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// sent is what a SendAsync came to.
type sent struct {
	res *pocketmq.SendResult
	err error
}

func sendCases() []transportCase {
	return []transportCase{
		{"every kind of send stores its messages where it says", func(t *transportTest) {
			c := t.twoGroups()
			p := t.producer(c, pocketmq.ProducerConfig{})
			queues, err := p.Queues(t.Context(), "T")
			t.ok(err, "queues")
			t.equal("queues", 4, len(queues))
			perQueue := make(map[pocketmq.MessageQueue]int64)
			stored := func(what string, n int64, r *pocketmq.SendResult, err error) {
				t.Helper()
				t.ok(err, what)
				t.equal(what+": the status", pocketmq.SendOK, r.Status)
				t.equal(what+": the offset", perQueue[r.Queue], r.QueueOffset)
				perQueue[r.Queue] += n
				if r.MsgID == "" || r.OffsetMsgID == "" || r.Queue.Topic != "T" {
					t.Errorf("%s: %+v", what, r)
				}
			}
			full := &pocketmq.Message{Topic: "T", Tag: "tag", Keys: []string{"k1", "k2"}, Properties: map[string]string{"p": "größe"}, Flag: 7, Body: []byte{0, 1, 2, 255}}
			r, err := p.Send(t.Context(), full)
			stored("Send", 1, r, err)
			got, err := c.Admin().MessageByID(t.Context(), r.OffsetMsgID)
			t.ok(err, "look up by id")
			t.equal("the message", *full, got.Message)
			t.equal("its id", r.MsgID, got.MsgID)
			t.equal("where it lies", c.Broker(r.Queue.BrokerName, 0).Addr(), got.StoreHost.String())
			if !got.BornHost.IsValid() || got.BornHost.Port() == 0 {
				t.Errorf("the message comes from %v", got.BornHost)
			}

			r, err = p.SendTo(t.Context(), queues[2], &pocketmq.Message{Topic: "T", Body: []byte("x")})
			stored("SendTo", 1, r, err)
			t.equal("the queue", queues[2], r.Queue)
			r, err = p.SendSelect(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("x")}, func(_ *pocketmq.Message, qs []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) {
				return qs[1], nil
			})
			stored("SendSelect", 1, r, err)
			t.equal("the queue", queues[1], r.Queue)
			for range 3 {
				again, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", ShardingKey: "key", Body: []byte("x")})
				stored("Send by sharding key", 1, again, err)
			}
			var batch []*pocketmq.Message
			for i := range 5 {
				batch = append(batch, &pocketmq.Message{Topic: "T", Keys: []string{fmt.Sprint("b", i)}, Body: fmt.Append(nil, i)})
			}
			r, err = p.SendBatch(t.Context(), batch)
			stored("SendBatch", 5, r, err)
			t.equal("ids of the batch", 5, len(r.MsgIDs))
			done := make(chan sent, 1)
			t.ok(p.SendAsync(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("x")}, func(r *pocketmq.SendResult, err error) { done <- sent{r, err} }), "SendAsync")
			a := await(t, done, "the end of SendAsync")
			stored("SendAsync", 1, a.res, a.err)
			r, err = p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte(strings.Repeat("compress me ", 20_000))})
			stored("Send of a large message", 1, r, err)
			got, err = c.Admin().MessageByUniqueKey(t.Context(), "T", r.MsgID)
			t.ok(err, "look up by unique key")
			t.equal("its body", 240_000, len(got.Body))

			stats, err := c.Admin().TopicStats(t.Context(), "T")
			t.ok(err, "statistics")
			for _, q := range queues {
				t.equal(fmt.Sprintf("messages of %v", q), perQueue[q], stats[q].MaxOffset)
			}
		}},
		{"what is sent oneway arrives", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
			p := t.producer(c, pocketmq.ProducerConfig{})
			for i := range 100 {
				t.ok(p.SendOneway(t.Context(), &pocketmq.Message{Topic: "T", Body: fmt.Append(nil, i)}), "oneway")
			}
			in.bodies(t, 0, 100)
		}},
		{"many senders at a time store each message once", func(t *transportTest) {
			c := t.twoGroups()
			p := t.producer(c, pocketmq.ProducerConfig{})
			const senders, each = 16, 25
			done := together(senders, func(i int) {
				for j := range each {
					if _, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: fmt.Append(nil, i*each+j)}); err != nil {
						t.Errorf("send: %v", err)
					}
				}
			})
			done()
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
			in.bodies(t, 0, senders*each)
			t.onceEach(in.of(""), 0, senders*each)
		}},
		{"a delayed message comes when it is due, and not before", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
			p := t.producer(c, pocketmq.ProducerConfig{})
			level, timings := 3, Fast()
			if inBubble() {
				timings = pocketmq.DefaultTimings()
			}
			begin := time.Now()
			_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", DelayLevel: level, Body: []byte("0")})
			t.ok(err, "send")
			in.bodies(t, 0, 1)
			if d := time.Since(begin); d <= timings.DelayLevels[level-1]-time.Millisecond { // brokers count whole ones
				t.Errorf("a message of level %d came after %v", level, d)
			}
		}},
		{"what a broker refuses is refused everywhere alike", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{
				Topics: map[string]int{"T": 1}, Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{DisableAutoCreateTopic: true, MaxMessageSize: 1000}}},
			})
			p := t.producer(c, pocketmq.ProducerConfig{CompressOver: -1})
			_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "Unknown", Body: []byte("x")})
			t.is(err, "send to an unknown topic", pocketmq.ErrNoRoute)
			_, err = p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: make([]byte, 1001)})
			t.is(err, "send of what is too large for the broker", pocketmq.ErrMessageTooLarge)
			var e *pocketmq.Error
			if !errors.As(err, &e) || e.Code != protocol.MessageIllegal || e.Broker != "broker-a" {
				t.Errorf("the error does not say who answered what: %#v", e)
			}
			// More than a frame of RocketMQ's holds does not even leave.
			large := t.producer(c, pocketmq.ProducerConfig{Group: "large", CompressOver: -1, MaxMessageSize: 20 << 20})
			_, err = large.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: make([]byte, 17<<20)})
			t.is(err, "send of what is too large for a frame", pocketmq.ErrMessageTooLarge)
			if e = nil; !errors.As(err, &e) || e.Code != protocol.MessageIllegal {
				t.Errorf("the error is none of a refusal: %#v", err)
			}
			if n := large.Status().Retried; n > 0 {
				t.Errorf("what is too large for a frame was sent again %d times", n)
			}
			_, err = p.Send(t.Context(), &pocketmq.Message{Topic: "a b", Body: []byte("x")})
			t.is(err, "send to an illegal name", pocketmq.ErrIllegalName)
			t.ok(c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "R", ReadQueues: 1, Perm: pocketmq.PermRead}), "a topic that is for reading")
			_, err = p.Send(t.Context(), &pocketmq.Message{Topic: "R", Body: []byte("x")})
			t.is(err, "send to a topic that is for reading")
			_, err = c.Admin().Route(t.Context(), "Unknown")
			t.is(err, "the route of an unknown topic", pocketmq.ErrNoRoute)
			_, err = c.Admin().MessageByUniqueKey(t.Context(), "T", "7F000001000000000000000000000000")
			t.is(err, "a message that is not there", pocketmq.ErrNotFound)
			t.ok(c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "G"}), "a group")
			t.is(c.Admin().SetOffset(t.Context(), "G", pocketmq.MessageQueue{Topic: "T", BrokerName: "broker-a"}, 99), "an offset beyond the end", pocketmq.ErrOffsetOutOfRange)
		}},
		{"faults find the caller that they are for", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			cfg := pocketmq.ProducerConfig{SendTimeout: t.patience(), Retries: pocketmq.NoRetries}
			p, other := t.producer(c, cfg), t.producer(c, cfg)
			// lose is a send that is given up: what the others take is the machine's business.
			lose := func(body string) error {
				ctx, cancel := t.within(time.Second)
				defer cancel()
				_, err := p.Send(ctx, &pocketmq.Message{Topic: "T", Body: []byte(body)})
				return err
			}
			f := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Node: "broker-a/0", From: p.ClientID(), Err: &pocketmq.Error{Code: protocol.NoPermission, Remark: "not you"}})
			_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("x")})
			t.is(err, "a send of the one", pocketmq.ErrNoPermission)
			_, err = other.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("x")})
			t.ok(err, "a send of the other")
			t.equal("hits", 1, f.Hits())
			f.Remove()

			f = c.Inject(pocketmq.Fault{Code: protocol.CodeRegisterBroker, Node: "ns-0", From: "broker-a/0"})
			ctx, cancel := t.within(t.patience())
			defer cancel()
			t.ok(f.Wait(ctx, 1), "a registration of the broker by its name")
			f.Remove()

			f = c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, From: p.ClientID(), Drop: true, Times: 1})
			t.is(lose("x"), "a send that is dropped", pocketmq.ErrTimeout)
			_, err = p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("x")})
			t.ok(err, "the next send")
			f.Remove()
			f = c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, From: p.ClientID(), DropReply: true, Times: 1})
			t.is(lose("lost answer"), "a send whose answer is lost", pocketmq.ErrTimeout, pocketmq.ErrUnknownOutcome)
			f.Remove()
			stats, err := c.Admin().TopicStats(t.Context(), "T")
			t.ok(err, "statistics")
			t.equal("messages stored", int64(3), stats[pocketmq.MessageQueue{Topic: "T", BrokerName: "broker-a"}].MaxOffset)
		}},
	}
}
