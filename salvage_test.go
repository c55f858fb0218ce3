package pocketmq_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/store"
)

// holding finds the log file that holds a text.
func holding(t testing.TB, dir, text string) string {
	t.Helper()
	for _, f := range logFiles(t, dir) {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		if bytes.Contains(data, []byte(text)) {
			return f
		}
	}
	t.Fatalf("%q is in no file", text)
	return ""
}

func TestConsumersWalkOverWhatASalvagedBrokerHasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Dir: t.TempDir(), Topics: map[string]int{"T": 1},
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{CommitLogFileSize: 4 << 10}}},
		})
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 300, 0)
		var early inbox
		first := consumer(t, c, pocketmq.ConsumerConfig{Group: "old", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: early.handler("c")})
		synctest.Wait()
		require.Len(t, early.arrivals(), 300)
		require.NoError(t, first.Shutdown(t.Context()))
		time.Sleep(2 * pocketmq.DefaultTimings().OffsetPersist) // the broker keeps what the group has committed
		sendNumbered(t, p, 300, 99, 300)
		time.Sleep(2 * pocketmq.DefaultTimings().FlushInterval)
		sendNumbered(t, p, 399, 1, 399) // it says that all before it had been synced
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))

		dir := c.Broker("broker-a", 0).Dir()
		flip(t, dir, "message 100")
		flip(t, dir, "message 310")
		gone := holding(t, dir, "message 200")
		require.NoError(t, os.RemoveAll(filepath.Dir(gone)))

		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		st := c.Broker("broker-a", 0).Status()
		require.False(t, st.Writable)
		require.NoError(t, c.Kill("broker-a", 0))
		plan, err := store.PlanSalvage(t.Context(), dir)
		require.NoError(t, err)
		_, err = plan.Apply(t.Context())
		require.NoError(t, err)

		// The log held nothing but the messages: message n lay at position n + 1.
		var want, behind []string
		lost := make(map[int64]bool)
		for _, r := range plan.Lost {
			for at := r.First; at <= r.Last; at++ {
				lost[at-1] = true
			}
		}
		require.Greater(t, len(lost), 10)
		for n := range int64(400) {
			if lost[n] {
				continue
			}
			want = append(want, fmt.Sprintf("message %03d", n))
			if n >= 300 {
				behind = append(behind, fmt.Sprintf("message %03d", n))
			}
		}

		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		b := c.Broker("broker-a", 0)
		require.True(t, b.Status().Writable)
		require.NoError(t, b.Check(t.Context()))
		var late, anew inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "old", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: late.handler("c")})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "new", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: anew.handler("c")})
		time.Sleep(2 * time.Minute) // routes, rebalance
		assert.Equal(t, want, anew.bodies(), "from the first one on")
		assert.Equal(t, behind, late.bodies(), "from where the group was")
		for _, a := range anew.arrivals() {
			assert.Equal(t, fmt.Sprintf("message %03d", a.msg.QueueOffset), string(a.msg.Body), "offsets stay")
		}

		sendNumbered(t, p, 400, 10, 400)
		time.Sleep(time.Minute)
		assert.Len(t, anew.arrivals(), len(want)+10)
		for _, group := range []string{"old", "new"} {
			g, ok := b.Group(group)
			require.True(t, ok)
			require.Len(t, g.Queues, 1)
			assert.Zero(t, g.Queues[0].Lag, group)
		}
		check(t, c)
	})
}
