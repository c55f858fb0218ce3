package rmqtest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

var all = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

func accept(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return consumer.ConsumeSuccess, nil
}

func TestAConsumerOfAMissingTopicSaysSoAndStartsLater(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	before := officialGoroutines(t)
	co := rmqtest.Consumer(t, c, "G")
	require.NoError(t, co.Subscribe("missing", all, accept))
	err := co.Start()
	require.ErrorIs(t, err, pocketmq.ErrNoRoute)
	assert.ErrorContains(t, err, `topic "missing"`)
	assert.ErrorContains(t, err, "rmqtest.Topic")
	for starter, n := range officialGoroutines(t) { // those of earlier tests end meanwhile
		assert.LessOrEqual(t, n, before[starter], "goroutines of the official client, started by %s", starter)
	}

	require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "missing"}))
	require.NoError(t, co.Start())

	pull := rmqtest.PullConsumer(t, c, "P")
	require.NoError(t, pull.Subscribe("gone", all))
	require.ErrorIs(t, pull.Start(), pocketmq.ErrNoRoute)
}

func TestWaitGroupSeesOfficialConsumers(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 6)
	for range 3 {
		co := rmqtest.Consumer(t, c, "G")
		require.NoError(t, co.Subscribe(topic, all, accept))
		require.NoError(t, co.Start())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, c.WaitGroup(ctx, "G", func(g pocketmq.GroupStatus) bool {
		shares := 0
		for _, m := range g.Members {
			if len(m.Assigned) == 2 {
				shares++
			}
		}
		return shares == 3
	}))
}

func TestAConsumerMayBeShutDownAtAnyTime(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	never := rmqtest.Consumer(t, c, "G")
	require.NoError(t, never.Shutdown())
	require.NoError(t, never.Shutdown())
	require.NoError(t, never.Subscribe("T", all, accept))
	require.ErrorContains(t, never.Start(), "make another one")

	co := rmqtest.Consumer(t, c, "G")
	require.NoError(t, co.Subscribe("T", all, accept))
	require.NoError(t, co.Start())
	require.NoError(t, co.Shutdown())
	require.NoError(t, co.Shutdown())
	require.NoError(t, rmqtest.PullConsumer(t, c, "P").Shutdown())
}

func TestShutdownWaitsForHandlersAndLetsNoneBeginAfterwards(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 1)
	running, release := make(chan struct{}), make(chan struct{})
	handled := 0
	co := rmqtest.Consumer(t, c, "G", consumer.WithConsumeGoroutineNums(1), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.NoError(t, co.Subscribe(topic, all, func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		handled++ // one at a time
		running <- struct{}{}
		<-release
		return consumer.ConsumeSuccess, nil
	}))
	require.NoError(t, co.Start())
	p := rmqtest.Producer(t, c)
	for range 5 {
		_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
		require.NoError(t, err)
	}
	<-running
	down := make(chan error)
	go func() { down <- co.Shutdown() }()
	select {
	case err := <-down:
		require.FailNow(t, "Shutdown did not wait", "%v", err)
	case <-time.After(50 * time.Millisecond): // it waits, as far as one can tell
	}
	close(release)
	require.NoError(t, <-down)
	assert.Equal(t, 1, handled)
}

func TestShutdownNamesTheGroupWhoseHandlersDoNotEnd(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	running, release := make(chan struct{}), make(chan struct{})
	down := make(chan error, 1)
	inner := fake(t, func(t *fakeT) {
		topic := rmqtest.Topic(t, c, 1)
		co := rmqtest.Consumer(t, c, "stubborn", consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		rmqtest.WaitForHandlers(co, time.Millisecond)
		assert.NoError(t.TB, co.Subscribe(topic, all, func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			close(running)
			<-release
			return consumer.ConsumeSuccess, nil
		}))
		assert.NoError(t.TB, co.Start())
		_, err := rmqtest.Producer(t, c).SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
		assert.NoError(t.TB, err)
		<-running
		down <- co.Shutdown()
	})
	close(release)
	require.ErrorContains(t, <-down, "handlers of group stubborn still run")
	assert.True(t, inner.failed, "its clean-up says so too")
}

func TestAPanicOfAHandlerIsShown(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	inner := fake(t, func(t *fakeT) {
		topic := rmqtest.Topic(t, c, 1)
		co := rmqtest.Consumer(t, c, "G", consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		running := make(chan struct{})
		assert.NoError(t.TB, co.Subscribe(topic, all, func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			defer close(running)
			panic("out of paper")
		}))
		assert.NoError(t.TB, co.Start())
		_, err := rmqtest.Producer(t, c).SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
		assert.NoError(t.TB, err)
		<-running
	}) // the consumer has been shut down, which waits for the handler
	require.Len(t, inner.logs, 1)
	assert.Contains(t, inner.logs[0], "handler of group G panicked: out of paper")
	assert.Contains(t, inner.logs[0], "TestAPanicOfAHandlerIsShown")
	assert.False(t, inner.failed)
}

