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

// goldenFile is what RocketMQ's Java strategies answered, and where the Go
// client answers otherwise.
type goldenFile struct {
	Allocations []goldenAllocation
	Checks      []struct {
		Strategy, What, CurrentCID string
		Queues, Consumers          []string
		Result                     goldenResult
	}
	Ring []struct {
		Kind, Key, Node, Queue, Topic string
		ReplicaIndex                  int
		Hash                          uint32
	}
	QueueSort []struct{ Input, Sorted []goldenQueue } `json:"queue_sort"`
	Compare   []struct {
		A, B      goldenQueue
		CompareTo int
	}
	ConsumerSort  []struct{ Input, Sorted []string } `json:"consumer_sort"`
	GoDifferences []struct {
		Section, Strategy, What string
		Queues, Consumers       []string
		Go, Java                map[string]goldenResult
	} `json:"go_differences"`
}

type goldenAllocation struct {
	Strategy, Name, Inner string
	Config, ConsumerIDCs  []string
	VirtualNodeCnt        int
	Queues, Consumers     []string
	Result                map[string][]string
}

// goldenResult is a list of queues, nothing, or an error.
type goldenResult struct {
	queues []string
	err    string
}

func (r *goldenResult) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '{' {
		var failed struct{ Error, Panic string }
		err := json.Unmarshal(text, &failed)
		r.err = failed.Error + failed.Panic
		return err
	}
	return json.Unmarshal(text, &r.queues)
}

// goldenQueue is a list of topic, broker name and id.
type goldenQueue message.Queue

func (q *goldenQueue) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&q.Topic, &q.BrokerName, &q.QueueID})
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

// dashRooms is the resolver of the golden rows: the text before the first "-".
type dashRooms struct{}

func (dashRooms) BrokerRoom(q message.Queue) string { return dashRooms{}.ConsumerRoom(q.BrokerName) }
func (dashRooms) ConsumerRoom(name string) string {
	room, _, _ := strings.Cut(name, "-")
	return room
}

// goldenStrategy makes the strategy that a row was made with.
func goldenStrategy(t *testing.T, row goldenAllocation) Strategy {
	t.Helper()
	switch row.Strategy {
	case "AVG":
		return Averagely
	case "AVG_BY_CIRCLE":
		return AveragelyByCircle
	case "CONFIG":
		return ByConfig(goldenQueues(t, row.Config)...)
	case "MACHINE_ROOM":
		return MachineRoom(row.ConsumerIDCs...)
	case "MACHINE_ROOM_NEARBY":
		return MachineRoomNearby(goldenStrategy(t, goldenAllocation{Strategy: row.Inner, VirtualNodeCnt: DefaultVirtualNodes}), dashRooms{})
	case "CONSISTENT_HASH":
		return ConsistentHash(row.VirtualNodeCnt)
	}
	require.Fail(t, "unknown strategy", row.Strategy)
	return nil
}

// goldenCheckStrategy makes the strategy of a row of checks.
func goldenCheckStrategy(t *testing.T, strategy, what string) Strategy {
	t.Helper()
	switch {
	case strategy == "MACHINE_ROOM_NEARBY(AVG)":
		return MachineRoomNearby(Averagely, dashRooms{})
	case strategy == "CONFIG":
		return ByConfig(goldenQueues(t, []string{"broker-a:0", "broker-a:1"})...)
	case strategy == "MACHINE_ROOM":
		return MachineRoom("room1")
	case strings.HasPrefix(what, "virtualNodeCnt "):
		n, err := strconv.Atoi(strings.TrimPrefix(what, "virtualNodeCnt "))
		require.NoError(t, err)
		return ConsistentHash(n)
	}
	return goldenStrategy(t, goldenAllocation{Strategy: strategy, VirtualNodeCnt: DefaultVirtualNodes})
}

// same tells whether an answer is the golden one, with its order.
func (r goldenResult) same(t *testing.T, got []message.Queue, err error) bool {
	t.Helper()
	if r.err != "" {
		return err != nil && len(got) == 0
	}
	return err == nil && slices.Equal(goldenQueues(t, r.queues), got)
}

