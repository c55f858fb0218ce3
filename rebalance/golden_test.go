package rebalance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// tally counts a section's rows and prints them at the end.
type tally struct {
	t       *testing.T
	section string
	passed  int
	skipped map[string]int // reason -> rows
}

func newTally(t *testing.T, section string) *tally {
	c := &tally{t: t, section: section, skipped: make(map[string]int)}
	t.Cleanup(func() {
		line := fmt.Sprintf("%s: %d passed", c.section, c.passed)
		for _, reason := range slices.Sorted(maps.Keys(c.skipped)) {
			line += fmt.Sprintf(", %d skipped (%s)", c.skipped[reason], reason)
		}
		t.Log(line)
	})
	return c
}

func (c *tally) pass()              { c.passed++ }
func (c *tally) skip(reason string) { c.skipped[reason]++ }

func golden(t *testing.T, section string, rows any) {
	t.Helper()
	raw, err := os.ReadFile("testdata/allocate.json")
	require.NoError(t, err)
	var file map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &file))
	require.NoError(t, json.Unmarshal(file[section], rows))
}

func goldenQueues(t *testing.T, texts []string) []message.Queue {
	t.Helper()
	queues := make([]message.Queue, 0, len(texts))
	for _, text := range texts {
		at := strings.LastIndexByte(text, ':')
		id, err := strconv.Atoi(text[at+1:])
		require.NoError(t, err)
		queues = append(queues, message.Queue{Topic: "TopicTest", BrokerName: text[:at], QueueID: id})
	}
	return queues
}

func TestGoldenAllocations(t *testing.T) {
	var rows []struct {
		Strategy, Name    string
		Queues, Consumers []string
		Result            map[string][]string
	}
	golden(t, "allocations", &rows)
	tallies := newTally(t, "allocations")
	for i, row := range rows {
		if row.Strategy != "AVG" {
			tallies.skip("strategy " + row.Strategy + " is not part of this package")
			continue
		}
		assert.Equal(t, row.Name, Averagely.Name())
		for self, want := range row.Result {
			got, err := Averagely.Allocate("GroupA", self, goldenQueues(t, row.Queues), row.Consumers)
			require.NoError(t, err)
			assert.ElementsMatch(t, goldenQueues(t, want), got, "row %d, %s", i, self)
			assert.True(t, slices.Equal(goldenQueues(t, want), got), "row %d, %s: order", i, self)
		}
		tallies.pass()
	}
}

func TestGoldenChecks(t *testing.T) {
	var rows []struct {
		Strategy, What    string
		CurrentCID        string
		Queues, Consumers []string
		Result            json.RawMessage
	}
	golden(t, "checks", &rows)
	tallies := newTally(t, "checks")
	for _, row := range rows {
		if row.Strategy != "AVG" {
			tallies.skip("strategy " + row.Strategy + " is not part of this package")
			continue
		}
		got, err := Averagely.Allocate("GroupA", row.CurrentCID, goldenQueues(t, row.Queues), row.Consumers)
		var want []string
		if json.Unmarshal(row.Result, &want) == nil {
			require.NoError(t, err, row.What)
			assert.Equal(t, len(want), len(got), row.What)
		} else {
			assert.ErrorIs(t, err, ErrInvalidArguments, row.What)
		}
		tallies.pass()
	}
}

type goldenQueue [3]any // topic, broker name, id

func (q goldenQueue) queue() message.Queue {
	return message.Queue{Topic: q[0].(string), BrokerName: q[1].(string), QueueID: int(q[2].(float64))}
}

func (q goldenQueue) ascii() bool {
	for _, r := range q[0].(string) + q[1].(string) {
		if r > 127 {
			return false
		}
	}
	return true
}

func TestGoldenQueueOrder(t *testing.T) {
	t.Run("queue_sort", func(t *testing.T) {
		var rows []struct{ Input, Sorted []goldenQueue }
		golden(t, "queue_sort", &rows)
		tallies := newTally(t, "queue_sort")
		for i, row := range rows {
			if slices.ContainsFunc(row.Input, func(q goldenQueue) bool { return !q.ascii() }) {
				tallies.skip("names of topics and brokers are ASCII")
				continue
			}
			var got, want []message.Queue
			for j := range row.Input {
				got, want = append(got, row.Input[j].queue()), append(want, row.Sorted[j].queue())
			}
			slices.SortFunc(got, message.Queue.Compare)
			assert.Equal(t, want, got, "row %d", i)
			tallies.pass()
		}
	})
	t.Run("compare", func(t *testing.T) {
		var rows []struct {
			A, B      goldenQueue
			CompareTo int
		}
		golden(t, "compare", &rows)
		tallies := newTally(t, "compare")
		sign := func(n int) int { return min(max(n, -1), 1) }
		for i, row := range rows {
			if row.A.queue().QueueID-row.B.queue().QueueID > 1<<31-1 {
				tallies.skip("the reference's subtraction of ids overflows; ids are not negative")
				continue
			}
			assert.Equal(t, sign(row.CompareTo), sign(row.A.queue().Compare(row.B.queue())), "row %d", i)
			tallies.pass()
		}
	})
}

func TestGoldenMemberOrder(t *testing.T) {
	var rows []struct{ Input, Sorted []string }
	golden(t, "consumer_sort", &rows)
	tallies := newTally(t, "consumer_sort")
	for i, row := range rows {
		SortMembers(row.Input)
		assert.Equal(t, row.Sorted, row.Input, "row %d", i)
		tallies.pass()
	}
}

// The other sections belong to strategies that this package does not have, or
// describe the Go client.
func TestGoldenSectionsAreAllAccountedFor(t *testing.T) {
	raw, err := os.ReadFile("testdata/allocate.json")
	require.NoError(t, err)
	var file map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &file))
	assert.ElementsMatch(t, []string{
		"reference", "notes", "allocations", "checks", "queue_sort", "compare", "consumer_sort",
		"ring",                         // CONSISTENT_HASH
		"go_summary", "go_differences", // the official Go client's deviations
	}, slices.Collect(maps.Keys(file)))
}