// TestClientsMayEndAfterTheirCluster: a test that closes its cluster itself does
// that before its clean-ups.
func TestClientsMayEndAfterTheirCluster(t *testing.T) {
	c, err := pocketmq.StartCluster(t.Context(), pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1")})
	require.NoError(t, err)
	begun := time.Time{}
	inner := fake(t, func(t *fakeT) {
		topic := rmqtest.Topic(t, c, 4)
		for _, orderly := range []bool{false, true} {
			got := make(chan struct{}, 10)
			co := rmqtest.Consumer(t, c, "G-"+fmt.Sprint(orderly), consumer.WithConsumerOrder(orderly), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
			assert.NoError(t.TB, co.Subscribe(topic, all, func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				got <- struct{}{}
				return consumer.ConsumeSuccess, nil
			}))
			assert.NoError(t.TB, co.Start())
			_, err := rmqtest.Producer(t, c).SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
			assert.NoError(t.TB, err)
			<-got
		}
		rmqtest.Admin(t, c)
		assert.NoError(t.TB, c.Close())
		begun = time.Now()
	})
	assert.False(t, inner.failed, "%q", inner.logs)
	fmt.Printf("interop: kit/clients after their cluster: 2 consumers, 2 producers and an admin ended in %v\n", time.Since(begun).Round(time.Millisecond))
	assert.Less(t, time.Since(begun), 20*time.Second)
}

func TestAFailedMessageOfANewGroupComesAgainAtOnce(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{}) // retries after 100 ms, at 1/100
	topic := rmqtest.Topic(t, c, 1)
	again := make(chan int32, 10)
	co := rmqtest.Consumer(t, c, "G", consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.NoError(t, co.Subscribe(topic, all, func(_ context.Context, m ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		again <- m[0].ReconsumeTimes
		if m[0].ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}))
	require.NoError(t, co.Start())
	begun := time.Now()
	_, err := rmqtest.Producer(t, c).SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
	require.NoError(t, err)
	assert.EqualValues(t, 0, <-again)
	assert.EqualValues(t, 1, <-again)
	assert.Less(t, time.Since(begun), 25*time.Second, "the official client looks for the retry topic every 30 s")
}

func TestABroadcastingConsumerLeavesNoFile(t *testing.T) {
	root := filepath.Join(os.Getenv("HOME"), ".rocketmq_client_go")
	_, err := os.Stat(root)
	there := err == nil
	group := "rmqtest-broadcast"
	t.Run("consumer", func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		topic := rmqtest.Topic(t, c, 1)
		got := make(chan struct{}, 1)
		co := rmqtest.Consumer(t, c, group, consumer.WithConsumerModel(consumer.BroadCasting), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		require.NoError(t, co.Subscribe(topic, all, func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			got <- struct{}{}
			return consumer.ConsumeSuccess, nil
		}))
		require.NoError(t, co.Start())
		_, err := rmqtest.Producer(t, c).SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
		require.NoError(t, err)
		<-got
		require.NoError(t, co.Shutdown())
		assert.DirExists(t, filepath.Join(root, group), "the official client keeps it there: else this test sees nothing")
	})
	assert.NoDirExists(t, filepath.Join(root, group))
	if !there {
		assert.NoDirExists(t, root)
	}
}

func TestFoldersThatWereThereBeforeABroadcastingConsumerStay(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, root string){
		"link":   func(t *testing.T, root string) { require.NoError(t, os.Symlink(t.TempDir(), root)) },
		"folder": func(t *testing.T, root string) { require.NoError(t, os.Mkdir(root, 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "offsets")
			prepare(t, root)
			use := rmqtest.Offsets(root)
			ends := []func() error{use(filepath.Join("g", "a")), use(filepath.Join("g", "b"))}
			for i, own := range []string{"a", "b"} {
				dir := filepath.Join(root, "g", own)
				require.NoError(t, os.MkdirAll(dir, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "offset.json"), nil, 0o644))
				require.NoError(t, ends[i]())
				assert.NoDirExists(t, dir)
			}
			assert.NoDirExists(t, filepath.Join(root, "g"))
			_, err := os.Lstat(root)
			assert.NoError(t, err)

			kept := filepath.Join(root, "g", "a")
			require.NoError(t, os.MkdirAll(kept, 0o755))
			require.NoError(t, use(filepath.Join("g", "a"))())
			assert.DirExists(t, kept, "a consumer with a name of the user's, who keeps what it has consumed")
		})
	}
}

func TestFoldersOfBroadcastingConsumersGoWithTheLastOfThem(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "new", "offsets")
	use := rmqtest.Offsets(root)
	a, b := use(filepath.Join("g", "a")), use(filepath.Join("g", "b"))
	require.NoError(t, a(), "before it has written anything")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "g", "b"), 0o755))
	require.NoError(t, b())
	left, err := os.ReadDir(top)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// What is sent right after Start reaches a broadcasting consumer that was given no
// options: with the client's own default it began at the end of its queues, where that
// was when it first looked.
func TestABroadcastingConsumerGetsWhatIsSentRightAfterItsStart(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	co := rmqtest.Consumer(t, c, "G", consumer.WithConsumerModel(consumer.BroadCasting))
	got := make(chan string, 100)
	require.NoError(t, co.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range msgs {
			got <- string(m.Body)
		}
		return consumer.ConsumeSuccess, nil
	}))
	require.NoError(t, co.Start())
	p := rmqtest.Producer(t, c)
	want := map[string]bool{}
	for i := range 20 {
		body := fmt.Sprint("m", i)
		want[body] = true
		_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body)))
		require.NoError(t, err)
	}
	for limit := time.After(30 * time.Second); len(want) > 0; {
		select {
		case body := <-got:
			delete(want, body)
		case <-limit:
			t.Fatalf("not consumed: %v", want)
		}
	}
}
