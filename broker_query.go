package pocketmq

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// Most that one query by key returns. Java: maxMsgsNumBatch, defaultQueryMaxNum.
//
// Differs: RocketMQ bounds the number only, and the client ends the connection
// when the answer is larger than a frame may be. Here an answer ends with the
// record that takes it to maxQueryBytes, and the rest is left to the next one.
const (
	maxQueryMessages    = 64
	uniqueQueryMessages = 32
	maxQueryBytes       = 8 << 20
)

// SearchOffset answers where in a queue an instant lies.
// Java: AdminBrokerProcessor.searchOffsetByTimestamp.
func (s *brokerSession) SearchOffset(ctx context.Context, q *protocol.SearchOffsetRequest) (*protocol.SearchOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeSearchOffset, q.Topic, "", q, func(s *brokerSession, _ context.Context, q *protocol.SearchOffsetRequest) (*protocol.SearchOffsetResponse, error) {
		boundary := store.LowerBoundary
		if q.Boundary == protocol.BoundaryUpper {
			boundary = store.UpperBoundary
		}
		at, err := s.store().OffsetByTime(q.Topic, q.QueueID, wholeMillis(q.Time), boundary)
		if err != nil {
			return nil, s.storeError(err)
		}
		return &protocol.SearchOffsetResponse{Offset: at}, nil
	})
}

// GetEarliestStoreTime answers when the first message of a queue was stored.
// Java: AdminBrokerProcessor.getEarliestMsgStoretime.
func (s *brokerSession) GetEarliestStoreTime(ctx context.Context, q *protocol.GetEarliestStoreTimeRequest) (*protocol.GetEarliestStoreTimeResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetEarliestStoreTime, q.Topic, "", q, func(s *brokerSession, _ context.Context, q *protocol.GetEarliestStoreTimeRequest) (*protocol.GetEarliestStoreTimeResponse, error) {
		at, err := s.store().EarliestStoreTime(q.Topic, q.QueueID)
		if err != nil && !errors.Is(err, store.ErrNoRecord) {
			return nil, s.storeError(err)
		}
		return &protocol.GetEarliestStoreTimeResponse{Time: at}, nil
	})
}

// QueryMessage answers messages by key.
// Java: QueryMessageProcessor.queryMessage, DefaultMessageStore.queryMessage.
func (s *brokerSession) QueryMessage(ctx context.Context, q *protocol.QueryMessageRequest) (*protocol.QueryMessageResponse, error) {
	return serveBroker(ctx, s, protocol.CodeQueryMessage, q.Topic, "", q, (*brokerSession).queryMessage)
}

func (s *brokerSession) queryMessage(ctx context.Context, q *protocol.QueryMessageRequest) (*protocol.QueryMessageResponse, error) {
	most := min(q.MaxMessages, maxQueryMessages)
	if q.Unique {
		most = uniqueQueryMessages
	}
	resp := &protocol.QueryMessageResponse{IndexPosition: s.store().Positions().Dispatched}
	if most > 0 {
		if err := protocol.ReserveAnswer(ctx, maxQueryBytes+2*s.maxRecord()); err != nil {
			return nil, err
		}
		records, err := s.store().QueryKey(ctx, store.KeyQuery{
			Topic: q.Topic, Key: q.Key, From: wholeMillis(q.From), To: wholeMillis(q.To), Below: q.Below, Max: most, MaxBytes: maxQueryBytes,
		})
		if err != nil && len(records) == 0 {
			return nil, s.storeError(err)
		} // else a damaged record among others, which DamageFound tells of
		bytes := 0
		for _, rec := range records {
			bytes += len(rec)
		}
		resp.More = len(records) == most || bytes >= maxQueryBytes
		slices.Reverse(records) // RocketMQ's order: by position
		resp.Records = records
	}
	if len(resp.Records) == 0 {
		return nil, protocol.Errorf(protocol.QueryNotFound, "can not find message, maybe time range not correct")
	}
	// The last indexed record may have been trimmed, the answer has not.
	if rec, err := s.store().Record(resp.IndexPosition); err == nil {
		if v, err := message.ParseView(rec); err == nil {
			resp.IndexTime = time.UnixMilli(v.StoreTime())
		}
	}
	return resp, nil
}

// ViewMessage answers the record at a position.
// Java: QueryMessageProcessor.viewMessageById.
func (s *brokerSession) ViewMessage(ctx context.Context, q *protocol.ViewMessageRequest) (*protocol.ViewMessageResponse, error) {
	return serveBroker(ctx, s, protocol.CodeViewMessage, "", "", q, func(s *brokerSession, ctx context.Context, q *protocol.ViewMessageRequest) (*protocol.ViewMessageResponse, error) {
		if err := protocol.ReserveAnswer(ctx, s.maxRecord()); err != nil {
			return nil, err
		}
		rec, err := s.store().Record(q.Position)
		switch {
		case errors.Is(err, store.ErrNoRecord):
			return nil, protocol.Errorf(protocol.SystemError, "%s %d", protocol.RemarkNoMessage, q.Position)
		case err != nil:
			return nil, s.storeError(err)
		}
		return &protocol.ViewMessageResponse{Record: rec}, nil
	})
}

// GetTopicStats answers the bounds of a topic's queues.
// Java: AdminBrokerProcessor.getTopicStatsInfo.
func (s *brokerSession) GetTopicStats(ctx context.Context, q *protocol.GetTopicStatsRequest) (*protocol.GetTopicStatsResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetTopicStats, q.Topic, "", q, (*brokerSession).topicStats)
}

func (s *brokerSession) topicStats(ctx context.Context, q *protocol.GetTopicStatsRequest) (*protocol.GetTopicStatsResponse, error) {
	topic, ok := s.topics.Get(q.Topic)
	if !ok {
		return nil, noTopic(q.Topic)
	}
	stats := make([]protocol.QueueStats, max(topic.ReadQueues, topic.WriteQueues))
	for id := range stats {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at := &stats[id]
		// The end first: what is appended or trimmed meanwhile never makes the
		// start pass the end.
		at.MaxOffset = s.store().MaxOffset(q.Topic, id)
		at.MinOffset = min(s.store().MinOffset(q.Topic, id), at.MaxOffset)
		if at.MinOffset == at.MaxOffset {
			continue
		}
		stored, err := s.store().StoreTime(q.Topic, id, at.MaxOffset-1)
		if err != nil && !errors.Is(err, store.ErrNoRecord) { // trimmed meanwhile
			return nil, s.storeError(err)
		}
		at.LastStoreTime = stored
	}
	return &protocol.GetTopicStatsResponse{Queues: stats}, nil
}

// storeError is the answer to a read that failed.
func (r *brokerRun) storeError(err error) error {
	if errors.Is(err, store.ErrClosed) {
		return protocol.Errorf(protocol.ServiceNotAvailable, "%s is closed", r.cfg.Name)
	}
	return err
}

// wholeMillis cuts t to what the wire carries and store times hold. The zero
// time stays what it is.
func wholeMillis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Truncate(time.Millisecond)
}
