package rebalance

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

var errNoIdea = errors.New("no idea")

// shareFunc is a strategy out of a function.
type shareFunc func(self string, queues []message.Queue, members []string) ([]message.Queue, error)

func (shareFunc) Name() string { return "MINE" }
func (f shareFunc) Allocate(_, self string, queues []message.Queue, members []string) ([]message.Queue, error) {
	return f(self, queues, members)
}

func verify(t *testing.T, s Strategy, queues []message.Queue, members []string) *VerifyError {
	t.Helper()
	givenQueues, givenMembers := slices.Clone(queues), slices.Clone(members)
	err := Verify(s, "G", queues, members)
	assert.Equal(t, givenQueues, queues)
	assert.Equal(t, givenMembers, members)
	var found *VerifyError
	require.ErrorAs(t, err, &found)
	assert.Equal(t, "G", found.Group)
	assert.Equal(t, s.Name(), found.Strategy)
	return found
}

func TestVerifyPassesWhatFitsTogether(t *testing.T) {
	assert.NoError(t, Verify(AveragelyByCircle, "G", queuesOf(4, "a", "b"), membersOf(3)))
	assert.NoError(t, Verify(Averagely, "G", queuesOf(2, "a"), membersOf(9)))
	assert.ErrorIs(t, Verify(Averagely, "G", nil, membersOf(1)), ErrInvalidArguments)
	assert.ErrorIs(t, Verify(Averagely, "G", queuesOf(1, "a"), nil), ErrInvalidArguments)
}

func TestRB03_VerifyNamesWhatAnIDListedTwiceLeavesToNobody(t *testing.T) {
	q := queuesOf(6, "a")
	found := verify(t, Averagely, q, []string{"x", "x", "y"})
	assert.Equal(t, q[2:4], found.Gaps)
	assert.Empty(t, found.Overlaps)
}

func TestVerifyNamesEveryGapAndOverlap(t *testing.T) {
	q := queuesOf(4, "a")
	members := []string{"x", "y", "z"}
	found := verify(t, shareFunc(func(self string, queues []message.Queue, _ []string) ([]message.Queue, error) {
		return map[string][]message.Queue{"x": queues[:2:2], "y": {queues[1]}, "z": {queues[1], queues[1]}}[self], nil
	}), q, members)
	assert.Equal(t, q[2:], found.Gaps)
	assert.Equal(t, []Claim{{q[1], []string{"x", "y", "z", "z"}}}, found.Overlaps)
	assert.Empty(t, found.Foreign)
	assert.Empty(t, found.Failures)
	assert.EqualError(t, found, `rebalance: strategy MINE, group "G": gaps, queues that nobody gets: T@a:2, T@a:3; `+
		`overlaps, queues that more than one gets: T@a:1 (x y z z)`)
}

func TestVerifyNamesForeignQueuesAndFailures(t *testing.T) {
	q := queuesOf(3, "a")
	alien := message.Queue{Topic: "other", BrokerName: "a"}
	found := verify(t, shareFunc(func(self string, queues []message.Queue, members []string) ([]message.Queue, error) {
		switch self {
		case "x":
			return append(queues[:2:2], alien), nil
		case "y":
			return []message.Queue{alien}, errNoIdea
		}
		slices.Reverse(queues) // 2 is the first now
		slices.Reverse(members)
		return []message.Queue{queues[0], alien}, nil
	}), q, []string{"x", "y", "z"})
	assert.Empty(t, found.Gaps)
	assert.Empty(t, found.Overlaps)
	assert.Equal(t, []Claim{{alien, []string{"x", "z"}}}, found.Foreign)
	require.Len(t, found.Failures, 2)
	assert.ErrorIs(t, found, errNoIdea)
	assert.ErrorContains(t, found, "member y: no idea")
	assert.ErrorContains(t, found, "member z: Allocate changed its arguments")
	assert.ErrorContains(t, found, "not to be shared: other@a:0 (x z)")
}

// What strategies of ours leave out on purpose is found as well: it is the
// caller who knows whether it is meant.
func TestVerifyJudgesWhatAStrategyDoesNotWhatIsMeant(t *testing.T) {
	q := queuesOf(2, "r1@a", "r2@a")
	found := verify(t, MachineRoom("r1"), q, membersOf(3))
	assert.Equal(t, q[2:], found.Gaps)
	assert.Empty(t, found.Overlaps)

	found = verify(t, ByConfig(q[0]), q, []string{"x", "y"})
	assert.Equal(t, q[1:], found.Gaps)
	assert.Equal(t, []Claim{{q[0], []string{"x", "y"}}}, found.Overlaps)

	found = verify(t, ConsistentHash(-1), q, []string{"x"})
	assert.ErrorIs(t, found, ErrInvalidArguments)
}
