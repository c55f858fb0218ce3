package mqtest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/protocol"
)

// recorder is a testing.TB that keeps what a test would report.
type recorder struct {
	testing.TB // what is not below
	ctx        context.Context
	end        context.CancelFunc

	mu       sync.Mutex // guards the fields below
	cleanups []func()
	errors   []string
	logs     []string
	failed   bool
}

// record runs f as a test of its own, with clean-ups, and returns its report.
func record(t *testing.T, f func(t testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	r.ctx, r.end = context.WithCancel(t.Context())
	f(r)
	r.finish()
	return r
}

// finish runs the clean-ups, last in, first out.
func (r *recorder) finish() {
	r.end()
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
	r.failed = true
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) FailNow() { panic(failNow{}) }

// failNow is the panic of a recorder's FailNow.
type failNow struct{}

// talk sends n messages and waits until they are consumed.
func talk(t testing.TB, c *pocketmq.Cluster, n int) {
	t.Helper()
	ctx := context.Background()
	got := make(chan struct{}, n)
	_, err := c.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, From: pocketmq.FromFirstOffset,
		Handler: func(context.Context, []*pocketmq.MessageExt) error { got <- struct{}{}; return nil },
	})
	require.NoError(t, err)
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	require.NoError(t, err)
	for range n {
		_, err := p.Send(ctx, &pocketmq.Message{Topic: "T", Body: []byte("x")})
		require.NoError(t, err)
	}
	for range n {
		<-got
	}
}

var topicT = map[string]int{"T": 4}

func TestASoundTestReportsNothing(t *testing.T) {
	r := record(t, func(t testing.TB) {
		c := mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT, Groups: []pocketmq.BrokerGroup{{Name: "a"}, {Name: "b"}}})
		talk(t, c, 100)
		require.NoError(t, c.Kill("b", 0))
	})
	assert.Empty(t, r.errors)
	assert.Empty(t, r.logs)
}

func TestRunsInParallelDoNotSeeEachOther(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			talk(t, mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT}), 100)
		})
	}
}

func TestTwoClustersOfOneTest(t *testing.T) {
	net := pocketmq.InMemory()
	for range 2 {
		talk(t, mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT, Transport: net}), 10)
	}
}

func TestTimingsAreFastUnlessTheTestSaysOtherwise(t *testing.T) {
	expiry := func(t testing.TB, cfg pocketmq.ClusterConfig) time.Duration {
		cfg.Topics = topicT
		c := mqtest.Run(t, cfg)
		begin := time.Now()
		f := c.Inject(pocketmq.Fault{Code: protocol.CodeRegisterBroker})
		require.NoError(t, f.Wait(context.Background(), 1))
		return time.Since(begin)
	}
	assert.Less(t, expiry(t, pocketmq.ClusterConfig{}), 20*time.Second, "the next registration, real time")
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, 30*time.Second, expiry(t, pocketmq.ClusterConfig{}), "a bubble keeps RocketMQ's defaults")
	})
	synctest.Test(t, func(t *testing.T) {
		own := pocketmq.Timings{BrokerRegister: 7 * time.Second}
		assert.Equal(t, 7*time.Second, expiry(t, pocketmq.ClusterConfig{Timings: own}))
	})
}

func TestFastKeepsWhatDecidesThatSomebodyIsDead(t *testing.T) {
	fast, normal := mqtest.Fast(), pocketmq.DefaultTimings()
	assert.Equal(t, normal.BrokerExpire, fast.BrokerExpire)
	assert.Equal(t, normal.ClientExpire, fast.ClientExpire)
	assert.Equal(t, normal.PullSuspend, fast.PullSuspend)
	assert.Equal(t, 200*time.Millisecond, fast.Rebalance)
	assert.Equal(t, 10*time.Millisecond, fast.DelayLevels[0])
	f, n := reflect.ValueOf(fast), reflect.ValueOf(normal)
	for i := range f.NumField() {
		if f.Field(i).Kind() == reflect.Int64 {
			assert.LessOrEqual(t, f.Field(i).Int(), n.Field(i).Int(), f.Type().Field(i).Name)
			assert.Positive(t, f.Field(i).Int(), f.Type().Field(i).Name)
		}
	}
	fast.DelayLevels[0] = 0
	assert.Equal(t, time.Second, pocketmq.DefaultTimings().DelayLevels[0], "Fast shares nothing with the defaults")
}

func TestBubblesOneAfterTheOther(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			c := mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT})
			talk(t, c, 10)
			time.Sleep(time.Minute)
			require.NoError(t, c.Kill("broker-a", 0))
		})
	}
}

// leakInHandler starts, from a handler, whose goroutines carry the cluster's
// label, a goroutine of this module and one of the test. Both run until release
// is called.
func leakInHandler(t testing.TB, c *pocketmq.Cluster) (release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	fault := c.Inject(pocketmq.Fault{Topic: "never"})
	started := make(chan struct{})
	_, err := c.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group: "leaky", Subscriptions: map[string]pocketmq.Filter{"T": {}}, From: pocketmq.FromFirstOffset,
		Handler: func(context.Context, []*pocketmq.MessageExt) error {
			go fault.Wait(ctx, 1)
			go func() { <-ctx.Done() }()
			close(started)
			return nil
		},
	})
	require.NoError(t, err)
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(ctx, &pocketmq.Message{Topic: "T", Body: []byte("x")})
	require.NoError(t, err)
	<-started
	return cancel
}

