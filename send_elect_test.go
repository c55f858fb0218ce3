package pocketmq_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// Who has sent before goes on at the new master when Elect has returned, whatever the
// moment.
func TestASendRightAfterElectGoesToTheNewMaster(t *testing.T) {
	for i := range 12 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
				_, err := p.Send(t.Context(), text("T", "before"))
				require.NoError(t, err)
				time.Sleep(time.Duration(3000+i*37) * time.Millisecond)
				require.NoError(t, c.Elect(t.Context(), "broker-a", int64(1+i%2)))
				elected := time.Now()
				_, err = p.Send(t.Context(), text("T", "after"))
				require.NoError(t, err)
				assert.Less(t, time.Since(elected), 200*time.Millisecond)
				assert.Zero(t, p.Status().Retried)
			})
		})
	}
}

// A group whose master is gone has none for a while: sends wait for the next one as
// long as they may, and those to other groups do not notice.
func TestASendWaitsForAMasterAsLongAsItMay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Groups: append(trio(), pocketmq.BrokerGroup{Name: "broker-b"}), Topics: map[string]int{"T": 1},
		})
		p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries, SendTimeout: 15 * time.Second})
		time.Sleep(time.Second)
		require.NoError(t, c.Kill("broker-a", 0))
		killed := time.Now()
		to := func(name string, limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := p.SendTo(ctx, pocketmq.MessageQueue{Topic: "T", BrokerName: name}, text("T", "x"))
			return err
		}
		for range 20 {
			_, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
		}
		require.NoError(t, to("broker-b", time.Second))
		assert.Less(t, time.Since(killed), 10*time.Millisecond, "nobody waited")

		began := time.Now()
		err := to("broker-a", 2*time.Second)
		require.ErrorIs(t, err, pocketmq.ErrTimeout)
		assert.Equal(t, 2*time.Second, time.Since(began))
		t.Log(err)

		require.NoError(t, to("broker-a", 15*time.Second))
		assert.LessOrEqual(t, time.Since(killed), 9*time.Second)
	})
}
