package pocketmq_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/fault"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

var update = flag.Bool("update", false, "write the error texts that the tests find to testdata/errors.txt")

// sentinels are all errors that a caller may ask for.
var sentinels = []struct {
	name string
	err  error
}{
	{"ErrClosed", pocketmq.ErrClosed}, {"ErrNotStarted", pocketmq.ErrNotStarted}, {"ErrInvalidConfig", pocketmq.ErrInvalidConfig},
	{"ErrNoRoute", pocketmq.ErrNoRoute}, {"ErrNoPermission", pocketmq.ErrNoPermission}, {"ErrNotMaster", pocketmq.ErrNotMaster},
	{"ErrNotEnoughReplicas", pocketmq.ErrNotEnoughReplicas},
	{"ErrBrokerBusy", pocketmq.ErrBrokerBusy}, {"ErrTimeout", pocketmq.ErrTimeout}, {"ErrUnreachable", pocketmq.ErrUnreachable},
	{"ErrUnknownOutcome", pocketmq.ErrUnknownOutcome}, {"ErrIllegalMessage", pocketmq.ErrIllegalMessage},
	{"ErrIllegalName", pocketmq.ErrIllegalName}, {"ErrMessageTooLarge", pocketmq.ErrMessageTooLarge},
	{"ErrFlushDiskTimeout", pocketmq.ErrFlushDiskTimeout}, {"ErrFlushSlaveTimeout", pocketmq.ErrFlushSlaveTimeout},
	{"ErrSlaveNotAvailable", pocketmq.ErrSlaveNotAvailable}, {"ErrOffsetOutOfRange", pocketmq.ErrOffsetOutOfRange},
	{"ErrNotFound", pocketmq.ErrNotFound}, {"ErrFenced", pocketmq.ErrFenced}, {"ErrDiskFull", pocketmq.ErrDiskFull},
	{"ErrHandlersRunning", pocketmq.ErrHandlersRunning}, {"ErrDuplicateClient", pocketmq.ErrDuplicateClient},
	{"ErrNotSupported", pocketmq.ErrNotSupported}, {"context.Canceled", context.Canceled},
	{"context.DeadlineExceeded", context.DeadlineExceeded},
}

// describe tells all that a caller can find out about an error.
func describe(err error) string {
	if err == nil {
		return "no error\n"
	}
	var b strings.Builder
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(&b, "  %s\n", strings.TrimSuffix(line, "\n"))
	}
	var is []string
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			is = append(is, s.name)
		}
	}
	if is != nil {
		fmt.Fprintf(&b, "    is %s\n", strings.Join(is, ", "))
	}
	var answered *pocketmq.Error
	if errors.As(err, &answered) {
		fmt.Fprintf(&b, "    answered by %s with code %d\n", answered.Broker, answered.Code)
	}
	return b.String()
}

// errorTexts collects named errors and compares them with the golden file.
type errorTexts struct {
	replace []string // pairs for strings.NewReplacer
	text    map[string]string
}

var (
	randomClient = regexp.MustCompile(`127\.0\.0\.1@\d+#[0-9a-f]{8}`)
	nameServers  = regexp.MustCompile(`(ns-\d[^;]*); (ns-\d[^;\n]*)`) // in the order in which they were asked
	answeredBy   = regexp.MustCompile(`answered by ns-\d`)
)

func (e *errorTexts) add(name string, err error) {
	text := strings.NewReplacer(e.replace...).Replace(describe(err))
	text = randomClient.ReplaceAllString(text, "$$CLIENT")
	text = nameServers.ReplaceAllStringFunc(text, func(s string) string {
		two := strings.Split(s, "; ")
		slices.Sort(two)
		return strings.Join(two, "; ")
	})
	e.text[name] = answeredBy.ReplaceAllString(text, "answered by a name server")
}

// The texts of errors are part of the product: testdata/errors.txt has them,
// with what errors.Is and errors.As find in each.
func TestErrorTexts(t *testing.T) {
	ofMemory(t, "in memory an error names the node it is about, elsewhere its address")
	got := &errorTexts{text: make(map[string]string)}
	for _, collect := range []func(t *testing.T, e *errorTexts){
		configErrors, groupErrors, nameErrors, folderErrors, routeErrors, sendErrors, avoidErrors, answeredErrors, lifeErrors, clusterErrors, electErrors, damageErrors, queryErrors, nameServerErrors,
	} {
		synctest.Test(t, func(t *testing.T) { collect(t, got) })
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(got.text)) {
		fmt.Fprintf(&b, "%s\n%s\n", name, got.text[name])
	}
	const file = "testdata/errors.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String(), "go test -run TestErrorTexts -update . writes the new texts")
}

