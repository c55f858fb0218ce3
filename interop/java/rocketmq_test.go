package java

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
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

// rocketmq is a name server and a broker of RocketMQ's own.
type rocketmq struct {
	servers   []string
	transport pocketmq.Transport
	timings   pocketmq.Timings
	admin     *pocketmq.Admin
}

// delayLevels of the broker, whose unit is the second.
const delayLevels = "1s 1s 1s 1s 1s 1s"

// startRocketMQ starts both, which the end of the test ends.
func startRocketMQ(t *testing.T) *rocketmq {
	t.Helper()
	k := needKit(t)
	home := t.TempDir()
	names := freePorts(t, 1)
	broker := freePorts(t, 4)
	addr := fmt.Sprintf("127.0.0.1:%d", names)
	// The broker listens also on the port below by two, and, for slaves, on the
	// next one.
	config := map[string][]string{
		"namesrv.conf": {"listenPort=" + strconv.Itoa(names), "bindAddress=127.0.0.1"},
		"broker.conf": {
			"brokerClusterName=DefaultCluster", "brokerName=broker-a", "brokerId=0", "brokerIP1=127.0.0.1", "bindAddress=127.0.0.1",
			"listenPort=" + strconv.Itoa(broker+2), "haListenPort=" + strconv.Itoa(broker+3), "namesrvAddr=" + addr,
			"storePathRootDir=" + filepath.Join(home, "store"), "storePathCommitLog=" + filepath.Join(home, "store", "commitlog"),
			"mappedFileSizeCommitLog=16777216", "mappedFileSizeConsumeQueue=60000", "maxIndexNum=20000", "maxHashSlotNum=5000", "mappedFileSizeTimerLog=1024000",
			"diskMaxUsedSpaceRatio=99", "brokerFastFailureEnable=false", "osPageCacheBusyTimeOutMills=30000", "messageDelayLevel=" + delayLevels,
		},
	}
	for name, lines := range config {
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	startServer(t, k, home, "org.apache.rocketmq.namesrv.NamesrvStartup", "namesrv.conf")
	startServer(t, k, home, "org.apache.rocketmq.broker.BrokerStartup", "broker.conf")

	r := &rocketmq{servers: []string{addr}, transport: pocketmq.TCP("127.0.0.1"), timings: mqtest.Fast()}
	var err error
	r.admin, err = pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: r.servers, Transport: r.transport, Timeout: time.Minute})
	require.NoError(t, err)
	require.NoError(t, r.admin.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, r.admin.Close()) })
	// A broker that says it is up may not have registered yet.
	require.Eventually(t, func() bool {
		_, err := r.admin.Route(t.Context(), "TBW102")
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	return r
}

// startServer starts a server and waits until it says that it has.
func startServer(t *testing.T, k kit, home, class, config string) {
	t.Helper()
	cmd := k.command(t, home, class, []string{"-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-Drocketmq.home.dir=" + home}, "-c", config)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	up := make(chan string, 1) // what was said until then
	var all strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(io.TeeReader(out, &all))
		for lines.Scan() {
			if strings.Contains(lines.Text(), "boot success") {
				up <- lines.Text()
				break
			}
		}
		_, _ = io.Copy(&all, out) // until it ends
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s said:\n%s", class, all.String())
		}
	})
	select {
	case <-up:
	case <-read:
		require.Fail(t, class+" ended", all.String())
	case <-time.After(60 * time.Second):
		require.Fail(t, class+" does not come up")
	}
}

// freePorts finds n ports in a row that nobody listens on, and returns the first.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		var open []net.Listener
		first := 0
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", max(first+i, 0)))
			if err != nil {
				break
			}
			open = append(open, l)
			if i == 0 {
				first = l.Addr().(*net.TCPAddr).Port
			}
		}
		for _, l := range open {
			require.NoError(t, l.Close())
		}
		if len(open) == n {
			return first
		}
	}
	require.Fail(t, "no free ports")
	return 0
}

