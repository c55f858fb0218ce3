package remoting

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/groups"
	"github.com/pocketmq/pocketmq/protocol"
)

// What has become of a body is many times its size, and is held for as long as its
// handler waits.
func TestBodiesThatWaitInHandlersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 8 << 20
		var running, served atomic.Int64
		release := make(chan struct{})
		lis, raw := limited(t, &fakeBroker{beat: func(_ context.Context, q *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
			running.Add(1)
			defer running.Add(-1)
			<-release
			served.Add(1)
			runtime.KeepAlive(q)
			return &protocol.HeartbeatResponse{}, nil
		}}, func(l *limits) { l.made = most })
		live := func() int64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		large := &Frame{Code: int32(protocol.CodeHeartbeat), Body: []byte(`{"clientID":"x","consumerDataSet":[{"groupName":"Z","subscriptionDataSet":[` + strings.Repeat("{},", 5_000) + `]}]}`)}
		before := live()
		const clients, each = 8, 3
		var conns []net.Conn
		for range clients {
			conn := raw()
			conns = append(conns, conn)
			write(t, conn, manyOf(large, each)...)
		}
		synctest.Wait()
		assert.LessOrEqual(t, running.Load(), int64(most/(10_000*madeValue)))
		assert.NotZero(t, running.Load())
		assert.Less(t, live()-before, int64(most+clients*each*3*len(large.Body)))

		small := raw() // it needs no room of others
		n := running.Load()
		write(t, small, &Frame{Code: int32(protocol.CodeHeartbeat), Body: []byte(`{"clientID":"x","consumerDataSet":[{"groupName":"g"}]}`)})
		synctest.Wait()
		assert.Equal(t, n+1, running.Load())
		close(release)
		for _, conn := range conns {
			for range each {
				f, err := Read(conn)
				require.NoError(t, err)
				require.EqualValues(t, protocol.Success, f.Code, f.Remark)
			}
			require.NoError(t, conn.Close())
		}
		_, err := Read(small)
		require.NoError(t, err)
		synctest.Wait()
		assert.EqualValues(t, clients*each+1, served.Load())
		require.True(t, lis.bodies.made.TryAcquire(most), "all is given back")
		lis.bodies.made.Release(most)
		require.NoError(t, errors.Join(small.Close(), lis.Close()))
	})
}

func TestWhatABodyBecomesIsNoMoreThanIsCounted(t *testing.T) {
	for name, body := range map[string]string{
		"topics":  `{"consumerDataSet":[{"subscriptionDataSet":[` + strings.Repeat(`{},`, 20_000) + `]}]}`,
		"groups":  `{"consumerDataSet":[` + strings.Repeat(`{},`, 20_000) + `]}`,
		"numbers": `{"consumerDataSet":[` + strings.Repeat(`1,`, 30_000) + `]}`,
		"names":   `{"producerDataSet":[` + strings.Repeat(`{"groupName":"p"},`, 20_000) + `]}`,
		"tags":    `{"consumerDataSet":[{"subscriptionDataSet":[{"topic":"t","tagsSet":[` + strings.Repeat(`1,`, 30_000) + `]}]}]}`,
		"text":    `{"clientID":"` + strings.Repeat("x", 100_000) + `"}`,
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		q, err := heartbeat().decodeRequest(&Frame{Body: []byte(body)})
		require.NoError(t, err, name)
		runtime.GC()
		runtime.ReadMemStats(&after)
		assert.LessOrEqual(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), madeOf(bodyText, []byte(body))+smallMade, name)
		runtime.KeepAlive(q)
	}
	assert.EqualValues(t, mostMade, madeOf(bodyTable, []byte{0x78, 0x9c}), "compressed")
	assert.EqualValues(t, mostMade, madeOf(bodyTable, []byte(strings.Repeat("[", 1<<20))))
}

func TestTheBoundsOfGroupsAreCounted(t *testing.T) {
	assert.EqualValues(t, groups.OwnBytes, registeredOwn)
	assert.EqualValues(t, groups.SharedBytes, registeredShared)
}
