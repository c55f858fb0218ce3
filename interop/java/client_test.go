package java

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/mqtest"
)

// lab is a cluster with a virtual machine of clients.
type lab struct {
	*pocketmq.Cluster
	jvm *jvm
}

// scenario is one scenario and what is to be seen of it from our side.
type scenario struct {
	name string
	run  func(t *testing.T, l *lab, topic string)
}

// alone is a scenario that needs nothing from our side.
func alone(name string, args ...string) scenario {
	return scenario{name, func(t *testing.T, l *lab, topic string) { l.jvm.run(t, name, append([]string{topic}, args...)...) }}
}

// TestJavaClient runs everything that the client does, as it is by default.
func TestJavaClient(t *testing.T) {
	needKit(t)
	c := mqtest.Run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1")})
	runAll(t, "client", &lab{c, startJVM(t, c.NameServerAddrs())}, slices.Concat(producing, consuming, asking))
}

// TestJavaClientWithBinaryHeaders runs the part of it that depends on the form of
// headers.
func TestJavaClientWithBinaryHeaders(t *testing.T) {
	needKit(t)
	c := mqtest.Run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1")})
	var some []scenario
	for _, s := range slices.Concat(producing, consuming, asking) {
		switch s.name {
		case "sync", "batch", "properties", "delay", "concurrent", "orderly", "retry", "tags", "lite-subscribe", "pull", "query", "offsets", "create-topic", "leave":
			some = append(some, s)
		}
	}
	runAll(t, "binary", &lab{c, startJVM(t, c.NameServerAddrs(), "-Drocketmq.serialize.type=ROCKETMQ")}, some)
}

// TestJavaClientWithTLS: the same port takes both, and with TLSEnforcing only one.
func TestJavaClientWithTLS(t *testing.T) {
	needKit(t)
	both := mqtest.Run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1"), Topics: map[string]int{"T": 4}})
	only := mqtest.Run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCPWith(pocketmq.TCPConfig{Host: "127.0.0.1", TLS: pocketmq.TLSEnforcing}), Topics: map[string]int{"T": 4}})
	for name, c := range map[string]*pocketmq.Cluster{"permissive": both, "enforcing": only} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			summary(t, "tls/"+name)
			l := &lab{c, startJVM(t, c.NameServerAddrs(), "-Dtls.enable=true")}
			l.jvm.run(t, "tls", "T")
			l.jvm.run(t, "concurrent", "T2")
			l.expect(t, "T", numbers(1))
		})
	}
	t.Run("plain-at-enforcing", func(t *testing.T) {
		t.Parallel()
		summary(t, "tls/plain-at-enforcing")
		_, err := startJVM(t, only.NameServerAddrs()).try(t.Context(), "sync", "T")
		require.Error(t, err)
	})
}

// TestJavaClientAcrossRestarts: consumers and producers find a broker again that
// was killed, and a name server.
func TestJavaClientAcrossRestarts(t *testing.T) {
	needKit(t)
	summary(t, "restarts")
	c := mqtest.Run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1"), Topics: map[string]int{"T": 4, "U": 4}})
	l := &lab{c, startJVM(t, c.NameServerAddrs())}
	l.jvm.run(t, "start", "T", "T")
	l.jvm.run(t, "start", "U", "U", "orderly")
	l.send(t, "T", 0, 8)
	l.send(t, "U", 0, 8)
	l.jvm.run(t, "await", "T", "8")
	l.jvm.run(t, "await", "U", "8")
	for _, group := range []string{"G_T", "G_U"} { // or they come again
		topic := strings.TrimPrefix(group, "G_")
		require.NoError(t, c.WaitGroup(t.Context(), group, func(g pocketmq.GroupStatus) bool { return committed(g, topic) == 8 }))
	}
	require.NoError(t, c.Kill("broker-a", 0))
	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	l.send(t, "T", 8, 16)
	l.send(t, "U", 8, 16)
	for _, topic := range []string{"T", "U"} {
		got := strings.Fields(l.jvm.run(t, "await", topic, "16"))
		for _, n := range numbers(16) {
			assert.Contains(t, got, n)
		}
		l.members(t, "G_"+topic, 1)
	}
	require.NoError(t, c.KillNameServer(0))
	require.NoError(t, c.RestartNameServer(t.Context(), 0))
	require.Eventually(t, func() bool { // it learns of its brokers when they register again
		_, err := c.Admin().Route(t.Context(), "TBW102")
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
	l.jvm.run(t, "sync", "Made")
	l.expect(t, "Made", numbers(12))
	l.send(t, "T", 16, 24)
	l.jvm.run(t, "await", "T", "24")
	l.jvm.run(t, "stop", "T")
	l.jvm.run(t, "stop", "U")
}

// runAll runs scenarios at the same time, each with a topic of its own.
func runAll(t *testing.T, kind string, l *lab, all []scenario) {
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			summary(t, kind+"/"+s.name)
			topic := "Java_" + s.name
			require.NoError(t, l.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: topic, ReadQueues: 4}))
			s.run(t, l, topic)
		})
	}
}