func (r *rocketmq) producer(t *testing.T, cfg pocketmq.ProducerConfig) *pocketmq.Producer {
	t.Helper()
	cfg.NameServers, cfg.Transport, cfg.Timings = r.servers, r.transport, r.timings
	cfg.SendTimeout = time.Minute // the virtual machine is cold, and a retry would be a message more
	p, err := pocketmq.NewProducer(cfg)
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

func (r *rocketmq) consumer(t *testing.T, cfg pocketmq.ConsumerConfig) *pocketmq.Consumer {
	t.Helper()
	cfg.NameServers, cfg.Transport, cfg.Timings = r.servers, r.transport, r.timings
	c, err := pocketmq.NewConsumer(cfg)
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func (r *rocketmq) pullConsumer(t *testing.T, cfg pocketmq.PullConsumerConfig) *pocketmq.PullConsumer {
	t.Helper()
	cfg.NameServers, cfg.Transport, cfg.Timings = r.servers, r.transport, r.timings
	c, err := pocketmq.NewPullConsumer(cfg)
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func (r *rocketmq) send(t *testing.T, topic string, from, to int) {
	t.Helper()
	p := r.producer(t, pocketmq.ProducerConfig{})
	for i := from; i < to; i++ {
		_, err := p.Send(t.Context(), &pocketmq.Message{Topic: topic, Body: []byte(strconv.Itoa(i))})
		require.NoError(t, err)
	}
}

// TestOurClientsAtRocketMQ: what a program does with PocketMQ it can do with an
// Apache RocketMQ cluster.
func TestOurClientsAtRocketMQ(t *testing.T) {
	r := startRocketMQ(t)
	for _, s := range []struct {
		name string
		run  func(t *testing.T, r *rocketmq, topic string)
	}{
		{"send", realSend}, {"async", realAsync}, {"batch", realBatch}, {"compressed", realCompressed}, {"delay", realDelay},
		{"auto-create", realAutoCreate}, {"concurrent", realConcurrent}, {"retry", realRetry}, {"orderly", realOrderly},
		{"broadcast", realBroadcast}, {"tags", realTags}, {"poll", realPoll}, {"assign", realAssign}, {"pull", realPull},
		{"query", realQuery}, {"offsets", realOffsets}, {"reset", realReset}, {"groups", realGroups}, {"topics", realTopics},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			summary(t, "rocketmq/"+s.name)
			topic := "Go_" + s.name
			require.NoError(t, r.admin.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: topic, ReadQueues: 4}))
			s.run(t, r, topic)
		})
	}
}

// inbox collects what handlers get.
type inbox struct {
	mu   sync.Mutex // guards what follows
	msgs []*pocketmq.MessageExt
	more chan struct{} // closed and replaced with every message
}

func (b *inbox) add(_ context.Context, msgs []*pocketmq.MessageExt) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.msgs = append(b.msgs, msgs...)
	if b.more != nil {
		close(b.more)
		b.more = nil
	}
	return nil
}

// await waits for n messages and returns all there are.
func (b *inbox) await(t *testing.T, n int) []*pocketmq.MessageExt {
	t.Helper()
	timeout := time.After(40 * time.Second)
	for {
		b.mu.Lock()
		msgs := slices.Clone(b.msgs)
		if b.more == nil {
			b.more = make(chan struct{})
		}
		more := b.more
		b.mu.Unlock()
		if len(msgs) >= n {
			return msgs
		}
		select {
		case <-more:
		case <-timeout:
			require.Fail(t, "messages are missing", "%d of %d came: %v", len(msgs), n, bodies(msgs))
		}
	}
}

func bodies(msgs []*pocketmq.MessageExt) []string {
	all := make([]string, len(msgs))
	for i, m := range msgs {
		all[i] = string(m.Body)
	}
	return all
}

func everything(topic string) map[string]pocketmq.Filter {
	return map[string]pocketmq.Filter{topic: {}}
}

