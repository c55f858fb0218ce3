package pocketmq_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/remoting"
)

// rounds is how often a test does what it repeats: a fifth of n with -race.
func rounds(n int) int {
	if raceDetector {
		return max(1, n/5)
	}
	return n
}

// bubble runs f in a synctest bubble beside other tests: time is virtual and
// starts at the same instant everywhere.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// inBubbles is bubble over memory and over frames on pipes.
func inBubbles(t *testing.T, f func(t *testing.T, over pocketmq.Transport)) {
	t.Helper()
	t.Parallel()
	t.Run("memory", func(t *testing.T) { bubble(t, func(t *testing.T) { f(t, pocketmq.InMemory()) }) })
	t.Run("frames", func(t *testing.T) {
		bubble(t, func(t *testing.T) { f(t, remoting.NewTransport("127.0.0.1", pipenet.New())) })
	})
}

// run starts a cluster that mqtest checks and closes when the test ends. In a
// bubble it has RocketMQ's timings.
func run(t testing.TB, cfg pocketmq.ClusterConfig) *pocketmq.Cluster {
	t.Helper()
	return mqtest.Run(t, over(t, cfg))
}

// transport is what clusters of tests talk over that do not say so themselves.
var transport = flag.String("transport", "memory", "what clusters of tests talk over: memory, frames on pipes, or tcp (then tests in virtual time are skipped)")

// over lets a cluster that says nothing of its transport have that of the flag.
func over(t testing.TB, cfg pocketmq.ClusterConfig) pocketmq.ClusterConfig {
	if cfg.Transport != nil {
		return cfg
	}
	switch *transport {
	case "pipes":
		cfg.Transport = remoting.NewTransport("127.0.0.1", pipenet.New())
	case "tcp":
		if virtual := time.Now().Year() == 2000; virtual {
			t.Skip("a bubble's time stands still while somebody waits for a socket")
		}
		cfg.Transport = pocketmq.TCP("127.0.0.1")
	case "memory":
	default:
		t.Fatalf("-transport is memory, pipes or tcp, not %q", *transport)
	}
	return cfg
}

// ofMemory ends a test that is about clusters in memory.
func ofMemory(t testing.TB, why string) {
	t.Helper()
	if *transport != "memory" {
		t.Skip(why)
	}
}

// startCluster is pocketmq.StartCluster over the transport of the flag.
func startCluster(ctx context.Context, t testing.TB, cfg pocketmq.ClusterConfig) (*pocketmq.Cluster, error) {
	t.Helper()
	c, err := pocketmq.StartCluster(ctx, over(t, cfg))
	if err == nil && c.Network() == nil {
		t.Cleanup(func() { _ = c.Close() }) // the test may end at links; it looks at the error of its own Close
	}
	return c, err
}

// links are what can be broken between the members of c. Over other transports than
// memory there are none, and the test ends here.
func links(t testing.TB, c *pocketmq.Cluster) *pocketmq.MemoryNetwork {
	t.Helper()
	n := c.Network()
	if n == nil {
		t.Skip("only a MemoryNetwork has links that can be broken")
	}
	return n
}

// stop checks the brokers of c that still run, then closes it.
func stop(t testing.TB, c *pocketmq.Cluster) {
	t.Helper()
	check(t, c)
	assert.NoError(t, c.Close(), "close")
}

// check runs Check on every broker of c that still runs.
func check(t testing.TB, c *pocketmq.Cluster) {
	t.Helper()
	for b := range c.Brokers() {
		if err := b.Check(context.Background()); err != nil {
			assert.ErrorIs(t, err, pocketmq.ErrClosed, "check of %s", b.Name())
		}
	}
}

// groups makes broker groups of these names.
func groups(names ...string) []pocketmq.BrokerGroup {
	gs := make([]pocketmq.BrokerGroup, len(names))
	for i, name := range names {
		gs[i].Name = name
	}
	return gs
}

func producer(t testing.TB, c *pocketmq.Cluster, cfg pocketmq.ProducerConfig) *pocketmq.Producer {
	t.Helper()
	p, err := c.StartProducer(context.Background(), cfg)
	require.NoError(t, err)
	return p
}

func consumer(t testing.TB, c *pocketmq.Cluster, cfg pocketmq.ConsumerConfig) *pocketmq.Consumer {
	t.Helper()
	co, err := c.StartConsumer(context.Background(), cfg)
	require.NoError(t, err)
	return co
}

// all subscribes to everything of these topics.
func all(topics ...string) map[string]pocketmq.Filter {
	subs := make(map[string]pocketmq.Filter)
	for _, topic := range topics {
		subs[topic] = pocketmq.Filter{}
	}
	return subs
}

func queue(topic, broker string, id int) pocketmq.MessageQueue {
	return pocketmq.MessageQueue{Topic: topic, BrokerName: broker, QueueID: id}
}

// text is a message whose body is formatted.
func text(topic, format string, args ...any) *pocketmq.Message {
	return &pocketmq.Message{Topic: topic, Body: fmt.Appendf(nil, format, args...)}
}

// numbers are the bodies "0" to n-1, sorted as strings.
func numbers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(i)
	}
	slices.Sort(out)
	return out
}

// inbox collects what handlers get.
type inbox struct {
	mu   sync.Mutex
	list []arrival
}

type arrival struct {
	at  time.Time
	who string
	msg *pocketmq.MessageExt
}

// handler records every message under the name who and finishes it.
func (b *inbox) handler(who string) func(context.Context, []*pocketmq.MessageExt) error {
	return func(_ context.Context, msgs []*pocketmq.MessageExt) error {
		b.put(who, msgs)
		return nil
	}
}

func (b *inbox) put(who string, msgs []*pocketmq.MessageExt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range msgs {
		b.list = append(b.list, arrival{time.Now(), who, m})
	}
}

