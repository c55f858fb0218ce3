package remoting

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a client does not take of its answers bounds what is served for it.
func TestAClientThatTakesNoAnswersIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asked, most = 10_000, 4000
		var served atomic.Int64
		lis, raw := limited(t, &fakeBroker{maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			served.Add(1)
			return &protocol.GetMaxOffsetResponse{}, nil
		}}, func(*limits) {})
		conn := raw()
		write(t, conn, manyOf(getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"}), asked)...)
		synctest.Wait()
		assert.Positive(t, served.Load())
		assert.Less(t, served.Load(), int64(most), "answers of maxPending bytes, twice, and those that are served")
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
	})
}