func realSend(t *testing.T, r *rocketmq, topic string) {
	p := r.producer(t, pocketmq.ProducerConfig{})
	queues, err := p.Queues(t.Context(), topic)
	require.NoError(t, err)
	require.Len(t, queues, 4)
	sent, err := p.SendTo(t.Context(), queues[2], &pocketmq.Message{
		Topic: topic, Tag: "TagA", Keys: []string{"k1", "k2"}, Flag: 7, Properties: map[string]string{"user": "värde"}, Body: []byte("body"),
	})
	require.NoError(t, err)
	assert.Equal(t, pocketmq.SendOK, sent.Status)
	assert.Equal(t, queues[2], sent.Queue)
	assert.Zero(t, sent.QueueOffset)
	var in inbox
	r.consumer(t, pocketmq.ConsumerConfig{Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Handler: in.add})
	m := in.await(t, 1)[0]
	assert.Equal(t, "body", string(m.Body))
	assert.Equal(t, "TagA", m.Tag)
	assert.Equal(t, []string{"k1", "k2"}, m.Keys)
	assert.EqualValues(t, 7, m.Flag)
	assert.Equal(t, map[string]string{"user": "värde"}, m.Properties)
	assert.Equal(t, sent.MsgID, m.MsgID)
	assert.Equal(t, sent.OffsetMsgID, m.OffsetMsgID)
	assert.Equal(t, sent.Queue, m.Queue)

	_, err = p.Send(t.Context(), &pocketmq.Message{Topic: "SCHEDULE_TOPIC_XXXX", Body: []byte("x")})
	require.Error(t, err)
	_, err = p.SendTo(t.Context(), pocketmq.MessageQueue{Topic: topic, BrokerName: "broker-a", QueueID: 99}, &pocketmq.Message{Topic: topic, Body: []byte("x")})
	require.ErrorIs(t, err, pocketmq.ErrIllegalMessage)
}

func realAsync(t *testing.T, r *rocketmq, topic string) {
	p := r.producer(t, pocketmq.ProducerConfig{})
	const n = 100
	results := make(chan error, n)
	for i := range n {
		require.NoError(t, p.SendAsync(t.Context(), &pocketmq.Message{Topic: topic, Body: []byte(strconv.Itoa(i))}, func(_ *pocketmq.SendResult, err error) { results <- err }))
	}
	for range n {
		require.NoError(t, <-results)
	}
	require.NoError(t, p.SendOneway(t.Context(), &pocketmq.Message{Topic: topic, Body: []byte(strconv.Itoa(n))}))
	var in inbox
	r.consumer(t, pocketmq.ConsumerConfig{Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Handler: in.add})
	assert.ElementsMatch(t, numbers(n+1), bodies(in.await(t, n+1)))
}

func realBatch(t *testing.T, r *rocketmq, topic string) {
	p := r.producer(t, pocketmq.ProducerConfig{})
	var batch []*pocketmq.Message
	for i := range 10 {
		batch = append(batch, &pocketmq.Message{Topic: topic, Tag: "tag" + strconv.Itoa(i%2), Body: []byte(strconv.Itoa(i))})
	}
	sent, err := p.SendBatch(t.Context(), batch)
	require.NoError(t, err)
	require.Len(t, sent.MsgIDs, 10)
	c := r.pullConsumer(t, pocketmq.PullConsumerConfig{Group: "G_" + topic})
	got, err := c.Pull(t.Context(), sent.Queue, sent.QueueOffset, 32)
	require.NoError(t, err)
	assert.Equal(t, numbers(10), bodies(got.Messages))
	for i, m := range got.Messages {
		assert.Equal(t, sent.MsgIDs[i], m.MsgID)
		assert.Equal(t, batch[i].Tag, m.Tag)
	}
}

