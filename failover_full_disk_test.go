package pocketmq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// cannotJoin starts members of a group on full disks, and expects that they serve as
// nobody whom answers or elections could rest on.
func cannotJoin(t *testing.T, c *pocketmq.Cluster, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		require.NoError(t, c.FullDisk("broker-a", id, true))
		require.NoError(t, c.Kill("broker-a", id))
	}
	for _, id := range ids {
		require.NoError(t, c.Restart(t.Context(), "broker-a", id))
	}
	time.Sleep(20 * time.Second)
	for _, id := range ids {
		st := c.Broker("broker-a", id).Status()
		assert.False(t, st.Writable)
		assert.Contains(t, st.Reason, "takes no part in elections until it can store its state")
		assert.Contains(t, st.Reason, "no space left on device")
		assert.NotEqual(t, pocketmq.RoleMaster, st.Role)
		assert.False(t, st.Master.Connected)
		if m := masterOf(c); m >= 0 {
			assert.False(t, inSyncAt(c, m, id))
		}
	}
}

func TestAMemberThatStartsOnAFullDiskJoinsOnceThereIsSpace(t *testing.T) {
	for name, id := range map[string]int64{"a slave": 2, "the former master": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events eventLog
				c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, OnEvent: events.add})
				inSync(t, c, 2)
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: time.Minute, Retries: 100})
				replicated(t, p, 0, 3)
				cannotJoin(t, c, id)
				assert.Len(t, eventsOf[pocketmq.StoreFenced](&events), 1)
				replicated(t, p, 3, 3)
				inSync(t, c, 1)
				require.ErrorIs(t, c.Elect(t.Context(), "broker-a", id), pocketmq.ErrUnreachable)

				require.NoError(t, c.FullDisk("broker-a", id, false))
				inSync(t, c, 2)
				replicated(t, p, 6, 3)
				assert.Equal(t, counted(9), logsAgree(t, c, 30*time.Second))
				require.NoError(t, c.Elect(t.Context(), "broker-a", id))
				replicated(t, p, 9, 1)
			})
		})
	}
}

func TestAGroupWhoseMembersAllStartOnFullDisksElectsOnceThereIsSpace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		inSync(t, c, 2)
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: time.Minute, Retries: 100})
		replicated(t, p, 0, 3)
		cannotJoin(t, c, 0, 1, 2)
		assert.Equal(t, int64(-1), masterOf(c))
		_, err := producer(t, c, oneTry).Send(t.Context(), text("T", "x"))
		require.Error(t, err)
		for id := range int64(3) {
			require.NoError(t, c.FullDisk("broker-a", id, false))
		}
		inSync(t, c, 2)
		replicated(t, p, 3, 3)
		assert.Equal(t, counted(6), logsAgree(t, c, 30*time.Second))
	})
}