var producing = []scenario{
	{"sync", func(t *testing.T, l *lab, topic string) {
		l.jvm.run(t, "sync", topic)
		l.expect(t, topic, numbers(12))
	}},
	{"async", func(t *testing.T, l *lab, topic string) {
		l.jvm.run(t, "async", topic)
		l.expect(t, topic, numbers(100))
	}},
	{"oneway", func(t *testing.T, l *lab, topic string) {
		l.jvm.run(t, "oneway", topic)
		l.expect(t, topic, numbers(20))
	}},
	{"batch", func(t *testing.T, l *lab, topic string) {
		ids := strings.Split(l.jvm.run(t, "batch", topic), ",")
		for i, m := range l.expect(t, topic, numbers(10)) {
			assert.EqualValues(t, i, m.QueueOffset)
			assert.Equal(t, "tag"+strconv.Itoa(i%2), m.Tag)
			assert.Equal(t, []string{"key" + strconv.Itoa(i)}, m.Keys)
			assert.Equal(t, ids[i], m.MsgID)
		}
	}},
	{"properties", func(t *testing.T, l *lab, topic string) {
		id := l.jvm.run(t, "properties", topic)
		m := l.read(t, topic, 1)[0]
		assert.Equal(t, id, m.MsgID)
		assert.Equal(t, "TagA", m.Tag)
		assert.Equal(t, []string{"k1", "k2"}, m.Keys)
		assert.EqualValues(t, 7, m.Flag)
		assert.Equal(t, map[string]string{"user": "värde", "empty?": "no"}, m.Properties)
		again, err := l.Admin().MessageByUniqueKey(t.Context(), topic, id)
		require.NoError(t, err)
		assert.Equal(t, m.OffsetMsgID, again.OffsetMsgID)
	}},
	{"delay", func(t *testing.T, l *lab, topic string) {
		const level = 4
		l.jvm.run(t, "delay", topic, strconv.Itoa(level))
		m := l.read(t, topic, 1)[0]
		assert.GreaterOrEqual(t, m.StoreTime.Sub(m.BornTime), mqtest.Fast().DelayLevels[level-1])
	}},
	{"zlib", compressed("ZLIB")},
	{"lz4", compressed("LZ4")},
	{"zstd", compressed("ZSTD")},
	{"selector", func(t *testing.T, l *lab, topic string) {
		l.jvm.run(t, "selector", topic)
		l.expect(t, topic, numbers(30))
	}},
	{"queue", func(t *testing.T, l *lab, topic string) {
		l.jvm.run(t, "queue", topic)
		for i, m := range l.expect(t, topic, numbers(4)) {
			assert.Equal(t, i, m.Queue.QueueID)
		}
	}},
	alone("too-large"),
	alone("illegal"),
	{"timed", func(t *testing.T, l *lab, topic string) { // refused: stored as it is, it would come at once
		_, err := l.jvm.try(t.Context(), "timed", topic, "1000")
		require.ErrorContains(t, err, "CODE: 3 ")
	}},
	{"auto-create", func(t *testing.T, l *lab, _ string) {
		const topic = "Java_made_by_a_send"
		l.jvm.run(t, "sync", topic)
		assert.Len(t, l.queues(t, topic), 4)
		l.expect(t, topic, numbers(12))
	}},
	{"namespace", func(t *testing.T, l *lab, topic string) {
		const space = "Space"
		l.jvm.run(t, "namespace", topic, space)
		l.expect(t, space+"%"+topic, numbers(1))
		l.jvm.run(t, "namespaced", topic, space)
	}},
}

func compressed(kind string) func(*testing.T, *lab, string) {
	return func(t *testing.T, l *lab, topic string) {
		l.jvm.run(t, "compressed", topic, kind)
		m := l.read(t, topic, 1)[0]
		assert.Equal(t, strings.Repeat("x", 20_000), string(m.Body))
		assert.Less(t, m.StoreSize, 2000)
		// And back: a consumer in Java of what ours has compressed.
		p, err := l.StartProducer(t.Context(), pocketmq.ProducerConfig{Compression: map[string]pocketmq.Compression{"ZLIB": pocketmq.Zlib, "LZ4": pocketmq.LZ4, "ZSTD": pocketmq.Zstd}[kind]})
		require.NoError(t, err)
		body := strings.Repeat("y", 30_000)
		_, err = p.Send(t.Context(), &pocketmq.Message{Topic: topic, Body: []byte(body)})
		require.NoError(t, err)
		l.jvm.run(t, "start", topic, topic)
		got := l.jvm.run(t, "await", topic, "2")
		l.jvm.run(t, "stop", topic)
		assert.Equal(t, []string{string(m.Body), body}, strings.Split(got, "\n"))
	}
}