func realCompressed(t *testing.T, r *rocketmq, topic string) {
	var in inbox
	for _, kind := range []pocketmq.Compression{pocketmq.Zlib, pocketmq.LZ4, pocketmq.Zstd} {
		p := r.producer(t, pocketmq.ProducerConfig{Compression: kind})
		_, err := p.Send(t.Context(), &pocketmq.Message{Topic: topic, Body: []byte(strings.Repeat("x", 20_000))})
		require.NoError(t, err)
	}
	r.consumer(t, pocketmq.ConsumerConfig{Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Handler: in.add})
	for _, m := range in.await(t, 3) {
		assert.Len(t, m.Body, 20_000)
		assert.Less(t, m.StoreSize, 2000)
	}
}

func realDelay(t *testing.T, r *rocketmq, topic string) {
	p := r.producer(t, pocketmq.ProducerConfig{})
	_, err := p.Send(t.Context(), &pocketmq.Message{Topic: topic, DelayLevel: 1, Body: []byte("later")})
	require.NoError(t, err)
	var in inbox
	r.consumer(t, pocketmq.ConsumerConfig{Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Handler: in.add})
	m := in.await(t, 1)[0]
	assert.Equal(t, topic, m.Topic)
	assert.GreaterOrEqual(t, m.StoreTime.Sub(m.BornTime), time.Second-50*time.Millisecond)
}

func realAutoCreate(t *testing.T, r *rocketmq, _ string) {
	const topic = "Go_made_by_a_send"
	r.send(t, topic, 0, 8)
	route, err := r.admin.Route(t.Context(), topic)
	require.NoError(t, err)
	require.Len(t, route.Queues, 1)
	assert.Equal(t, 4, route.Queues[0].WriteQueues)
}

// realConcurrent: three members join, one leaves; nothing is lost.
func realConcurrent(t *testing.T, r *rocketmq, topic string) {
	var in inbox
	cfg := pocketmq.ConsumerConfig{Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Handler: in.add}
	first := r.consumer(t, cfg)
	r.consumer(t, cfg)
	r.send(t, topic, 0, 40)
	assert.ElementsMatch(t, numbers(40), bodies(in.await(t, 40)))
	r.consumer(t, cfg)
	require.NoError(t, first.Close())
	r.send(t, topic, 40, 80)
	seen := make(map[string]bool)
	for n := 80; ; n++ { // duplicates may come while members change
		for _, b := range bodies(in.await(t, n)) {
			seen[b] = true
		}
		if len(seen) == 80 {
			return
		}
	}
}

func realRetry(t *testing.T, r *rocketmq, topic string) {
	var tries, dead inbox
	r.consumer(t, pocketmq.ConsumerConfig{
		Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, MaxReconsume: 2,
		Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
			if string(msgs[0].Body) == "0" {
				return errors.Join(errors.New("no"), tries.add(ctx, msgs))
			}
			return tries.add(ctx, msgs)
		},
	})
	r.send(t, topic, 0, 3)
	var times []int
	for _, m := range tries.await(t, 5) {
		assert.Equal(t, topic, m.Topic)
		if string(m.Body) == "0" {
			times = append(times, m.ReconsumeTimes)
		}
	}
	assert.Equal(t, []int{0, 1, 2}, times)
	r.consumer(t, pocketmq.ConsumerConfig{Group: "D_" + topic, Subscriptions: everything("%DLQ%G_" + topic), From: pocketmq.FromFirstOffset, Handler: dead.add})
	assert.Equal(t, []string{"0"}, bodies(dead.await(t, 1)))
}