func configErrors(t *testing.T, e *errorTexts) {
	net := pocketmq.InMemory()
	_, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{
		Name: "my cluster", NameServers: 2, NameServerAddrs: []string{"localhost:9876"},
		Topics:  map[string]int{"orders": 0, "a/b": 4, "many": 70000},
		Timings: pocketmq.Timings{Rebalance: -1, DelayLevels: []time.Duration{time.Second, 0}},
		Groups: []pocketmq.BrokerGroup{
			{Name: "broker-a"}, {Name: "broker-a"}, {Name: "a b"},
			{Name: "broker-b", Addrs: []string{"127.0.0.1:1", "nowhere"}, Config: pocketmq.BrokerConfig{
				Name: "x", Cluster: "x", Addr: "x", Dir: "x", NameServers: []string{"x"}, Transport: net, OnEvent: func(pocketmq.Event) {},
			}},
			{Name: "broker-c", Config: pocketmq.BrokerConfig{CommitLogFileSize: 100, MaxMessageSize: -1}},
		},
	})
	e.add("config: cluster", err)
	_, err = pocketmq.NewBroker(pocketmq.BrokerConfig{
		Cluster: "c/d", Addr: "here", NameServers: []string{"", "there"}, Topics: map[string]int{"": 1}, Flush: 7,
		DefaultTopicQueues: -1, MaxMessageSize: -2, CommitLogFileSize: -3, CacheBytes: -2, Retention: -2, RetentionBytes: -3, MinFreeBytes: -5, Timings: pocketmq.Timings{OffsetPersist: -time.Second},
	})
	e.add("config: broker", err)
	for name, cfg := range map[string]pocketmq.BrokerConfig{
		"a wildcard":              {Addr: "0.0.0.0:10911"},
		"advertises a name":       {AdvertiseAddr: "broker.example.com:10911"},
		"advertises a wildcard":   {Addr: "[::]:10911", AdvertiseAddr: "[::]:10911"},
		"lists of name servers":   {NameServers: []string{"ns-a:9876; ns-b:9876;", "ns-c; ns-d:0", ";", "http://ns-e:9876"}},
		"a name server's address": {NameServers: []string{"ns-a:port"}},
	} {
		cfg.Name, cfg.Dir, cfg.Transport = "broker-a", "x", pocketmq.InMemory()
		if cfg.NameServers == nil {
			cfg.NameServers = []string{"localhost:9876"}
		}
		_, err = pocketmq.NewBroker(cfg)
		e.add("config: broker, "+name, err)
	}
	_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{
		{Name: "broker-a", Addrs: []string{"0.0.0.0:10911"}},
		{Name: "broker-b", Addrs: []string{"0.0.0.0:10921"}, Config: pocketmq.BrokerConfig{AdvertiseAddr: "192.0.2.7:10921"}},
	}})
	e.add("config: cluster, wildcards", err)
	_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("0.0.0.0")})
	e.add("config: cluster, a wildcard of the transport", err)
	_, err = pocketmq.NewBroker(pocketmq.BrokerConfig{})
	e.add("config: broker, nothing set", err)
	_, err = pocketmq.NewNameServer(pocketmq.NameServerConfig{Addr: "127.0.0.1", Timings: pocketmq.Timings{BrokerScan: -1}})
	e.add("config: name server", err)
	_, err = pocketmq.NewProducer(pocketmq.ProducerConfig{
		Group: "a/b", InstanceName: "one two", SendTimeout: -1, AttemptTimeout: -1, Retries: -2, CompressOver: -2, Compression: 9,
		MaxMessageSize: -1, DefaultTopicQueues: -1, MaxInFlight: -1,
		Fault: fault.Config{LatencyMax: []time.Duration{time.Second, -1}, IsolationLatency: -1, MaxIsolated: 2},
	})
	e.add("config: producer", err)
	_, err = pocketmq.NewConsumer(pocketmq.ConsumerConfig{
		InstanceName: "one\ntwo", Subscriptions: map[string]pocketmq.Filter{"a/b": {}, "T": pocketmq.Tags("a||b"), "U": pocketmq.Tags("a", " ")},
		Concurrency: -1, BatchSize: -1, PullBatchSize: -1, MaxCached: -1, MaxCachedBytes: -1, MaxCachedTotal: -1, MaxSpan: -1, MaxReconsume: -2, ConsumeTimeout: -1, CloseTimeout: -1,
	})
	e.add("config: consumer", err)
	_, err = pocketmq.NewAdmin(pocketmq.AdminConfig{Timeout: -1})
	e.add("config: admin", err)

	c := run(t, pocketmq.ClusterConfig{})
	e.add("config: topic", c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "a/b", ReadQueues: 70000, WriteQueues: -1, Perm: 8}))
	e.add("config: topic on an unknown broker", c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", Brokers: []string{"broker-x"}}))
	e.add("config: added group", c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-a", Config: pocketmq.BrokerConfig{Dir: "x"}}))
}

func nameErrors(t *testing.T, e *errorTexts) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	p := producer(t, c, pocketmq.ProducerConfig{})
	for what, name := range map[string]string{"path": "../../x", "empty": "", "long": strings.Repeat("x", 300), "reserved": "SCHEDULE_TOPIC_XXXX"} {
		_, err := p.Send(t.Context(), text(name, "x"))
		e.add("name: send to a topic, "+what, err)
	}
	for what, name := range map[string]string{"path": "../../x", "reserved": "TBW102", "empty": ""} {
		e.add("name: create a topic, "+what, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: name}))
	}
	for what, name := range map[string]string{"path": "../../x", "long": strings.Repeat("x", 300)} {
		_, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{Group: name, Handler: (&inbox{}).handler("")})
		e.add("name: consumer group, "+what, err)
	}
	conn := dial(t, c, "broker-a")
	_, err := conn.SendMessage(t.Context(), &protocol.SendMessageRequest{ProducerGroup: "p", Topic: "../../x", Body: []byte("x"), BornTime: time.Now()})
	e.add("name: the broker refuses a topic", err)
	_, err = conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "a/b", Topic: "T"})
	e.add("name: the broker refuses a group", err)
}

