package ha

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// registeredAfter is what a controller that knows life 1 of replica 1 thinks of it after
// more lives, of which it hears only now.
func registeredAfter(t *testing.T, lives int64, lossIn int64) ReplicaEntry {
	t.Helper()
	c, err := NewController(start, ControllerConfig{}, &ControllerState{
		Epoch: 1, MasterEpoch: 1, Master: 0, Pending: NoReplica, Set: []int64{0, 1}, SetEpoch: 2,
		Replicas: []ReplicaEntry{{ID: 0, Incarnation: 1 << 40}, {ID: 1, Incarnation: 1}},
	})
	require.NoError(t, err)
	state := NextLife(nil, 1, true)
	for life := range lives {
		state = NextLife(&state, life+2, life != lossIn)
	}
	m := NewReplica(start, ReplicaConfig{ID: 1}, state, 0, 0).registration()
	_, err = AppendMessage(nil, m)
	require.NoError(t, err)
	c.Step(start, m)
	return *c.entry(1)
}

// Each life without the controller is remembered or counted: however many there are, they
// go on from the one that it knows.
func TestManyLivesWithoutAControllerLeaveAReplicaClean(t *testing.T) {
	for _, lives := range []int64{1, maxBefore - 1, maxBefore, maxBefore + 1, 10 * maxBefore} {
		e := registeredAfter(t, lives, -1)
		assert.False(t, e.Unclean, "%d lives", lives)
		assert.Equal(t, lives+1, e.Incarnation)
		assert.Contains(t, e.Former, int64(1))
		assert.True(t, registeredAfter(t, lives, lives/2).Unclean, "it has lost something in one of %d lives", lives)
	}
}