func realOrderly(t *testing.T, r *rocketmq, topic string) {
	var in inbox
	failed := false
	cfg := pocketmq.ConsumerConfig{
		Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Orderly: true, Concurrency: 1,
		Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
			if string(msgs[0].Body) == "5" && !failed {
				failed = true
				return errors.New("once")
			}
			return in.add(ctx, msgs)
		},
	}
	c := r.consumer(t, cfg)
	r.send(t, topic, 0, 40)
	last := make(map[pocketmq.MessageQueue]int64)
	for _, m := range in.await(t, 40) {
		if before, ok := last[m.Queue]; ok {
			assert.Greater(t, m.QueueOffset, before)
		}
		last[m.Queue] = m.QueueOffset
	}
	assert.Len(t, last, 4)
	locks, err := r.admin.Locks(t.Context(), "G_"+topic)
	require.NoError(t, err)
	held := 0
	for q, id := range locks {
		if q.Topic == topic && id == c.ClientID() {
			held++
		}
	}
	assert.Equal(t, 4, held)
}

func realBroadcast(t *testing.T, r *rocketmq, topic string) {
	var in [2]inbox
	for i := range in {
		r.consumer(t, pocketmq.ConsumerConfig{
			Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Model: pocketmq.Broadcasting, Handler: in[i].add,
		})
	}
	r.send(t, topic, 0, 20)
	for i := range in {
		assert.ElementsMatch(t, numbers(20), bodies(in[i].await(t, 20)))
	}
}

func realTags(t *testing.T, r *rocketmq, topic string) {
	p := r.producer(t, pocketmq.ProducerConfig{})
	for i := range 30 {
		_, err := p.Send(t.Context(), &pocketmq.Message{Topic: topic, Tag: "Tag" + string("ABC"[i%3]), Body: []byte(strconv.Itoa(i))})
		require.NoError(t, err)
	}
	var in inbox
	r.consumer(t, pocketmq.ConsumerConfig{
		Group: "G_" + topic, Subscriptions: map[string]pocketmq.Filter{topic: pocketmq.Tags("TagA", "TagC")}, From: pocketmq.FromFirstOffset, Handler: in.add,
	})
	got := in.await(t, 20)
	assert.Len(t, got, 20)
	for _, m := range got {
		assert.NotEqual(t, "TagB", m.Tag)
	}
}

func poll(t *testing.T, c *pocketmq.PullConsumer, n int) []*pocketmq.MessageExt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var got []*pocketmq.MessageExt
	for len(got) < n {
		msgs, err := c.Poll(ctx)
		require.NoError(t, err, "%d of %d messages came", len(got), n)
		got = append(got, msgs...)
	}
	return got
}

func realPoll(t *testing.T, r *rocketmq, topic string) {
	r.send(t, topic, 0, 20)
	cfg := pocketmq.PullConsumerConfig{Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, ManualCommit: true}
	c := r.pullConsumer(t, cfg)
	assert.ElementsMatch(t, numbers(20), bodies(poll(t, c, 20)))
	require.NoError(t, c.Commit(t.Context()))
	require.NoError(t, c.Close())
	c = r.pullConsumer(t, cfg)
	r.send(t, topic, 20, 24)
	assert.ElementsMatch(t, []string{"20", "21", "22", "23"}, bodies(poll(t, c, 4)))
}

func realAssign(t *testing.T, r *rocketmq, topic string) {
	r.send(t, topic, 0, 40)
	c := r.pullConsumer(t, pocketmq.PullConsumerConfig{Group: "G_" + topic, From: pocketmq.FromFirstOffset, ManualCommit: true})
	queues, err := c.Queues(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, c.Assign(t.Context(), queues...))
	assert.ElementsMatch(t, numbers(40), bodies(poll(t, c, 40)))
	require.NoError(t, c.Commit(t.Context()))
	at, err := c.Committed(t.Context(), queues[0])
	require.NoError(t, err)
	stats, err := r.admin.TopicStats(t.Context(), topic)
	require.NoError(t, err)
	assert.Equal(t, stats[queues[0]].MaxOffset, at)
	require.NoError(t, c.Seek(t.Context(), queues[0], at-2))
	again := poll(t, c, 2)
	assert.Equal(t, at-2, again[0].QueueOffset)
	require.NoError(t, c.SeekTime(t.Context(), queues[0], time.UnixMilli(0)))
	assert.Zero(t, poll(t, c, 1)[0].QueueOffset)
}