func folderErrors(t *testing.T, e *errorTexts) {
	root := t.TempDir()
	e.replace = append(e.replace, root, "$DIR")
	open := func(cluster, broker, dir string) error {
		b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
			Cluster: cluster, Name: broker, Dir: filepath.Join(root, dir), NameServers: []string{"127.0.0.1:9876"}, Transport: pocketmq.InMemory(),
		})
		require.NoError(t, err)
		err = b.Start(t.Context())
		if err == nil {
			assert.NoError(t, b.Close())
		}
		return err
	}
	run(t, pocketmq.ClusterConfig{Dir: root})
	e.add("folder: in use by another broker", open("DefaultCluster", "broker-a", "broker-a-0"))
	_, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Dir: root})
	e.add("folder: in use by another cluster", err)

	require.NoError(t, open("DefaultCluster", "broker-b", "b"))
	e.add("folder: of another broker", open("DefaultCluster", "broker-c", "b"))
	e.add("folder: of another cluster", open("other", "broker-b", "b"))
	format := filepath.Join(root, "b", "FORMAT")
	require.NoError(t, os.WriteFile(format, []byte(`{"format":2,"cluster":"DefaultCluster","broker":"broker-b","id":0}`), 0o600))
	e.add("folder: of a newer format", open("DefaultCluster", "broker-b", "b"))
	require.NoError(t, os.WriteFile(format, []byte("what?"), 0o600))
	e.add("folder: with a strange FORMAT", open("DefaultCluster", "broker-b", "b"))

	require.NoError(t, os.Mkdir(filepath.Join(root, "photos"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "photos", "cat.jpg"), []byte("x"), 0o600))
	e.add("folder: not ours", open("DefaultCluster", "broker-a", "photos"))
	e.add("folder: a file", open("DefaultCluster", "broker-a", "photos/cat.jpg"))
	_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Dir: filepath.Join(root, "photos", "cat.jpg")})
	e.add("folder: a cluster's is a file", err)
}

