package rmqtest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/mqtest"
)

func TestAClusterInMemoryIsRefusedWithTheRemedy(t *testing.T) {
	c := mqtest.Run(t, pocketmq.ClusterConfig{})
	for name, use := range map[string]func(t *fakeT){
		"Producer":     func(t *fakeT) { rmqtest.Producer(t, c) },
		"Consumer":     func(t *fakeT) { rmqtest.Consumer(t, c, "G") },
		"PullConsumer": func(t *fakeT) { rmqtest.PullConsumer(t, c, "G") },
		"Admin":        func(t *fakeT) { rmqtest.Admin(t, c) },
	} {
		assert.Contains(t, fake(t, use).fatal, `ClusterConfig{Transport: pocketmq.TCP("127.0.0.1")}`, name)
	}
}

func TestTopicsHaveNamesOfTheirOwnAndRoutes(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	a, b := rmqtest.Topic(t, c, 3), rmqtest.Topic(t, c, 3)
	assert.NotEqual(t, a, b)
	assert.Contains(t, a, t.Name())
	route, err := c.Admin().Route(t.Context(), a)
	require.NoError(t, err)
	assert.Equal(t, 3, route.Queues[0].WriteQueues)
	assert.Contains(t, fake(t, func(t *fakeT) { rmqtest.Topic(t, c, -1) }).fatal, "queues")
}

// TestClientsOfSeveralClustersLiveInOneProcess: the second producer of a process
// is the first one's, or nothing, with the official client alone.
func TestClientsOfSeveralClustersLiveInOneProcess(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c := run(t, pocketmq.ClusterConfig{})
			topic := rmqtest.Topic(t, c, 2)
			for range 2 {
				p := rmqtest.Producer(t, c)
				_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
				require.NoError(t, err)
			}
			stats, err := c.Admin().TopicStats(t.Context(), topic)
			require.NoError(t, err)
			sum := int64(0)
			for _, s := range stats {
				sum += s.MaxOffset
			}
			assert.EqualValues(t, 2, sum)
		})
	}
}

func TestConnectionSettingsOfAClientAreItsOwn(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 1)
	hasty := rmqtest.Producer(t, c, producer.WithRemotingTimeout(time.Nanosecond, time.Minute, time.Minute), producer.WithRetry(0))
	_, err := hasty.SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
	require.Error(t, err, "nobody connects within a nanosecond")

	p, err := rocketmq.NewProducer(producer.WithNameServer(c.NameServerAddrs()), producer.WithInstanceName(topic))
	require.NoError(t, err)
	require.NoError(t, p.Start())
	defer func() { assert.NoError(t, p.Shutdown()) }()
	_, err = p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
	require.NoError(t, err, "a client without the package has the official settings")
}

func TestTheLogIsShownByATestThatFailsOnly(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	use := func(t *fakeT) {
		p := rmqtest.Producer(t, c, producer.WithRetry(0))
		_, err := p.SendSync(t.Context(), primitive.NewMessage("bad topic name", []byte("x")))
		assert.Error(t.TB, err)
	}
	assert.Empty(t, fake(t, use).logs)
	logs := fake(t, func(t *fakeT) {
		use(t)
		t.Errorf("something is wrong")
	}).logs
	require.Len(t, logs, 2)
	assert.Equal(t, "something is wrong", logs[0])
	assert.Contains(t, logs[1], "log lines of the official clients")
	assert.Contains(t, logs[1], "WARN query topic route from server error underlayError=topic not exist")
}

func TestAnAdminOfTheOfficialClient(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
	list, err := rmqtest.Admin(t, c).FetchAllTopicList(t.Context())
	require.NoError(t, err)
	assert.Contains(t, list.TopicList, "T")
}

// TestTracesWorkForSeveralClustersOfAProcess: the official client has one
// client for traces per process, bound to the name servers of the first.
func TestTracesWorkForSeveralClustersOfAProcess(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{})
			topic := rmqtest.Topic(t, c, 1)
			traced := c.Inject(pocketmq.Fault{Topic: rmqtest.TraceTopic, Code: 10})
			p := rmqtest.Producer(t, c, producer.WithTrace(rmqtest.Trace()))
			_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
			require.NoError(t, err)
			require.NoError(t, traced.Wait(t.Context(), 1))
		})
	}
}

// TestManyTestsMayUseACluster shares one among parallel tests.
func TestManyTestsMayUseACluster(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	var mu sync.Mutex // guards names
	names := make(map[string]bool)
	t.Run("group", func(t *testing.T) {
		for range 4 {
			t.Run("same name", func(t *testing.T) {
				t.Parallel()
				topic := rmqtest.Topic(t, c, 1)
				p := rmqtest.Producer(t, c)
				_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
				require.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				names[topic] = true
			})
		}
	})
	assert.Len(t, names, 4)
}
