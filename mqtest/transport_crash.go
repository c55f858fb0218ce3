package mqtest

import (
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq"
)

func crashCases() []transportCase {
	return []transportCase{
		{"a broker that is killed is noticed at once, and comes back at its address", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
			p := t.producer(c, pocketmq.ProducerConfig{})
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
			t.send(p, 0, 10)
			in.bodies(t, 0, 10)
			addr := c.Broker("broker-a", 0).Addr()
			for round := range 3 {
				t.ok(c.Kill("broker-a", 0), "kill")
				t.gone(c, "broker-a")
				begin := time.Now()
				_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("nobody")})
				t.is(err, "a send to nobody")
				if d := time.Since(begin); d > 10*time.Second {
					t.Errorf("the send took %v", d)
				}
				t.ok(c.Restart(t.Context(), "broker-a", 0), "restart")
				t.equal("the address", addr, c.Broker("broker-a", 0).Addr())
				from := 10 + round*10
				t.sendAgain(p, from, from+10)
				in.bodies(t, from, from+10)
			}
		}},
		{"with another broker there nothing fails while one is down", func(t *transportTest) {
			c := t.twoGroups()
			p := t.producer(c, pocketmq.ProducerConfig{})
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
			t.send(p, 0, 10)
			t.ok(c.Kill("broker-b", 0), "kill")
			t.send(p, 10, 40)
			t.ok(c.Restart(t.Context(), "broker-b", 0), "restart")
			t.send(p, 40, 50)
			in.bodies(t, 0, 50)
		}},
		{"a name server that is killed is missed by nobody, and comes back at its address", func(t *transportTest) {
			c := t.twoGroups()
			addrs := c.NameServerAddrs()
			p := t.producer(c, pocketmq.ProducerConfig{})
			for i := range 2 {
				t.ok(c.KillNameServer(i), "kill")
				t.ok(c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: fmt.Sprint("N", i)}), "create a topic meanwhile")
				_, err := p.Send(t.Context(), &pocketmq.Message{Topic: fmt.Sprint("N", i), Body: []byte("x")})
				t.ok(err, "send meanwhile")
				t.ok(c.RestartNameServer(t.Context(), i), "restart")
				t.equal("the addresses", addrs, c.NameServerAddrs())
				t.registered(c, i, 2)
			}
		}},
		{"a member that dies is gone at once, and what it held goes to the others", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
			var in inbox
			cfg := pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset}
			cfg.Handler = in.handler("stays")
			stays := t.consumer(c, cfg)
			cfg.Handler = in.handler("goes")
			goes := t.consumer(c, cfg)
			t.group(c, "G", "two members share", shared(2, 4))
			t.ok(goes.Close(), "close")
			t.settled(4, stays)
			t.group(c, "G", "one member has all", shared(1, 4))
			t.send(t.producer(c, pocketmq.ProducerConfig{}), 0, 8)
			in.bodies(t, 0, 8)
			t.onceEach(in.of("stays"), 0, 8)
		}},
	}
}

// gone waits until the name servers have dropped a broker.
func (t *transportTest) gone(c *pocketmq.Cluster, broker string) {
	t.Helper()
	t.poll("broker "+broker+" is gone", func() bool {
		for _, b := range c.NameServer(0).Status().Brokers {
			if b.Name == broker {
				return false
			}
		}
		return true
	})
}

// registered waits until a name server knows n brokers.
func (t *transportTest) registered(c *pocketmq.Cluster, i, n int) {
	t.Helper()
	t.poll(fmt.Sprintf("name server %d knows %d brokers", i, n), func() bool { return len(c.NameServer(i).Status().Brokers) == n })
}

// sendAgain is send over the time that it takes to find a broker that has come
// back.
func (t *transportTest) sendAgain(p *pocketmq.Producer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		t.poll(fmt.Sprintf("send %d", i), func() bool {
			_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: fmt.Append(nil, i)})
			return err == nil
		})
	}
}

// poll waits for what nobody tells of.
func (t *transportTest) poll(what string, done func() bool) {
	t.Helper()
	const pause = 5 * time.Millisecond
	for end := time.Now().Add(t.patience()); !done(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, t.patience())
		}
		timer := time.NewTimer(pause)
		<-timer.C
	}
}