func TestAGoroutineOfTheClusterThatIsLeftIsReported(t *testing.T) {
	inAndOutOfABubble(t, func(t *testing.T) {
		var release func()
		r := record(t, func(t testing.TB) {
			release = leakInHandler(t, mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT}))
		})
		defer release()
		require.Len(t, r.errors, 1)
		assert.Contains(t, r.errors[0], "1 goroutines of the cluster are left")
		assert.Contains(t, r.errors[0], "(*FaultHandle).Wait")
		assert.NotContains(t, r.errors[0], "leakInHandler", "the test's own goroutine is the test's business")
	})
}

func TestGoroutinesOfTheTestAndOfOthersDoNotCount(t *testing.T) {
	inAndOutOfABubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		other, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{Topics: topicT})
		require.NoError(t, err)
		r := record(t, func(t testing.TB) {
			c := mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT})
			talk(t, c, 10)
			go func() { <-ctx.Done() }()
			// A client that was not started through the cluster is not its own.
			p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: c.NameServerAddrs(), Transport: c.Transport(), InstanceName: "foreign"})
			require.NoError(t, err)
			require.NoError(t, p.Start(ctx))
			_, err = p.Send(ctx, &pocketmq.Message{Topic: "T", Body: []byte("x")})
			require.NoError(t, err)
			t.Cleanup(func() { context.AfterFunc(ctx, func() { _ = p.Close() }) })
		})
		assert.Empty(t, r.errors)
		require.NoError(t, other.Close())
	})
}

func inAndOutOfABubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Run("real time", f)
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, f) })
}

func TestAHandlerThatDoesNotReturnIsReported(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	r := record(t, func(t testing.TB) {
		c := mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT})
		handling := make(chan struct{})
		_, err := c.StartConsumer(context.Background(), pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, CloseTimeout: time.Millisecond,
			Handler: func(context.Context, []*pocketmq.MessageExt) error { close(handling); <-hold; return nil },
		})
		require.NoError(t, err)
		p, err := c.StartProducer(context.Background(), pocketmq.ProducerConfig{})
		require.NoError(t, err)
		_, err = p.Send(context.Background(), &pocketmq.Message{Topic: "T", Body: []byte("x")})
		require.NoError(t, err)
		<-handling
	})
	require.Len(t, r.errors, 2)
	assert.Contains(t, r.errors[0], pocketmq.ErrHandlersRunning.Error())
	assert.Contains(t, r.errors[1], "left after Close")
	require.Len(t, r.logs, 1, "a failed test shows the log")
}

func TestTheStoreOfAKilledBrokerIsChecked(t *testing.T) {
	for name, dir := range map[string]string{"throwaway": "", "real folder": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			r := record(t, func(t testing.TB) {
				c := mqtest.Run(t, pocketmq.ClusterConfig{Dir: dir, Name: "C", Topics: topicT})
				talk(t, c, 10)
				b := c.Broker("broker-a", 0)
				require.NoError(t, c.Kill("broker-a", 0))
				// The folder of another cluster: it can't be opened as ours.
				format := filepath.Join(b.Dir(), "FORMAT")
				text, err := os.ReadFile(format)
				require.NoError(t, err)
				require.Contains(t, string(text), `"C"`)
				require.NoError(t, os.WriteFile(format, []byte(strings.ReplaceAll(string(text), `"C"`, `"D"`)), 0o600))
			})
			require.Len(t, r.errors, 1)
			assert.Contains(t, r.errors[0], "store of broker broker-a")
		})
	}
}

func TestADamagedStoreIsReported(t *testing.T) {
	r := record(t, func(t testing.TB) {
		c := mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT})
		talk(t, c, 10)
		files, err := filepath.Glob(filepath.Join(c.Broker("broker-a", 0).Dir(), "commitlog", "[0-9]*", "*"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		data, err := os.ReadFile(files[0])
		require.NoError(t, err)
		data[len(data)-1] ^= 1
		require.NoError(t, os.WriteFile(files[0], data, 0o600))
	})
	require.Len(t, r.errors, 1)
	assert.Contains(t, r.errors[0], "store of broker broker-a")
}

func TestATestMayCloseItsClusterItself(t *testing.T) {
	r := record(t, func(t testing.TB) {
		c := mqtest.Run(t, pocketmq.ClusterConfig{Topics: topicT})
		talk(t, c, 10)
		dir := c.Broker("broker-a", 0).Dir()
		require.DirExists(t, dir)
		require.NoError(t, c.Close())
		assert.NoDirExists(t, dir)
	})
	assert.Empty(t, r.errors)
}

func TestAClusterThatDoesNotStartEndsTheTest(t *testing.T) {
	r := &recorder{TB: t}
	r.ctx, r.end = context.WithCancel(t.Context())
	assert.PanicsWithValue(t, failNow{}, func() { mqtest.Run(r, pocketmq.ClusterConfig{NameServers: -1}) })
	r.finish()
	require.Len(t, r.errors, 1)
	assert.Contains(t, r.errors[0], "NameServers is -1")
}