// Every row of allocate.json, with the numbers passed and skipped at the end.
func TestGoldenRowsOfAllocate(t *testing.T) {
	raw, err := os.ReadFile("testdata/allocate.json")
	require.NoError(t, err)
	var file goldenFile
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	require.NoError(t, dec.Decode(&file))
	var sections map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &sections))
	assert.ElementsMatch(t, []string{
		"reference", "notes", "allocations", "checks", "ring", "queue_sort", "compare", "consumer_sort", "go_differences", "go_summary",
	}, slices.Collect(maps.Keys(sections)), "every section is run here, but for the texts")

	var table []string
	section := func(name string, rows int, run func(t *testing.T, i int) bool) {
		passed := 0
		t.Run(name, func(t *testing.T) {
			for i := range rows {
				if assert.True(t, run(t, i), "row %d", i) {
					passed++
				}
			}
		})
		table = append(table, fmt.Sprintf("%-30s %3d passed, %d failed, 0 skipped", "allocate.json "+name, passed, rows-passed))
	}
	section("allocations", len(file.Allocations), func(t *testing.T, i int) bool {
		row := file.Allocations[i]
		s := goldenStrategy(t, row)
		ok := assert.Equal(t, row.Name, s.Name())
		for self, want := range row.Result {
			got, err := s.Allocate("GroupA", self, goldenQueues(t, row.Queues), row.Consumers)
			ok = assert.NoError(t, err) && ok
			ok = assert.Truef(t, goldenResult{queues: want}.same(t, got, err), "row %d, %s: want %v, got %v", i, self, want, got) && ok
		}
		return ok
	})
	section("checks", len(file.Checks), func(t *testing.T, i int) bool {
		row := file.Checks[i]
		queues, members := goldenQueues(t, row.Queues), row.Consumers
		if strings.HasPrefix(row.What, "virtualNodeCnt ") { // refused when it is made, by us when it is used
			queues, members, row.CurrentCID = queuesOf(1, "a"), []string{"c"}, "c"
		}
		got, err := goldenCheckStrategy(t, row.Strategy, row.What).Allocate("GroupA", row.CurrentCID, queues, members)
		if row.Result.err != "" {
			return assert.ErrorIs(t, err, ErrInvalidArguments, row.What) && assert.Empty(t, got)
		}
		return assert.NoError(t, err, row.What) && assert.Truef(t, row.Result.same(t, got, err), "%s %s", row.Strategy, row.What)
	})
	section("ring", len(file.Ring), func(t *testing.T, i int) bool {
		row := file.Ring[i]
		if row.Kind == "queue" {
			at := strings.LastIndexByte(row.Queue, ':')
			id, err := strconv.Atoi(row.Queue[at+1:])
			require.NoError(t, err)
			key := appendQueueKey(nil, message.Queue{Topic: row.Topic, BrokerName: row.Queue[:at], QueueID: id})
			return assert.Equal(t, row.Key, string(key)) && assert.Equal(t, row.Hash, hashOf(key))
		}
		r := newRing([]string{row.Node}, row.ReplicaIndex+1)
		_, found := slices.BinarySearch(r.hashes, row.Hash)
		return assert.True(t, found, row.Key) && assert.Equal(t, row.Hash, hashOf([]byte(row.Key)))
	})
	section("queue_sort", len(file.QueueSort), func(t *testing.T, i int) bool {
		got := slices.Clone(file.QueueSort[i].Input)
		slices.SortFunc(got, func(a, b goldenQueue) int { return message.Queue(a).Compare(message.Queue(b)) })
		return assert.Equal(t, file.QueueSort[i].Sorted, got)
	})
	section("compare", len(file.Compare), func(t *testing.T, i int) bool {
		row := file.Compare[i]
		return assert.Equal(t, min(max(row.CompareTo, -1), 1), message.Queue(row.A).Compare(message.Queue(row.B)))
	})
	section("consumer_sort", len(file.ConsumerSort), func(t *testing.T, i int) bool {
		got := slices.Clone(file.ConsumerSort[i].Input)
		SortMembers(got)
		return assert.Equal(t, file.ConsumerSort[i].Sorted, got)
	})
	// The settings of such a row are not in it: those of some allocation row
	// give Java's answer. All of them differ from what the Go client answers.
	section("go_differences", len(file.GoDifferences), func(t *testing.T, i int) bool {
		row := file.GoDifferences[i]
		if row.Section == "checks" {
			for _, c := range file.Checks {
				if c.Strategy != row.Strategy || c.What != row.What {
					continue
				}
				got, err := goldenCheckStrategy(t, c.Strategy, c.What).Allocate("GroupA", c.CurrentCID, goldenQueues(t, c.Queues), c.Consumers)
				java, theirs := row.Java[c.CurrentCID], row.Go[c.CurrentCID]
				differs := java.err == "" || !theirs.same(t, got, err) // an empty list where they have none is no difference to us
				return assert.True(t, java.same(t, got, err)) && assert.True(t, differs)
			}
			return false
		}
		return slices.ContainsFunc(file.Allocations, func(a goldenAllocation) bool {
			if a.Strategy != row.Strategy {
				return false
			}
			for self, java := range row.Java {
				got, err := goldenStrategy(t, a).Allocate("GroupA", self, goldenQueues(t, row.Queues), row.Consumers)
				if !java.same(t, got, err) || row.Go[self].same(t, got, err) {
					return false
				}
			}
			return len(row.Java) > 0
		})
	})
	t.Log("rows\n" + strings.Join(table, "\n"))
}