var consuming = []scenario{
	alone("concurrent"),
	alone("orderly"),
	alone("orderly-retry"),
	alone("broadcast"),
	alone("retry"),
	alone("tags"),
	{"sql", func(t *testing.T, l *lab, topic string) { // refused at the start
		_, err := l.jvm.try(t.Context(), "sql", topic)
		require.ErrorContains(t, err, "The broker does not support consumer to filter message by SQL92")
	}},
	alone("heartbeat-v2"),
	{"from-timestamp", func(t *testing.T, l *lab, topic string) {
		assert.Equal(t, "[8, 9, 10, 11, 12, 13, 14, 15]", l.jvm.run(t, "from-timestamp", topic))
	}},
	alone("from-last"),
	{"resubscribe", func(t *testing.T, l *lab, topic string) {
		second := topic + "_2"
		require.NoError(t, l.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: second, ReadQueues: 2}))
		l.jvm.run(t, "resubscribe", topic, second)
	}},
	alone("lite-subscribe"),
	alone("lite-assign"),
	alone("lite-empty"),
	alone("pull"),
	{"leave", leave},
	{"reset", reset},
	{"mixed", mixed},
	{"mixed-orderly", mixedOrderly},
}

var asking = []scenario{
	alone("query"),
	alone("offsets"),
	{"create-topic", func(t *testing.T, l *lab, _ string) {
		const topic = "Java_made_on_purpose"
		l.jvm.run(t, "create-topic", topic)
		assert.Len(t, l.queues(t, topic), 3)
	}},
}

// leave: a consumer that shuts down is gone at once.
func leave(t *testing.T, l *lab, topic string) {
	group := "G_" + topic
	id := l.jvm.run(t, "start", topic, topic)
	l.members(t, group, 1)
	members, err := l.Admin().Members(t.Context(), group)
	require.NoError(t, err)
	require.Len(t, members, 1)
	assert.Equal(t, id, members[0].ClientID)
	l.jvm.run(t, "stop", topic)
	g, known := l.Broker("broker-a", 0).Group(group)
	assert.True(t, known)
	assert.Empty(t, g.Members)
}

// reset: a running consumer gets everything again.
func reset(t *testing.T, l *lab, topic string) {
	group := "G_" + topic
	l.send(t, topic, 0, 8)
	l.jvm.run(t, "start", topic, topic)
	l.jvm.run(t, "await", topic, "8")
	// Offsets that are not committed yet would be lost with the reset, and so
	// would the test's certainty of what comes again.
	require.NoError(t, l.WaitGroup(t.Context(), group, func(g pocketmq.GroupStatus) bool { return committed(g, topic) == 8 }))
	_, err := l.Admin().ResetOffsets(t.Context(), group, topic, time.UnixMilli(0))
	require.NoError(t, err)
	l.jvm.run(t, "await", topic, "16")
	got := strings.Fields(l.jvm.run(t, "stop", topic))
	for i := range 8 {
		assert.Equal(t, 2, count(got, strconv.Itoa(i)), "of message %d in %v", i, got)
	}
}

// mixed: a consumer of theirs and one of ours share the queues without gap or
// overlap, also when one of them leaves.
func mixed(t *testing.T, l *lab, topic string) {
	group := "G_" + topic
	var ours bag
	l.jvm.run(t, "start", topic, topic)
	c, err := l.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
		Group: group, Subscriptions: map[string]pocketmq.Filter{topic: {}}, From: pocketmq.FromFirstOffset, Handler: ours.add,
	})
	require.NoError(t, err)
	l.shared(t, group, topic, 2)
	l.send(t, topic, 0, 40)
	require.NoError(t, l.WaitGroup(t.Context(), group, func(g pocketmq.GroupStatus) bool { return committed(g, topic) == 40 }))
	theirs := strings.Fields(l.jvm.run(t, "got", topic))
	assert.Len(t, theirs, 20)
	assert.ElementsMatch(t, numbers(40), append(ours.all(), theirs...))
	require.NoError(t, c.Close())
	l.shared(t, group, topic, 1)
	l.send(t, topic, 40, 60)
	l.jvm.run(t, "await", topic, "40")
	theirs = strings.Fields(l.jvm.run(t, "stop", topic))
	assert.ElementsMatch(t, numbers(60), append(ours.all(), theirs...))
}

