package memnet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestAServerAsksItsClientAcrossTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		peer := w.broker.session(0).Peer
		ask := func() (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			_, err := peer.GetConsumerRunningInfo(ctx, &protocol.GetConsumerRunningInfoRequest{Group: "g"})
			return time.Since(start), err
		}
		took, err := ask()
		require.NoError(t, err)
		assert.Zero(t, took)
		assert.Equal(t, []string{"asked g"}, w.peer.told())

		w.Delay("*", "*", 2*time.Second)
		took, err = ask()
		require.NoError(t, err)
		assert.Equal(t, 4*time.Second, took)

		w.HealAll()
		w.Drop("*", "*")
		took, err = ask()
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, took)
		assert.Len(t, w.peer.told(), 2, "what is lost does not arrive")

		w.HealAll()
		require.NoError(t, w.conn.Close())
		_, err = ask()
		var answer *protocol.Error
		require.ErrorAs(t, err, &answer)
		assert.Equal(t, protocol.SystemError, answer.Code)
	})
}
