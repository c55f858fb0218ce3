package client

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSimilarTopics(t *testing.T) {
	known := []string{"orders", "orders-archive", "payments", "abc", "TBW102", "%RETRY%g", "rmq_sys_x", "refunds", "rebunds"}
	for name, want := range map[string]string{
		"ordrs":           "orders",
		"orderss":         "orders",
		"Orders":          "orders",
		"odrers":          "orders", // two neighbours swapped are one edit
		"order-archive":   "orders-archive",
		"paiment":         "payments",
		"abd":             "abc",
		"xyz":             "",
		"ab":              "",
		"":                "",
		"orders":          "", // known, only not routed: no slip
		"customers":       "",
		"TBW103":          "",
		"TBW102":          "",
		"%RETRY%h":        "",
		"rmq_sys_y":       "",
		"redunds":         "rebunds", // the first in order of two that are as close
		"orders-archives": "orders-archive",
	} {
		assert.Equal(t, want, similar(name, known), name)
	}
	assert.Empty(t, similar("orders", nil))
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		limit int
		want  int
	}{
		{"", "", 3, 0}, {"a", "", 3, 1}, {"", "ab", 3, 2}, {"abc", "abc", 3, 0}, {"abc", "axc", 3, 1},
		{"kitten", "sitting", 9, 3}, {"ab", "ba", 3, 1}, {"abcd", "badc", 3, 2}, {"sunday", "saturday", 9, 3},
	} {
		assert.Equal(t, c.want, editDistance(c.a, c.b, c.limit), "%s %s", c.a, c.b)
		assert.Equal(t, c.want, editDistance(c.b, c.a, c.limit), "%s %s", c.b, c.a)
	}
	assert.Greater(t, editDistance("abcdef", "uvwxyz", 2), 2)
	assert.Greater(t, editDistance("abcdef", "a", 2), 2)
}