func routeErrors(t *testing.T, e *errorTexts) {
	c := run(t, pocketmq.ClusterConfig{
		NameServers: 2, Topics: map[string]int{"orders": 1, "payments": 1},
		Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{DisableAutoCreateTopic: true}}},
	})
	p := producer(t, c, pocketmq.ProducerConfig{})
	_, err := p.Send(t.Context(), text("ordrs", "x"))
	assert.ErrorContains(t, err, `did you mean "orders"?`)
	e.add("route: unknown topic, auto-create off, a name like it", err)
	_, err = p.Send(t.Context(), text("zzz", "x"))
	e.add("route: unknown topic, auto-create off", err)
	_, err = c.Admin().Route(t.Context(), "paymnets")
	e.add("route: Admin.Route of an unknown topic", err)
	_, err = p.Queues(t.Context(), "order")
	e.add("route: Producer.Queues of an unknown topic", err)
	conn := dial(t, c, "broker-a")
	_, err = conn.SendMessage(t.Context(), &protocol.SendMessageRequest{
		ProducerGroup: "p", Topic: "zzz", DefaultTopic: "TBW102", DefaultTopicQueues: 4, Body: []byte("x"), BornTime: time.Now(),
	})
	e.add("route: the broker does not make a topic", err)

	require.NoError(t, c.KillNameServer(0))
	_, err = newAdmin(t, c, c.NameServerAddrs()...).Route(t.Context(), "ordrs")
	e.add("route: unknown topic, one name server down", err)
	require.NoError(t, c.KillNameServer(1))
	_, err = newAdmin(t, c, c.NameServerAddrs()...).Route(t.Context(), "orders")
	e.add("route: name servers unreachable", err)
	fresh := producer(t, c, pocketmq.ProducerConfig{})
	_, err = fresh.Send(t.Context(), text("orders", "x"))
	e.add("route: send, name servers unreachable", err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = c.StartConsumer(ctx, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("orders"), Handler: (&inbox{}).handler("")})
	e.add("route: consumer start, name servers unreachable", err)
	_, err = newAdmin(t, c, c.NameServerAddrs()...).Topics(t.Context())
	e.add("route: Admin.Topics, name servers unreachable", err)
}

func groupErrors(t *testing.T, e *errorTexts) {
	sync := pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, InSyncReplicas: 5, MinInSyncReplicas: 3, HATransferBytes: 1}
	electing := pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, InSyncReplicas: 2, Failover: true}
	_, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{
		{Name: "broker-a", Slaves: 1, Config: sync},
		{Name: "broker-b", Config: pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}},
		{Name: "broker-c", Slaves: 1, Config: pocketmq.BrokerConfig{InSyncReplicas: 2, MinInSyncReplicas: 2}},
		{Name: "broker-d", Slaves: 2, Config: electing},
		{Name: "broker-e", Slaves: 1, Config: pocketmq.BrokerConfig{HATransferBytes: 1}},
		{Name: "broker-f", Slaves: 1, Config: pocketmq.BrokerConfig{HATransferBytes: 65 << 20, MaxMessageSize: 64 << 20}},
		{Name: "broker-g", Slaves: 1, Config: pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, InSyncReplicas: 1}},
		{Name: "broker-h", Config: pocketmq.BrokerConfig{SyncFromLastFile: true, Timings: pocketmq.Timings{LeaseRenew: time.Second, LeaseExpire: 1500 * time.Millisecond}}},
	}})
	e.add("cluster: replication that cannot be", err)

	c := run(t, pocketmq.ClusterConfig{
		Groups: pair(1, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, MinInSyncReplicas: 2}), Topics: map[string]int{"T": 1},
	})
	require.NoError(t, c.Kill("broker-a", 1))
	synctest.Wait() // the master knows
	_, err = producer(t, c, pocketmq.ProducerConfig{}).Send(t.Context(), text("T", "x"))
	e.add("message: too few in-sync replicas", err)
	e.add("disk: slower than nothing", c.SlowDisk("broker-a", 0, -1))
}

