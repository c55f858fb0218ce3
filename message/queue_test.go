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

func TestQueuePrintsTopicBrokerAndID(t *testing.T) {
	assert.Equal(t, "orders@broker-a:3", Queue{"orders", "broker-a", 3}.String())
}
