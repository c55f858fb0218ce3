package consume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/protocol"
)

func tagsOf(t testing.TB, expression string) filter.Tags {
	t.Helper()
	tags, err := filter.ParseTags(expression)
	require.NoError(t, err)
	return tags
}

func TestEveryChangeOfSubscriptionsHasALargerVersion(t *testing.T) {
	now := time.UnixMilli(1000)
	s := newSubscriptions(&Config{Model: protocol.Broadcasting, Subscriptions: map[string]filter.Tags{"b": tagsOf(t, "B || A"), "a": {}}})
	assert.Zero(t, s.latest())
	s.start(now)
	assert.Equal(t, []protocol.Subscription{
		protocol.SubscriptionOf("a", "*", nil, nil, 1000),
		protocol.SubscriptionOf("b", "A || B", []string{"A", "B"}, []int32{65, 66}, 1000),
	}, s.tell())

	assert.False(t, s.set("b", tagsOf(t, "A||B"), now), "the same filter is no change")
	assert.EqualValues(t, 1000, s.latest())
	assert.True(t, s.set("b", tagsOf(t, "A"), now))
	assert.EqualValues(t, 1001, s.latest(), "two changes within a millisecond are told apart")
	assert.True(t, s.set("c", tagsOf(t, "*"), now.Add(time.Second)))
	assert.EqualValues(t, 2000, s.latest())
	assert.True(t, s.remove("a", now))
	assert.False(t, s.remove("a", now))
	assert.EqualValues(t, 2001, s.latest(), "a clock that goes backwards does not make an older version")
	assert.Equal(t, []string{"b", "c"}, s.topics())

	sub, ok := s.get("c")
	require.True(t, ok)
	assert.Equal(t, subscription{topic: "c", filter: tagsOf(t, "*"), version: 2000, since: now.Add(time.Second)}, sub)
	s.start(now)
	sub, _ = s.get("c")
	assert.EqualValues(t, 2002, sub.version, "a start gives every topic a new version")
	assert.Equal(t, now, sub.since)
}

func TestAGroupSubscribesToItsRetryTopic(t *testing.T) {
	cfg := Config{Group: "g", Subscriptions: map[string]filter.Tags{"b": tagsOf(t, "B"), "a": {}}}
	s := newSubscriptions(&cfg)
	s.start(time.UnixMilli(1000))
	assert.Equal(t, []protocol.Subscription{
		protocol.SubscriptionOf("a", "*", nil, nil, 1000),
		protocol.SubscriptionOf("b", "B", []string{"B"}, []int32{66}, 1000),
		protocol.SubscriptionOf("%RETRY%g", "*", nil, nil, 1000),
	}, s.tell(), "last: it is settled after what users asked for")
	assert.Equal(t, map[string]bool{"%RETRY%g": true}, s.hidden())
	assert.False(t, s.remove("%RETRY%g", time.UnixMilli(2000)))
	cfg.Model = protocol.Broadcasting
	assert.Empty(t, newSubscriptions(&cfg).hidden(), "a broadcast is not repeated")
}
