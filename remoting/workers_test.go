package remoting

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goroutine names the goroutine that calls it.
func goroutine() string {
	b := make([]byte, 64)
	return string(bytes.Fields(b[:runtime.Stack(b, false)])[1])
}

func TestRequestsOneAfterTheOtherHaveOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := make(map[string]int)
		p := newPair(t, &fakeBroker{maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			on[goroutine()]++
			return &protocol.GetMaxOffsetResponse{}, nil
		}}, nil)
		for range 10 {
			_, err := p.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
			require.NoError(t, err)
			synctest.Wait()
		}
		assert.Len(t, on, 1)
		p.close(t)
	})
}

func TestWorkersThatAreTooManyToWaitEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(2)
		c := newCalls(t.Context(), newLink(nil, idleLimit), w, 10, 10, nil)
		release := make(chan struct{})
		for range 5 {
			place := c.try()
			require.Equal(t, placeOwn, place)
			c.run(task{place: place, serve: func(context.Context) *Frame { <-release; return nil }})
		}
		close(release)
		c.wait()
		synctest.Wait()
		assert.Len(t, w.idle, 2)
		w.close()
		w.close() // once more: all have ended
	})
}

// TestCallsThatShareFramesDoNotMix: what is used again is nobody's any more.
func TestCallsThatShareFramesDoNotMix(t *testing.T) {
	p := newPair(t, &fakeBroker{
		send: func(_ context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			runtime.Gosched()
			if q.Topic == "refused" {
				return nil, protocol.Errorf(protocol.NoPermission, "%s", q.Body)
			}
			return &protocol.SendMessageResponse{MsgID: q.Topic + q.Properties + string(q.Body), QueueID: q.QueueID}, nil
		},
	}, nil)
	var callers sync.WaitGroup
	for caller := range 32 {
		callers.Go(func() {
			for i := range 100 {
				q := &protocol.SendMessageRequest{
					ProducerGroup: "P", Topic: fmt.Sprint("t", caller), Properties: fmt.Sprint("p", i), Body: fmt.Append(nil, "b", caller, i),
					QueueID: i, BornTime: time.UnixMilli(1), Oneway: i%10 == 9,
				}
				if i%7 == 0 {
					q.Topic = "refused"
				}
				r, err := p.conn.SendMessage(t.Context(), q)
				switch {
				case q.Oneway:
					assert.NoError(t, err)
				case q.Topic == "refused":
					assert.ErrorContains(t, err, string(q.Body))
				case assert.NoError(t, err):
					assert.Equal(t, &protocol.SendMessageResponse{MsgID: q.Topic + q.Properties + string(q.Body), QueueID: i}, r)
				}
			}
		})
	}
	callers.Wait()
	p.close(t)
}

func TestAFrameThatIsUsedAgainIsEmpty(t *testing.T) {
	var p framePool
	f := &Frame{Code: 1, Opaque: 2, Flag: FlagOneway, Remark: "r", Body: []byte("b"), Serialize: Binary, Ext: Fields{{"a", "b"}}, parts: [][]byte{{1}}}
	ext := f.Ext
	p.put(f)
	assert.Equal(t, &Frame{Ext: Fields{}}, f)
	assert.Equal(t, Fields{{}}, ext, "its texts are let go")
	var none *framePool
	none.put(f)
	assert.Equal(t, &Frame{}, none.get())
}

// later is a context that says what it is made of, as those of sends do.
type later struct {
	context.Context
	at time.Time
}

func (c later) Deadline() (time.Time, bool) { return c.at, true }
func (c later) Parent() context.Context     { return c.Context }
func (c later) Done() <-chan struct{}       { panic("a timer is cheaper") }

func TestACallWithADeadlineOnItsParentEndsWithEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{maximum: func(ctx context.Context, _ *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, nil)
		begin := time.Now()
		for range 2 { // the second with the timer of the first
			_, err := p.conn.GetMaxOffset(later{t.Context(), time.Now().Add(time.Second)}, &protocol.GetMaxOffsetRequest{Topic: "T"})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, protocol.ErrUnknownOutcome)
		}
		assert.Equal(t, 2*time.Second, time.Since(begin))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := p.conn.GetMaxOffset(later{ctx, time.Now().Add(time.Hour)}, &protocol.GetMaxOffsetRequest{Topic: "T"})
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 3*time.Second, time.Since(begin))
		p.close(t)
	})
}