func sendErrors(t *testing.T, e *errorTexts) {
	c := run(t, pocketmq.ClusterConfig{
		Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{MaxMessageSize: 2000}}},
		Topics: map[string]int{"T": 1},
	})
	p := producer(t, c, pocketmq.ProducerConfig{MaxMessageSize: 3000, CompressOver: -1, MaxInFlight: 1})
	send := func(name string, change func(m *pocketmq.Message)) {
		m := text("T", "x")
		change(m)
		res, err := p.Send(t.Context(), m)
		assert.Nil(t, res, name)
		e.add("message: "+name, err)
	}
	send("without a body", func(m *pocketmq.Message) { m.Body = nil })
	send("too large", func(m *pocketmq.Message) { m.Body = make([]byte, 3001) })
	send("too large for the broker", func(m *pocketmq.Message) { m.Body = make([]byte, 2001) })
	send("a reserved property", func(m *pocketmq.Message) { m.Properties = map[string]string{"UNIQ_KEY": "x"} })
	send("a control character", func(m *pocketmq.Message) { m.Properties = map[string]string{"k": "a\x01b"} })
	send("a key with a space", func(m *pocketmq.Message) { m.Keys = []string{"a b"} })
	send("properties too long", func(m *pocketmq.Message) { m.Properties = map[string]string{"k": strings.Repeat("v", 32767)} })
	send("delayed for any time", func(m *pocketmq.Message) { m.Delay = time.Second })
	send("delayed twice", func(m *pocketmq.Message) { m.DelayLevel = 3; m.Delay = time.Second })
	_, err := p.Send(t.Context(), nil)
	e.add("message: nil", err)
	_, err = p.SendBatch(t.Context(), nil)
	e.add("batch: empty", err)
	_, err = p.SendBatch(t.Context(), []*pocketmq.Message{{Topic: "orders", Body: []byte("x"), DelayLevel: 1}})
	e.add("batch: delayed", err)
	_, err = p.SendBatch(t.Context(), []*pocketmq.Message{text("T", "x"), text("U", "x")})
	e.add("batch: two topics", err)
	_, err = p.SendBatch(t.Context(), []*pocketmq.Message{text("T", "x"), text("T", "")})
	e.add("batch: a bad message", err)
	_, err = p.SendBatch(t.Context(), []*pocketmq.Message{{Topic: "T", Body: make([]byte, 2000)}, {Topic: "T", Body: make([]byte, 2000)}})
	e.add("batch: too large", err)
	_, err = p.SendTo(t.Context(), queue("T", "broker-a", 9), text("T", "x"))
	e.add("queue: unknown", err)
	_, err = p.SendTo(t.Context(), queue("U", "broker-a", 0), text("T", "x"))
	e.add("queue: of another topic", err)
	_, err = p.SendSelect(t.Context(), text("T", "x"), func(*pocketmq.Message, []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) { panic("oops") })
	e.add("queue: the selector panics", err)
	_, err = p.SendSelect(t.Context(), text("T", "x"), func(*pocketmq.Message, []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) {
		return queue("T", "broker-b", 0), nil
	})
	e.add("queue: the selector chooses a foreign one", err)
	e.add("async: without a callback", p.SendAsync(t.Context(), text("T", "x"), nil))

	slow := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Drop: true})
	require.NoError(t, p.SendAsync(t.Context(), text("T", "x"), func(*pocketmq.SendResult, error) {}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	e.add("async: MaxInFlight", p.SendAsync(ctx, text("T", "x"), func(*pocketmq.SendResult, error) {}))
	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(700*time.Millisecond, cancel)
	_, err = p.Send(cancelled, text("T", "x"))
	e.add("send: cancelled by the caller", err)
	_, err = p.Send(cancelled, text("T", "x"))
	e.add("send: cancelled before", err)
	_, err = p.Send(t.Context(), text("T", "x"))
	e.add("send: no answer", err)
	slow.Remove()

	_, err = p.Send(t.Context(), text("T", "x"))
	require.NoError(t, err)
	check(t, c)
	require.NoError(t, c.Kill("broker-a", 0))
	_, err = p.Send(t.Context(), text("T", "x"))
	e.add("send: the broker is down", err)
}

// avoidErrors: who is not tried, and until when.
func avoidErrors(t *testing.T, e *errorTexts) {
	c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
	p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries, Fault: fault.V5()})
	e.add("config: fault, at run time", p.SetFault(fault.Config{NotAvailable: []time.Duration{-1}}))
	c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Err: busy})
	_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
	require.Error(t, err)
	e.replace = append(e.replace, p.FaultTable()[0].AvailableFrom.Format(time.TimeOnly), "12:00:05")
	_, err = p.Send(t.Context(), text("T", "x"))
	e.add("send: a broker is avoided", err)
}