// mixedOrderly: the same with consumers that lock.
func mixedOrderly(t *testing.T, l *lab, topic string) {
	group := "G_" + topic
	var ours bag
	l.jvm.run(t, "start", topic, topic, "orderly")
	c, err := l.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
		Group: group, Subscriptions: map[string]pocketmq.Filter{topic: {}}, From: pocketmq.FromFirstOffset, Orderly: true, Handler: ours.add,
	})
	require.NoError(t, err)
	require.NoError(t, l.WaitGroup(t.Context(), group, func(g pocketmq.GroupStatus) bool {
		holders := make(map[string]int)
		for q, id := range g.Locks {
			if q.Topic == topic {
				holders[id]++
			}
		}
		return len(holders) == 2 && holders[c.ClientID()] == 2
	}))
	l.send(t, topic, 0, 40)
	require.NoError(t, l.WaitGroup(t.Context(), group, func(g pocketmq.GroupStatus) bool { return committed(g, topic) == 40 }))
	theirs := strings.Fields(l.jvm.run(t, "stop", topic))
	assert.Len(t, theirs, 20)
	assert.ElementsMatch(t, numbers(40), append(ours.all(), theirs...))
}

// send sends the numbers from, to-1.
func (l *lab) send(t *testing.T, topic string, from, to int) {
	t.Helper()
	p, err := l.StartProducer(t.Context(), pocketmq.ProducerConfig{})
	require.NoError(t, err)
	for i := from; i < to; i++ {
		_, err := p.Send(t.Context(), &pocketmq.Message{Topic: topic, Body: []byte(strconv.Itoa(i))})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
}

func (l *lab) queues(t *testing.T, topic string) []pocketmq.MessageQueue {
	t.Helper()
	stats, err := l.Admin().TopicStats(t.Context(), topic)
	require.NoError(t, err)
	queues := make([]pocketmq.MessageQueue, 0, len(stats))
	for q := range stats {
		queues = append(queues, q)
	}
	return queues
}

// read reads n messages of a topic with a consumer of ours.
func (l *lab) read(t *testing.T, topic string, n int) []*pocketmq.MessageExt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := l.StartPullConsumer(ctx, pocketmq.PullConsumerConfig{Group: "Reader", From: pocketmq.FromFirstOffset, ManualCommit: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	require.NoError(t, c.Assign(ctx, l.queues(t, topic)...))
	var got []*pocketmq.MessageExt
	for len(got) < n {
		msgs, err := c.Poll(ctx)
		require.NoError(t, err, "%d of %d messages came", len(got), n)
		got = append(got, msgs...)
	}
	return got
}

// expect reads as many messages as there are bodies, wants exactly these, and
// returns them in the order of the bodies.
func (l *lab) expect(t *testing.T, topic string, bodies []string) []*pocketmq.MessageExt {
	t.Helper()
	sorted := make([]*pocketmq.MessageExt, len(bodies))
	for _, m := range l.read(t, topic, len(bodies)) {
		i := slices.Index(bodies, string(m.Body))
		require.GreaterOrEqual(t, i, 0, "body %q", m.Body)
		require.Nil(t, sorted[i], "body %q again", m.Body)
		sorted[i] = m
	}
	return sorted
}

// members waits until a group has n members.
func (l *lab) members(t *testing.T, group string, n int) {
	t.Helper()
	require.NoError(t, l.WaitGroup(t.Context(), group, func(g pocketmq.GroupStatus) bool { return len(g.Members) == n }))
}

// shared waits until n members share the queues of a topic evenly.
func (l *lab) shared(t *testing.T, group, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var last pocketmq.GroupStatus
	err := l.WaitGroup(ctx, group, func(g pocketmq.GroupStatus) bool {
		last = g
		if len(g.Members) != n {
			return false
		}
		for _, m := range g.Members {
			held := 0
			for _, q := range m.Assigned {
				if q.Topic == topic {
					held++
				}
			}
			if held != 4/n {
				return false
			}
		}
		return true
	})
	require.NoError(t, err, "%+v", last)
}

func committed(g pocketmq.GroupStatus, topic string) int64 {
	sum := int64(0)
	for _, q := range g.Queues {
		if q.Queue.Topic == topic {
			sum += max(q.Committed, 0)
		}
	}
	return sum
}

// bag is a handler that keeps the bodies.
type bag struct {
	mu     sync.Mutex // guards bodies
	bodies []string
}

func (b *bag) add(_ context.Context, msgs []*pocketmq.MessageExt) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range msgs {
		b.bodies = append(b.bodies, string(m.Body))
	}
	return nil
}

func (b *bag) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.bodies)
}

func numbers(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprint(i)
	}
	return s
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}