func (b *inbox) arrivals() []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.list)
}

// bodies are the bodies that arrived, sorted, one entry per delivery.
func (b *inbox) bodies() []string {
	var out []string
	for _, a := range b.arrivals() {
		out = append(out, string(a.msg.Body))
	}
	slices.Sort(out)
	return out
}

// eventLog collects events.
type eventLog struct {
	mu   sync.Mutex
	list []pocketmq.Event
}

func (l *eventLog) add(e pocketmq.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, e)
}

func (l *eventLog) all() []pocketmq.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// eventsOf are the events of one kind, in order.
func eventsOf[E pocketmq.Event](l *eventLog) []E {
	var out []E
	for _, e := range l.all() {
		if e, ok := e.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

// sleepUntil waits until at, and then until everybody else has done what is
// due at that instant. Only in a bubble.
func sleepUntil(at time.Time) {
	time.Sleep(time.Until(at))
	synctest.Wait()
}

// dial opens a session with a broker as the node "probe": typed requests that
// no client has checked.
func dial(t testing.TB, c *pocketmq.Cluster, group string) protocol.BrokerConn {
	t.Helper()
	return dialMember(t, c, group, 0)
}

// dialMember is dial for any member of a group.
func dialMember(t testing.TB, c *pocketmq.Cluster, group string, id int64) protocol.BrokerConn {
	t.Helper()
	conn, err := c.Transport().DialBroker(context.Background(), protocol.Dial{Node: "probe", Addr: c.Broker(group, id).Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

// stored is a message as it lies in a queue.
type stored struct {
	offset int64
	body   string
	key    string
	id     string
}

// queueContent reads a queue of a broker from its start by typed pulls and
// demands that its offsets are dense.
func queueContent(t testing.TB, c *pocketmq.Cluster, q pocketmq.MessageQueue) []stored {
	t.Helper()
	return queueContentAt(t, c, q, 0)
}

// contentAt are the bodies in queue 0 of T at a member of broker-a.
func contentAt(t testing.TB, c *pocketmq.Cluster, id int64) []string {
	t.Helper()
	return bodiesOf(queueContentAt(t, c, queue("T", "broker-a", 0), id))
}

// queueContentAt is queueContent at any member of a group.
func queueContentAt(t testing.TB, c *pocketmq.Cluster, q pocketmq.MessageQueue, id int64) []stored {
	t.Helper()
	conn := dialMember(t, c, q.BrokerName, id)
	codec := message.NewCodec()
	defer codec.Close()
	var out []stored
	for next := int64(0); ; {
		resp, err := conn.PullMessage(context.Background(), &protocol.PullMessageRequest{
			Group: "probe", Topic: q.Topic, QueueID: q.QueueID, Offset: next, MaxMessages: 32, HasExpression: true, Expression: "*",
		})
		require.NoError(t, err, "pull %v at %d", q, next)
		if resp.Code != protocol.Success {
			require.Equal(t, protocol.PullNotFound, resp.Code, "pull %v at %d of %d to %d", q, next, resp.MinOffset, resp.MaxOffset)
			require.Equal(t, resp.MaxOffset, next, "end of %v", q)
			return out
		}
		for _, rec := range resp.Records {
			m, err := codec.DecodeExt(rec, q.BrokerName, q.Topic)
			require.NoError(t, err)
			require.Equal(t, next, m.QueueOffset, "offsets of %v are dense", q)
			s := stored{offset: m.QueueOffset, body: string(m.Body), id: m.MsgID}
			if len(m.Keys) > 0 {
				s.key = m.Keys[0]
			}
			out = append(out, s)
			next++
		}
		require.Equal(t, next, resp.NextBeginOffset)
	}
}

// bodiesOf are the bodies of a queue in order.
func bodiesOf(list []stored) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.body
	}
	return out
}

// keysStored counts the stored copies of each message of a topic by its key.
func keysStored(t testing.TB, c *pocketmq.Cluster, topic string, queues int, brokers ...string) map[string]int {
	t.Helper()
	n := make(map[string]int)
	for _, b := range brokers {
		for id := range queues {
			for _, s := range queueContent(t, c, queue(topic, b, id)) {
				n[s.key]++
			}
		}
	}
	return n
}

// tree lists a folder with the sizes of its files.
func tree(t testing.TB, root string) map[string]int64 {
	t.Helper()
	out := make(map[string]int64)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size := int64(-1)
		if !d.IsDir() {
			size = info.Size()
		}
		out[path] = size
		return nil
	})
	require.NoError(t, err)
	return out
}

// logFiles are the segment files of a broker's commit log, oldest first.
func logFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "commitlog", "[0-9]*", "*"))
	require.NoError(t, err)
	slices.Sort(files)
	return files
}

// span is where an entry lies in a file.
type span struct{ start, end int }

// entries cuts a segment file into its entries, the file header first: each is
// a uvarint length and that many bytes.
func entries(t testing.TB, data []byte) []span {
	t.Helper()
	var out []span
	for at := 0; at < len(data); {
		size, shift, i := 0, 0, at
		for ; data[i] >= 0x80; i++ {
			size |= int(data[i]&0x7f) << shift
			shift += 7
		}
		size |= int(data[i]) << shift
		end := i + 1 + size
		require.LessOrEqual(t, end, len(data), "the file ends with a whole entry")
		out = append(out, span{at, end})
		at = end
	}
	return out
}

// storeHost is the address that a broker's records carry.
func storeHost(t testing.TB, c *pocketmq.Cluster, group string) netip.AddrPort {
	t.Helper()
	host, err := netip.ParseAddrPort(c.Broker(group, 0).Addr())
	require.NoError(t, err)
	return host
}