// answeredErrors: every answer of a server keeps its code, whatever wraps it.
func answeredErrors(t *testing.T, e *errorTexts) {
	c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
	p := producer(t, c, pocketmq.ProducerConfig{Retries: 1})
	for name, answer := range map[string]*pocketmq.Error{
		"02 busy":            {Code: protocol.SystemBusy, Remark: "too many requests"},
		"03 not supported":   {Code: protocol.RequestCodeNotSupported, Remark: "what is that"},
		"13 illegal":         {Code: protocol.MessageIllegal, Remark: "illegal"},
		"13 too large":       {Code: protocol.MessageIllegal, Remark: "[BODY_TOO_LARGE] too large"},
		"14 disk full":       {Code: protocol.ServiceNotAvailable, Remark: "[DISK_FULL] 1 MiB left"},
		"14 fenced":          {Code: protocol.ServiceNotAvailable, Remark: "[FENCED] write failed"},
		"14 not available":   {Code: protocol.ServiceNotAvailable, Remark: "slave"},
		"16 no permission":   {Code: protocol.NoPermission, Remark: "not writable"},
		"17 no topic":        {Code: protocol.TopicNotExist, Remark: "no such topic"},
		"21 offset":          {Code: protocol.PullOffsetMoved, Remark: "moved"},
		"22 not found":       {Code: protocol.QueryNotFound, Remark: "nothing"},
		"26 no group":        {Code: protocol.SubscriptionGroupNotExist, Remark: "no group"},
		"29 bad name":        {Code: protocol.InvalidParameter, Remark: "[ILLEGAL_NAME] bad"},
		"29 bad parameter":   {Code: protocol.InvalidParameter, Remark: "bad"},
		"604 illegal":        {Code: protocol.IllegalOperation, Remark: "illegal operation"},
		"999 something else": {Code: 999, Remark: "no idea"},
	} {
		h := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Err: answer})
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
		var answered *pocketmq.Error
		require.ErrorAs(t, err, &answered, name)
		assert.Equal(t, pocketmq.Error{Code: answer.Code, Remark: answer.Remark, Broker: "broker-a"}, *answered, name)
		if s := answer.Sentinel(); s != nil {
			assert.ErrorIs(t, err, s, name)
		}
		e.add("answer: "+name, err)
		h.Remove()
	}
}

func lifeErrors(t *testing.T, e *errorTexts) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	cfg := pocketmq.ConsumerConfig{Group: "g", InstanceName: "one", Subscriptions: all("T"), Handler: (&inbox{}).handler("")}
	co := consumer(t, c, cfg)
	_, err := c.StartConsumer(t.Context(), cfg)
	e.add("life: duplicate client", err)
	e.add("life: start twice", co.Start(t.Context()))
	require.NoError(t, co.Close())
	e.add("life: start after close", co.Start(t.Context()))
	p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: c.NameServerAddrs(), Transport: c.Transport()})
	require.NoError(t, err)
	_, err = p.Send(t.Context(), text("T", "x"))
	e.add("life: send before start", err)
	require.NoError(t, p.Start(t.Context()))
	require.NoError(t, p.Close())
	_, err = p.Send(t.Context(), text("T", "x"))
	e.add("life: send after close", err)

	sender := producer(t, c, pocketmq.ProducerConfig{})
	h := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Drop: true})
	closed := make(chan error, 1)
	go func() {
		_, err := sender.Send(context.Background(), text("T", "x"))
		closed <- err
	}()
	synctest.Wait()
	require.NoError(t, sender.Close())
	e.add("life: closed while sending", <-closed)
	h.Remove()

	release := make(chan struct{})
	stuck, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
		Group: "h", NameServers: c.NameServerAddrs(), Transport: c.Transport(), Subscriptions: all("T"),
		Handler: func(context.Context, []*pocketmq.MessageExt) error { <-release; return nil },
	})
	require.NoError(t, err)
	require.NoError(t, stuck.Start(t.Context()))
	_, err = producer(t, c, pocketmq.ProducerConfig{}).Send(t.Context(), text("T", "x"))
	require.NoError(t, err)
	synctest.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	e.add("life: shutdown cut short", stuck.Shutdown(ctx))
	e.add("life: handlers running", stuck.Close())
	close(release)
	synctest.Wait()
	e.add("life: handlers have returned", stuck.Close())
}

