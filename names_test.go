package pocketmq_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// badNames are names that a store must not take for paths.
var badNames = map[string]string{
	"climbs":           "../../x",
	"slash":            "a/b",
	"backslash":        `a\b`,
	"dots":             "..",
	"dot":              ".",
	"empty":            "",
	"NUL":              "a\x00b",
	"300 characters":   strings.Repeat("x", 300),
	"not ASCII":        "größe",
	"not UTF-8":        "a\xff",
	"separator":        "topic@group",
	"control":          "a\nb",
	"properties marks": "a\x01b\x02",
}

func TestPR04_TheBrokerRefusesNamesThatArePaths(t *testing.T) {
	bubble(t, func(t *testing.T) {
		root := t.TempDir()
		dir := filepath.Join(root, "deep", "down", "data")
		c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		_, err = conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: "probe", Consumers: []protocol.ConsumerData{{Group: "member", Model: protocol.Broadcasting}}})
		require.NoError(t, err)
		time.Sleep(time.Minute) // everything is persisted
		before := tree(t, root)
		topicsBefore, err := c.Admin().Topics(t.Context())
		require.NoError(t, err)

		for what, name := range badNames {
			requests := map[string]func(ctx context.Context) error{
				"send to topic": func(ctx context.Context) error {
					_, err := conn.SendMessage(ctx, &protocol.SendMessageRequest{
						ProducerGroup: "p", Topic: name, DefaultTopic: "TBW102", DefaultTopicQueues: 4, BornTime: time.Now(), Body: []byte("x"),
					})
					return err
				},
				"create topic": func(ctx context.Context) error {
					_, err := conn.CreateTopic(ctx, &protocol.CreateTopicRequest{Config: protocol.TopicConfig{Name: name, ReadQueues: 1, WriteQueues: 1, Perm: 6}})
					return err
				},
				"pull topic": func(ctx context.Context) error {
					_, err := conn.PullMessage(ctx, &protocol.PullMessageRequest{Group: "g", Topic: name, HasExpression: true, Expression: "*"})
					return err
				},
				"pull as group": func(ctx context.Context) error {
					_, err := conn.PullMessage(ctx, &protocol.PullMessageRequest{Group: name, Topic: "T", Commit: true, CommitOffset: 1, HasExpression: true, Expression: "*"})
					return err
				},
				"commit for group": func(ctx context.Context) error {
					_, err := conn.UpdateConsumerOffset(ctx, &protocol.UpdateConsumerOffsetRequest{Group: name, Topic: "T", Offset: 1})
					return err
				},
				"commit to topic": func(ctx context.Context) error {
					_, err := conn.UpdateConsumerOffset(ctx, &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: name, Offset: 1})
					return err
				},
			}
			for request, do := range requests {
				err := do(t.Context())
				var answered *pocketmq.Error
				if !assert.ErrorAs(t, err, &answered, "%s, %s", request, what) {
					continue
				}
				ok := answered.Code == protocol.InvalidParameter && errors.Is(err, pocketmq.ErrIllegalName) && answered.Broker == "broker-a"
				assert.True(t, ok, "%s, %s: %v", request, what, err)
			}
			// What is wrong in a heartbeat is passed over: it comes from a client whose other
			// groups are good.
			_, err := conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{
				ClientID: "probe", Producers: []string{name},
				Consumers: []protocol.ConsumerData{{Group: name}, {Group: "member", Model: protocol.Broadcasting, Subscriptions: []protocol.Subscription{{Topic: name, Expression: "*"}}}},
			})
			require.NoError(t, err, what)
			st, ok := c.Broker("broker-a", 0).Group("member")
			require.True(t, ok, what)
			assert.Len(t, st.Members, 1, what)
			_, ok = c.Broker("broker-a", 0).Group(name)
			assert.False(t, ok, what)
			// These only read: any answer will do, as long as it harms nothing.
			_, _ = conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: name})
			_, _ = conn.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: name})
			_, _ = conn.SearchOffset(t.Context(), &protocol.SearchOffsetRequest{Topic: name, QueueID: -1})
			_, _ = conn.GetEarliestStoreTime(t.Context(), &protocol.GetEarliestStoreTimeRequest{Topic: name, QueueID: -1})
			_, _ = conn.QueryMessage(t.Context(), &protocol.QueryMessageRequest{Topic: name, Key: name, MaxMessages: 1 << 30, Below: -1})
			_, _ = conn.ViewMessage(t.Context(), &protocol.ViewMessageRequest{Position: -1})
			_, _ = conn.GetTopicStats(t.Context(), &protocol.GetTopicStatsRequest{Topic: name})
			_, _ = conn.GetConsumerList(t.Context(), &protocol.GetConsumerListRequest{Group: name})
			_, _ = conn.QueryConsumerOffset(t.Context(), &protocol.QueryConsumerOffsetRequest{Group: name, Topic: name})
			_, _ = conn.UnregisterClient(t.Context(), &protocol.UnregisterClientRequest{ClientID: "probe", ConsumerGroup: name, ProducerGroup: name})
		}
		time.Sleep(time.Minute)
		assert.Equal(t, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(tree(t, root))), "no file or folder came or went")
		topics, err := c.Admin().Topics(t.Context())
		require.NoError(t, err)
		assert.Equal(t, topicsBefore, topics)
		g, ok := c.Broker("broker-a", 0).Group("g")
		assert.False(t, ok, "%+v", g)
	})
}

func TestPR04_ClientsRefuseIllegalNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		p := producer(t, c, pocketmq.ProducerConfig{})
		handler := func(context.Context, []*pocketmq.MessageExt) error { return nil }
		before := c.Broker("broker-a", 0).Status().Connections
		for what, name := range badNames {
			_, err := p.Send(t.Context(), text(name, "x"))
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "send: %s", what)
			err = c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: name})
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "create topic: %s", what)
			_, err = c.Admin().TopicStats(t.Context(), name)
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "statistics: %s", what)
			_, err = c.Admin().MessageByUniqueKey(t.Context(), name, "k")
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "message by unique key: %s", what)
			_, err = c.Admin().MessagesByKey(t.Context(), name, "k", time.Time{}, time.Time{}, 0)
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "messages by key: %s", what)
			_, err = c.Admin().Route(t.Context(), name)
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "route: %s", what)
			_, err = p.Queues(t.Context(), name)
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "queues: %s", what)
			_, err = c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{Group: "g", Subscriptions: all(name), Handler: handler})
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "subscribe: %s", what)
			_, err = c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{Group: name, Subscriptions: all("T"), Handler: handler})
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "consumer group: %s", what)
			_, err = c.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: "g", Subscriptions: all(name)})
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "pull consumer: %s", what)
			_, err = c.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: name})
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "pull consumer group: %s", what)
			if name != "" { // "" = the default group
				_, err = c.StartProducer(t.Context(), pocketmq.ProducerConfig{Group: name})
				assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "producer group: %s", what)
			}
			_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{name: 1}})
			assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "cluster topic: %s", what)
			if name != "" {
				_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Groups: groups(name)})
				assert.ErrorIs(t, err, pocketmq.ErrIllegalName, "broker group: %s", what)
			}
		}
		assert.Equal(t, before, c.Broker("broker-a", 0).Status().Connections, "no broker was bothered")
	})
}

// A cluster that can't start must not leave a data folder behind where there
// was none, nor touch one that is not its own.
func TestARefusedFolderIsLeftAsItWas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		root := t.TempDir()
		mine := filepath.Join(root, "broker-a-0")
		require.NoError(t, os.MkdirAll(mine, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(mine, "thesis.txt"), []byte("precious"), 0o600))
		before := tree(t, root)
		_, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Dir: root})
		require.Error(t, err)
		assert.ErrorContains(t, err, mine)
		assert.Equal(t, before, tree(t, root))
		var answered *pocketmq.Error
		assert.False(t, errors.As(err, &answered), "no server answered")
	})
}