func realPull(t *testing.T, r *rocketmq, topic string) {
	p := r.producer(t, pocketmq.ProducerConfig{})
	queues, err := p.Queues(t.Context(), topic)
	require.NoError(t, err)
	for i := range 5 {
		_, err := p.SendTo(t.Context(), queues[0], &pocketmq.Message{Topic: topic, Body: []byte(strconv.Itoa(i))})
		require.NoError(t, err)
	}
	c := r.pullConsumer(t, pocketmq.PullConsumerConfig{Group: "G_" + topic})
	got, err := c.Pull(t.Context(), queues[0], 1, 3)
	require.NoError(t, err)
	assert.Equal(t, pocketmq.PullFound, got.Status)
	assert.Equal(t, []string{"1", "2", "3"}, bodies(got.Messages))
	assert.EqualValues(t, 4, got.NextOffset)
	got, err = c.Pull(t.Context(), queues[0], 5, 3)
	require.NoError(t, err)
	assert.Equal(t, pocketmq.PullNoNewMessage, got.Status)
	got, err = c.Pull(t.Context(), queues[0], 77, 3)
	require.NoError(t, err)
	assert.Equal(t, pocketmq.PullOffsetIllegal, got.Status)
	assert.EqualValues(t, 5, got.NextOffset)
}

func realQuery(t *testing.T, r *rocketmq, topic string) {
	p := r.producer(t, pocketmq.ProducerConfig{})
	var last *pocketmq.SendResult
	for i := range 5 {
		var err error
		last, err = p.Send(t.Context(), &pocketmq.Message{Topic: topic, Keys: []string{"all", "one" + strconv.Itoa(i)}, Body: []byte(strconv.Itoa(i))})
		require.NoError(t, err)
	}
	// The index is made behind: it is there when it is consumed, roughly.
	var in inbox
	r.consumer(t, pocketmq.ConsumerConfig{Group: "G_" + topic, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Handler: in.add})
	in.await(t, 5)
	m, err := r.admin.MessageByID(t.Context(), last.OffsetMsgID)
	require.NoError(t, err)
	assert.Equal(t, "4", string(m.Body))
	m, err = r.admin.MessageByUniqueKey(t.Context(), topic, last.MsgID)
	require.NoError(t, err)
	assert.Equal(t, "4", string(m.Body))
	found, err := r.admin.MessagesByKey(t.Context(), topic, "all", time.Now().Add(-time.Hour), time.Now().Add(time.Hour), 10)
	require.NoError(t, err)
	assert.ElementsMatch(t, numbers(5), bodies(found))
	found, err = r.admin.MessagesByKey(t.Context(), topic, "one3", time.Time{}, time.Time{}, 10)
	require.NoError(t, err)
	assert.Equal(t, []string{"3"}, bodies(found))
	found, err = r.admin.MessagesByKey(t.Context(), topic, "none", time.Time{}, time.Time{}, 10)
	if err == nil {
		assert.Empty(t, found)
	} else {
		require.ErrorIs(t, err, pocketmq.ErrNotFound)
	}
}