func clusterErrors(t *testing.T, e *errorTexts) {
	c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b")})
	e.add("cluster: kill an unknown broker", c.Kill("broker-c", 0))
	e.add("cluster: kill an unknown id", c.Kill("broker-a", 1))
	e.add("cluster: restart a broker that runs", c.Restart(t.Context(), "broker-a", 0))
	check(t, c)
	require.NoError(t, c.Kill("broker-a", 0))
	e.add("cluster: kill a broker that was killed", c.Kill("broker-a", 0))
	e.add("cluster: kill an unknown name server", c.KillNameServer(1))
	e.add("cluster: restart a name server that runs", c.RestartNameServer(t.Context(), 0))
	e.add("cluster: a second group of that name", c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-b"}))
	h := c.Inject(pocketmq.Fault{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	e.add("fault: waited in vain", h.Wait(ctx, 1000))
	h.Remove()
	e.add("fault: wait after remove", h.Wait(t.Context(), 1000))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := startCluster(cancelled, t, pocketmq.ClusterConfig{})
	e.add("cluster: start with a cancelled context", err)
	require.NoError(t, c.Close())
	_, err = c.StartProducer(t.Context(), pocketmq.ProducerConfig{})
	e.add("cluster: used after close", err)
}

func damageErrors(t *testing.T, e *errorTexts) {
	root := t.TempDir()
	e.replace = append(e.replace, root, "$DIR")
	c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{
		Dir: root, Topics: map[string]int{"T": 1},
		Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: pocketmq.SyncFlush}}},
	})
	require.NoError(t, err)
	p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
	sendNumbered(t, p, 0, 20, 0)
	check(t, c)
	require.NoError(t, c.Kill("broker-a", 0))
	dir := c.Broker("broker-a", 0).Dir()
	flip(t, dir, "message 009")
	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	_, err = p.Send(t.Context(), text("T", "x"))
	e.add("damage: send to a store that is damaged", err)
	e.add("damage: status", c.Broker("broker-a", 0).Status().Err)
	e.add("damage: check", c.Broker("broker-a", 0).Check(t.Context()))
	require.NoError(t, c.Kill("broker-a", 0))
	for _, f := range []string{"topics.json", "topics.json.bak"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config", f), []byte("torn"), 0o600))
	}
	e.add("damage: state file and backup", c.Restart(t.Context(), "broker-a", 0))
	require.NoError(t, c.Close())
}

func TestEveryConfigViolationIsListedAtOnce(t *testing.T) {
	_, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{
		Name: "a/b", NameServers: -1, NameServerAddrs: nil, Topics: map[string]int{"T": -1, "../x": 1},
		Groups:  []pocketmq.BrokerGroup{{Name: "x"}, {Name: "x"}, {Name: "y", Config: pocketmq.BrokerConfig{Dir: "d", Name: "n"}}},
		Timings: pocketmq.Timings{Rebalance: -1, RouteRefresh: -1},
	})
	assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
	assert.ErrorIs(t, err, pocketmq.ErrIllegalName)
	for _, part := range []string{"a/b", "NameServers", `Topics["T"]`, "../x", `"x"`, "Config.Dir", "Config.Name", "Timings.Rebalance", "Timings.RouteRefresh"} {
		assert.ErrorContains(t, err, part)
	}
}

func TestConfigsAreCopiedAtConstruction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		levels := []time.Duration{time.Second}
		topics := map[string]int{"T": 1}
		gs := groups("broker-a")
		c := run(t, pocketmq.ClusterConfig{Topics: topics, Groups: gs, Timings: pocketmq.Timings{DelayLevels: levels}})
		servers, subs := c.NameServerAddrs(), all("T")
		fails := make(chan time.Time, 10)
		co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
			Group: "g", NameServers: servers, Transport: c.Transport(), Subscriptions: subs, Timings: pocketmq.Timings{DelayLevels: levels},
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				fails <- time.Now()
				if msgs[0].ReconsumeTimes == 0 {
					return errors.New("once more")
				}
				return nil
			},
		})
		require.NoError(t, err)
		p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: servers, Transport: c.Transport()})
		require.NoError(t, err)
		topics["U"] = 1
		gs[0].Name = "changed"
		levels[0] = time.Hour
		servers[0] = "127.0.0.1:1"
		delete(subs, "T")
		require.NoError(t, co.Start(t.Context()))
		require.NoError(t, p.Start(t.Context()))
		_, err = p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		assert.Equal(t, time.Second, -(<-fails).Sub(<-fails))
		_, err = c.Admin().Route(t.Context(), "U")
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
		require.NoError(t, co.Close())
		require.NoError(t, p.Close())
	})
}

func TestScaledTimings(t *testing.T) {
	def := pocketmq.DefaultTimings()
	tenth := pocketmq.Timings{}.Scaled(0.1)
	assert.Equal(t, def.Rebalance/10, tenth.Rebalance)
	assert.Equal(t, def.DelayLevels[2]/10, tenth.DelayLevels[2])
	assert.Equal(t, time.Millisecond, pocketmq.Timings{}.Scaled(1e-9).BrokerExpire, "at least 1 ms")
	assert.Equal(t, def, pocketmq.DefaultTimings().Scaled(1))
	assert.Equal(t, 2*time.Hour, pocketmq.Timings{Rebalance: time.Hour}.Scaled(2).Rebalance)
	levels := []time.Duration{time.Second}
	_ = pocketmq.Timings{DelayLevels: levels}.Scaled(5)
	assert.True(t, slices.Equal([]time.Duration{time.Second}, levels), "the receiver is unchanged")
}

