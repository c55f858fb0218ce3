package message

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQueuesSortByTopicBrokerAndNumericID(t *testing.T) {
	want := []Queue{
		{"orders", "broker-a", 2}, {"orders", "broker-a", 10},
		{"orders", "broker-b", 0}, {"payments", "broker-a", 0},
	}
	got := []Queue{want[3], want[1], want[2], want[0]}
	slices.SortFunc(got, Queue.Compare)
	assert.Equal(t, want, got)
	assert.Zero(t, want[0].Compare(want[0]))
}

// Java's strings are UTF-16: U+1F600 is a pair of surrogates, below U+FF5E.
func TestQueuesOfAnyNamesSortAsInJava(t *testing.T) {
	want := []Queue{
		{"T", "a", 0}, {"T", "z", 0}, {"T", "\u00e9", 0}, {"T", "\ud7ff", 0}, {"T", "\U0001f600", 0}, {"T", "\uff5e", 0},
		{"T2", "a", 0}, {"\U0001f600", "a", 0}, {"\uff5e", "a", 0},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Queue.Compare)
	assert.Equal(t, want, got)
	assert.Negative(t, Queue{QueueID: -1}.Compare(Queue{}))
	assert.Negative(t, Queue{}.Compare(Queue{QueueID: 1<<31 - 1}))
}

func TestQueuePrintsTopicBrokerAndID(t *testing.T) {
	assert.Equal(t, "orders@broker-a:3", Queue{"orders", "broker-a", 3}.String())
}
