package groups

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pocketmq/pocketmq/protocol"
)

func tags(topic, expression string, tags ...string) protocol.Subscription {
	return protocol.SubscriptionOf(topic, expression, tags, nil, 1)
}

func TestMembersThatAgreeDoNotDiffer(t *testing.T) {
	for name, pair := range map[string][2][]protocol.Subscription{
		"same":            {{sub("orders", "*", 1)}, {sub("orders", "*", 1)}},
		"other version":   {{sub("orders", "*", 1)}, {sub("orders", "*", 7)}},
		"empty is all":    {{sub("orders", "", 1)}, {sub("orders", "*", 1)}},
		"order of tags":   {{tags("orders", "A || B", "A", "B")}, {tags("orders", "B||A", "B", "A")}},
		"order of topics": {{sub("a", "*", 1), sub("b", "*", 1)}, {sub("b", "*", 1), sub("a", "*", 1)}},
		"unknown type":    {{{Topic: "a", Expression: "*"}}, {sub("a", "*", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.beat(t0, 1, member("c1", pair[0]...))
			b.beat(t0, 2, member("c2", pair[1]...))
			differ, text := b.Differ("g")
			assert.False(t, differ, text)
			assert.Empty(t, text)
		})
	}
	differ, text := New().Differ("unknown")
	assert.False(t, differ)
	assert.Empty(t, text)
}

func TestMembersThatDifferAreNamed(t *testing.T) {
	for name, pair := range map[string][2][]protocol.Subscription{
		"tags":   {{tags("orders", "A", "A")}, {tags("orders", "B", "B")}},
		"topics": {{sub("orders", "*", 1)}, {sub("orders", "*", 1), sub("payments", "*", 1)}},
		"type":   {{sub("orders", "a > 1", 1)}, {{Topic: "orders", Expression: "a > 1", ExpressionType: "SQL92"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.beat(t0, 1, member("c1", pair[0]...))
			b.beat(t0, 2, member("c2", pair[1]...))
			b.beat(t0, 3, member("c3", pair[1]...))
			differ, text := b.Differ("g")
			assert.True(t, differ)
			assert.Contains(t, text, `group "g"`)
			assert.Contains(t, text, "c1: CLUSTERING orders(")
			assert.Contains(t, text, "c2 and 1 more: CLUSTERING orders(")
			assert.Contains(t, text, "give all of them the same subscriptions")
			b.ConnClosed(1)
			differ, _ = b.Differ("g")
			assert.False(t, differ)
		})
	}
	t.Run("model", func(t *testing.T) {
		b := newBench(t)
		b.beat(t0, 1, member("c1", sub("orders", "*", 1)))
		r := member("c2", sub("orders", "*", 1))
		r.Consumers[0].Model = protocol.Broadcasting
		b.beat(t0, 2, r)
		differ, text := b.Differ("g")
		assert.True(t, differ)
		assert.Contains(t, text, "c1: CLUSTERING orders(*); c2: BROADCASTING orders(*)")
	})
	t.Run("the retry topic, which says nothing when all have it", func(t *testing.T) {
		b := newBench(t)
		b.beat(t0, 1, member("c1", sub("orders", "*", 1), sub("%RETRY%g", "*", 1)))
		b.beat(t0, 2, member("c2", sub("payments", "*", 1), sub("%RETRY%g", "*", 1)))
		_, text := b.Differ("g")
		assert.Contains(t, text, "c1: CLUSTERING orders(*); c2: CLUSTERING payments(*);")
		b.beat(t0, 3, member("c3", sub("orders", "*", 1)))
		_, text = b.Differ("g")
		assert.Contains(t, text, "c1: CLUSTERING %RETRY%g(*) orders(*);")
		assert.Contains(t, text, "c3: CLUSTERING orders(*);")
	})
}

// As in the reference the last heartbeat decides the topics of a group, so
// members that differ change them to and fro.
func TestMembersThatDifferChangeTheGroupToAndFro(t *testing.T) {
	b := newBench(t)
	one, two := member("c1", sub("orders", "*", 1)), member("c2", sub("payments", "*", 1))
	b.beat(t0, 1, one)
	b.beat(t0, 2, two)
	for range 3 {
		assert.Len(t, b.beat(t0, 1, one), 1)
		_, ok := b.Subscription("g", "payments")
		assert.False(t, ok)
		assert.Len(t, b.beat(t0, 2, two), 1)
		_, ok = b.Subscription("g", "orders")
		assert.False(t, ok)
	}
}
