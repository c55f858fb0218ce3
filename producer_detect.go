package pocketmq

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Intervals of the reachability detector. Java: LatencyFaultToleranceImpl, where
// they are constants too; only detectTimeout can be set there.
const (
	detectEvery   = 3 * time.Second        // a round; no broker is asked twice within 2 s
	detectTimeout = 200 * time.Millisecond // of one question
)

// detect asks the brokers of table every 3 s whether they can be reached, until
// ctx ends. Java: the scheduler of LatencyFaultToleranceImpl.startDetector.
func (p *Producer) detect(ctx context.Context, table *faultTable) {
	ticker := time.NewTicker(detectEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		var round sync.WaitGroup
		for _, broker := range table.Due(time.Now()) {
			addr, ok := p.client.MasterAddr(broker)
			if !ok {
				table.Remove(broker) // gone from the routes
				continue
			}
			// All at once, so that a silent one does not hold up the others.
			round.Go(func() {
				if p.reachable(ctx, broker, addr) {
					table.SetReachable(broker, true)
				}
			})
		}
		round.Wait()
	}
}

// reachable asks a broker for the end of a queue, as Java's detector does: a
// question that costs nothing.
func (p *Producer) reachable(ctx context.Context, broker, addr string) bool {
	topic, ok := p.client.TopicOn(broker)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, detectTimeout)
	defer cancel()
	conn, err := p.client.Broker(ctx, addr)
	if err == nil {
		_, err = conn.GetMaxOffset(ctx, &protocol.GetMaxOffsetRequest{Topic: topic, QueueID: 0})
		var answered *protocol.Error
		if err != nil && !errors.As(err, &answered) && ctx.Err() == nil {
			p.client.Lost(addr, conn)
		}
	}
	if err != nil {
		p.log.Debug("broker not reachable", "broker", broker, "err", err)
	}
	return err == nil
}
