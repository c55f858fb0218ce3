package consume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

// endless is a broker whose queues have as many messages as are let go.
type endless struct {
	protocol.BrokerConn
	*fakeClient
	queues int
	limit  int64 // per queue
	batch  []byte
	cuts   []int // where each record of batch begins, and its end
}

func newEndless(b *testing.B, queues, size int) *endless {
	s := &endless{fakeClient: newWorld(nil).client("c1"), queues: queues, limit: int64(b.N/queues + 1)}
	for i := range int64(32) {
		s.cuts = append(s.cuts, len(s.batch))
		s.batch = append(s.batch, storedRecord(b, queueOf("a", 0), i, "tag", strings.Repeat("x", size))...)
	}
	s.cuts = append(s.cuts, len(s.batch))
	return s
}

func (s *endless) Route(context.Context, string) (*client.Route, error) { return s.Cached(""), nil }
func (s *endless) Cached(string) *client.Route {
	r := &client.Route{Topic: testTopic}
	r.TopicRoute.Brokers = []protocol.BrokerData{{BrokerName: "a"}}
	for i := range s.queues {
		r.Subscribe = append(r.Subscribe, queueOf("a", i))
	}
	return r
}
func (s *endless) MasterAddr(string) (string, bool)                            { return "a", true }
func (s *endless) Broker(context.Context, string) (protocol.BrokerConn, error) { return s, nil }
func (s *endless) Current(string, protocol.BrokerConn) bool                    { return true }
func (s *endless) HeartbeatAll(context.Context) error                          { return nil }
func (s *endless) HeartbeatTo(context.Context, string) error                   { return nil }
func (s *endless) Unregister(context.Context, string, string)                  {}

func (s *endless) GetConsumerList(context.Context, *protocol.GetConsumerListRequest) (*protocol.GetConsumerListResponse, error) {
	return &protocol.GetConsumerListResponse{ClientIDs: []string{"c1"}}, nil
}

func (s *endless) QueryConsumerOffset(context.Context, *protocol.QueryConsumerOffsetRequest) (*protocol.QueryConsumerOffsetResponse, error) {
	return &protocol.QueryConsumerOffsetResponse{}, nil
}

func (s *endless) UpdateConsumerOffset(context.Context, *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
	return &protocol.UpdateConsumerOffsetResponse{}, nil
}

func (s *endless) PullMessage(ctx context.Context, r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	n := min(int64(r.MaxMessages), 32, s.limit-r.Offset)
	if n == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	batch := slices.Clone(s.batch[:s.cuts[n]])
	resp := &protocol.PullMessageResponse{Code: protocol.Success, NextBeginOffset: r.Offset + n, Records: make([][]byte, n)}
	for i := range n {
		resp.Records[i] = batch[s.cuts[i]:s.cuts[i+1]]
		message.PatchRecord(resp.Records[i], r.Offset+i, r.Offset+i, 0)
	}
	return resp, nil
}

// BenchmarkConsume measures a message's way from a pull to its acknowledgement:
// copy, put, claim, decode, a trivial handler, acknowledge.
func BenchmarkConsume(b *testing.B) {
	for _, queues := range []int{1, 8} {
		for _, size := range []int{128, 1024} {
			b.Run(fmt.Sprintf("queues=%d/body=%d", queues, size), func(b *testing.B) { benchConsume(b, queues, size, 1) })
		}
	}
	b.Run("queues=8/body=128/batch=32", func(b *testing.B) { benchConsume(b, 8, 128, 32) })
}

func benchConsume(b *testing.B, queues, size, batch int) {
	b.ReportAllocs()
	s := newEndless(b, queues, size)
	var got atomic.Int64
	want := s.limit * int64(queues)
	done := make(chan struct{})
	w := newWorld(nil)
	e, _ := w.member("c1", nil, func(c *Config) {
		c.Client = s
		c.Subscriptions = map[string]filter.Tags{testTopic: {}}
		c.Strategy = rebalance.Averagely
		c.BatchSize = batch
		c.PullSuspend = time.Hour
		c.Handler = func(_ context.Context, msgs []*message.Ext) error {
			if got.Add(int64(len(msgs))) == want {
				close(done)
			}
			return nil
		}
	})
	b.ResetTimer()
	require.NoError(b, e.Start(b.Context()))
	<-done
	b.StopTimer()
	b.ReportMetric(float64(want)/b.Elapsed().Seconds(), "msgs/s")
	require.NoError(b, e.Close())
}

// BenchmarkProcessQueue measures put, take and ack alone, in batches of 32.
func BenchmarkProcessQueue(b *testing.B) {
	b.ReportAllocs()
	p := newProcessQueue(0)
	data := make([]byte, 200)
	records := make([]record, 32)
	var got []taken
	for i := 0; i < b.N; i += len(records) {
		for j := range records {
			records[j] = record{p.end + int64(j), data}
		}
		p.put(records, p.end+32)
		for p.ready() > 0 {
			got = p.take(got[:0], 1, 0)
			p.ack(got[0])
		}
	}
}