func realOffsets(t *testing.T, r *rocketmq, topic string) {
	group := "G_" + topic
	r.send(t, topic, 0, 20)
	var in inbox
	c := r.consumer(t, pocketmq.ConsumerConfig{Group: group, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Handler: in.add})
	in.await(t, 20)
	members, err := r.admin.Members(t.Context(), group)
	require.NoError(t, err)
	require.Len(t, members, 1)
	assert.Equal(t, c.ClientID(), members[0].ClientID)
	g, err := r.admin.Group(t.Context(), group)
	require.NoError(t, err)
	require.Len(t, g.Members, 1)
	assigned := 0
	for _, q := range g.Members[0].Assigned {
		if q.Topic == topic {
			assigned++
		}
	}
	assert.Equal(t, 4, assigned)
	require.NoError(t, c.Close())
	sum := func(all map[pocketmq.MessageQueue]int64) (n int64) {
		for _, at := range all {
			n += at
		}
		return n
	}
	all, err := r.admin.Offsets(t.Context(), group, topic)
	require.NoError(t, err)
	assert.Len(t, all, 4)
	assert.EqualValues(t, 20, sum(all))
	for q := range all {
		require.NoError(t, r.admin.SetOffset(t.Context(), group, q, 1))
	}
	all, err = r.admin.Offsets(t.Context(), group, topic)
	require.NoError(t, err)
	assert.EqualValues(t, 4, sum(all))
	lags, err := r.admin.Lag(t.Context(), group)
	require.NoError(t, err)
	total := int64(0)
	for _, l := range lags {
		if l.Queue.Topic == topic {
			total += l.Lag
		}
	}
	assert.EqualValues(t, 16, total)
	require.NoError(t, r.admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "H_" + topic}))
	require.NoError(t, r.admin.CloneOffsets(t.Context(), group, "H_"+topic, topic))
	all, err = r.admin.Offsets(t.Context(), "H_"+topic, topic)
	require.NoError(t, err)
	assert.EqualValues(t, 4, sum(all))
	require.NoError(t, r.admin.SkipBacklog(t.Context(), group, topic))
	all, err = r.admin.Offsets(t.Context(), group, topic)
	require.NoError(t, err)
	assert.EqualValues(t, 20, sum(all))
}

// realReset: a running consumer gets everything again.
func realReset(t *testing.T, r *rocketmq, topic string) {
	group := "G_" + topic
	r.send(t, topic, 0, 8)
	var in inbox
	r.consumer(t, pocketmq.ConsumerConfig{Group: group, Subscriptions: everything(topic), From: pocketmq.FromFirstOffset, Handler: in.add})
	in.await(t, 8)
	_, err := r.admin.ResetOffsets(t.Context(), group, topic, time.UnixMilli(0))
	require.NoError(t, err)
	// Held pulls stay held there: a message to each queue lets them go.
	r.send(t, topic, 8, 12)
	seen := make(map[string]int)
	for n := 20; ; n++ {
		clear(seen)
		for _, b := range bodies(in.await(t, n)) {
			seen[b]++
		}
		again := 0
		for i := range 8 {
			if seen[strconv.Itoa(i)] > 1 {
				again++
			}
		}
		if again == 8 {
			return
		}
	}
}

func realGroups(t *testing.T, r *rocketmq, topic string) {
	group := "G_" + topic
	require.NoError(t, r.admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: group, ConsumeDisabled: true}))
	c := r.pullConsumer(t, pocketmq.PullConsumerConfig{Group: group})
	queues, err := c.Queues(t.Context(), topic)
	require.NoError(t, err)
	_, err = c.Pull(t.Context(), queues[0], 0, 1)
	require.ErrorIs(t, err, pocketmq.ErrNoPermission)
	require.NoError(t, r.admin.DeleteGroup(t.Context(), group))
	_, err = c.Pull(t.Context(), queues[0], 0, 1) // made anew
	require.NoError(t, err)
}

func realTopics(t *testing.T, r *rocketmq, topic string) {
	r.send(t, topic, 0, 8)
	all, err := r.admin.Topics(t.Context())
	require.NoError(t, err)
	assert.Contains(t, all, topic)
	stats, err := r.admin.TopicStats(t.Context(), topic)
	require.NoError(t, err)
	assert.Len(t, stats, 4)
	require.NoError(t, r.admin.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: topic, ReadQueues: 6}))
	route, err := r.admin.Route(t.Context(), topic)
	require.NoError(t, err)
	assert.Equal(t, 6, route.Queues[0].ReadQueues)
	require.NoError(t, r.admin.DeleteTopic(t.Context(), topic))
	_, err = r.admin.Route(t.Context(), topic)
	require.ErrorIs(t, err, pocketmq.ErrNoRoute)
}