func queryErrors(t *testing.T, e *errorTexts) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 1}, Groups: []pocketmq.BrokerGroup{
		{Name: "broker-a", Addrs: []string{"127.1.0.21:10911"}}, {Name: "broker-b", Addrs: []string{"127.1.0.22:10911"}},
	}})
	p := producer(t, c, pocketmq.ProducerConfig{})
	a := c.Admin()
	res, err := p.SendTo(t.Context(), queue("orders", "broker-a", 0), text("orders", "x"))
	require.NoError(t, err)
	host := storeHost(t, c, "broker-a")
	byID := func(name, id string) {
		_, err := a.MessageByID(t.Context(), id)
		e.add("query: "+name, err)
	}
	byID("by id, not kept", message.OffsetMsgID(host, 7))
	byID("by id, nobody there", message.OffsetMsgID(netip.MustParseAddrPort("127.9.9.9:10911"), 1))
	byID("by id, a short one", "7F01")
	byID("by id, a producer's", "7F01000200012A9F0000000000000001")
	_, err = a.MessageByUniqueKey(t.Context(), "orders", "4711")
	e.add("query: by unique key, not kept", err)
	_, err = a.MessageByUniqueKey(t.Context(), "ordrs", res.MsgID)
	e.add("query: by unique key, unknown topic", err)
	_, err = a.MessageByUniqueKey(t.Context(), "orders", "")
	e.add("query: by unique key, empty", err)
	_, err = a.MessagesByKey(t.Context(), "orders", "tea and jam", time.Unix(2, 0).UTC(), time.Unix(1, 0).UTC(), -7)
	e.add("query: by key, nothing right", err)
	_, err = a.TopicStats(t.Context(), "../orders")
	e.add("query: topic statistics, bad name", err)

	refused := c.Inject(pocketmq.Fault{Node: "broker-b/0", Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "too many requests"}})
	_, err = a.MessagesByKey(t.Context(), "orders", "tea", time.Time{}, time.Time{}, 0)
	e.add("query: by key, one broker is busy", err)
	refused.Remove()
	silent := c.Inject(pocketmq.Fault{Node: "broker-b/0", Drop: true})
	_, err = a.TopicStats(t.Context(), "orders")
	e.add("query: topic statistics, one broker is silent", err)
	silent.Remove()
	require.NoError(t, c.Admin().Close())
	_, err = a.TopicStats(t.Context(), "orders")
	e.add("query: after close", err)
}

func nameServerErrors(t *testing.T, e *errorTexts) {
	root := t.TempDir()
	e.replace = []string{root, "$DIR"}
	start := func(dir string) error {
		s, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Dir: dir, Transport: pocketmq.InMemory()})
		require.NoError(t, err)
		defer func() { assert.NoError(t, s.Close()) }()
		return s.Start(t.Context())
	}
	file := filepath.Join(root, "kvConfig.json")
	require.NoError(t, os.WriteFile(file, []byte("what?"), 0o600))
	e.add("name server: damaged KV configuration", start(root))
	e.add("name server: the folder is a file", start(file))

	c := run(t, pocketmq.ClusterConfig{NameServers: 2})
	e.add("write permission: unknown broker", c.Admin().WipeWritePerm(t.Context(), "brokr-a"))
	conn := dialNameServer(t, c, 0)
	_, err := conn.UpdateNameServerConfig(t.Context(), &protocol.UpdateNameServerConfigRequest{})
	e.add("name server: changed from outside", err)
	_, err = conn.PutKVConfig(t.Context(), &protocol.PutKVConfigRequest{Namespace: "N", Key: "k", Value: strings.Repeat("v", 3<<20)})
	e.add("name server: too much KV configuration", err)
	_, err = getKV(conn, "N", "k")
	e.add("name server: no such value", err)
	require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "orders", ReadQueues: 1}))
	require.NoError(t, c.Admin().WipeWritePerm(t.Context(), "broker-a"))
	_, err = producer(t, c, pocketmq.ProducerConfig{}).Send(t.Context(), text("orders", "x"))
	e.add("write permission: no broker is left", err)
	require.NoError(t, c.KillNameServer(1))
	e.add("order: a name server is down", c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "orders", Order: true}))
	e.add("write permission: a name server is down", c.Admin().AddWritePerm(t.Context(), "broker-a"))
}
