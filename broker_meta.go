package pocketmq

import (
	"context"
	"errors"

	"github.com/pocketmq/pocketmq/internal/offsets"
	"github.com/pocketmq/pocketmq/protocol"
)

// What slaves copy beside the log: committed offsets and the progress of delayed
// messages here, topics and groups in broker_config.go. Both may lag behind the log
// and must not lead it: what they say is consumed, or delivered, would be lost with
// a message that a slave does not have. So they are read first, and then the position
// that they presume.

// GetAllConsumerOffset takes in the offsets that were committed at a slave, and
// answers those of all groups. Java: AdminBrokerProcessor.getAllConsumerOffset.
//
// Differs: RocketMQ's slaves replace their own by their master's, older ones too.
func (s *brokerSession) GetAllConsumerOffset(ctx context.Context, q *protocol.GetAllConsumerOffsetRequest) (*protocol.GetAllConsumerOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetAllConsumerOffset, "", "", q, func(s *brokerSession, _ context.Context, q *protocol.GetAllConsumerOffsetRequest) (*protocol.GetAllConsumerOffsetResponse, error) {
		if err := s.takeOwn(q.Own); err != nil {
			return nil, err
		}
		all, err := s.offsets.Export()
		if err != nil {
			return nil, protocol.Errorf(protocol.SystemError, "%v", err)
		}
		return &protocol.GetAllConsumerOffsetResponse{OffsetTable: all, Position: s.written()}, nil
	})
}

// takeOwn merges a slave's own offsets into the broker's. They are in the file when
// it returns: the slave forgets then that they were its own.
func (r *brokerRun) takeOwn(own []protocol.OwnOffset) error {
	if len(own) == 0 {
		return nil
	}
	taken, err := r.offsets.Merge(own, func(topic string, queue int) int64 {
		if config, ok := r.topics.Get(topic); !ok || queue >= config.ReadQueues {
			return -1
		}
		return r.store().MaxOffset(topic, queue)
	})
	if errors.Is(err, offsets.ErrFollowing) {
		return protocol.Errorf(protocol.SystemError, "%s is a slave: offsets committed at another one are for the master", r.node)
	}
	if err != nil || len(taken) == 0 {
		return err
	}
	for _, o := range taken {
		if _, ok := r.topics.Get(o.Topic); !ok { // it is being deleted
			r.offsets.Drop(o.Group, o.Topic, o.QueueID)
		}
		r.waiters.Rouse(o.Topic, o.QueueID) // a reset may be over
		r.wire.watch.changed(o.Group)
	}
	r.log.Info("offsets taken over from a slave", "offsets", len(taken))
	if err := r.offsets.Persist(); err != nil {
		return protocol.Errorf(protocol.SystemError, "offsets of a slave are not saved: %v", err)
	}
	return nil
}

// GetAllDelayOffset answers how far delayed messages were delivered. Java:
// AdminBrokerProcessor.getAllDelayOffset.
func (s *brokerSession) GetAllDelayOffset(ctx context.Context, q *protocol.GetAllDelayOffsetRequest) (*protocol.GetAllDelayOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetAllDelayOffset, "", "", q, func(s *brokerSession, _ context.Context, _ *protocol.GetAllDelayOffsetRequest) (*protocol.GetAllDelayOffsetResponse, error) {
		return &protocol.GetAllDelayOffsetResponse{DelayProgress: s.progress.Snapshot(), Position: s.written()}, nil
	})
}

// written is the position of the last record in the log, 0 without one.
func (r *brokerRun) written() int64 { return r.store().Positions().Written }
