package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/internal/deadline"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// delivery is one message on its way to a broker: what was tried, and what that says of
// the next attempt. Of one goroutine.
type delivery struct {
	p   *Producer
	ctx context.Context // the caller's
	out *outgoing

	attempts int // that may be made
	used     int // of them; asking a group that is between two masters uses none
	retries  int // that the producer has counted

	route  []MessageQueue // queue was chosen from it
	queue  MessageQueue   // of the last attempt
	master string         // its broker's address at that time

	tried  []attempt
	none   error         // why no queue could be chosen, the last time
	absent []string      // broker groups between two masters, since the last pause
	pause  time.Duration // the next one
}

type attempt struct {
	broker string
	err    error
}

// deliver tries brokers until one has stored the message, within SendTimeout.
// Java: DefaultMQProducerImpl.sendDefaultImpl.
func (p *Producer) deliver(ctx context.Context, out *outgoing) (*SendResult, error) {
	p.inFlight.Add(1)
	defer p.inFlight.Add(-1)
	out.budget.Set(ctx, out.req.BornTime.Add(p.cfg.SendTimeout))
	defer out.budget.End()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("nothing was sent: %w", err)
	}
	d := delivery{p: p, ctx: ctx, out: out, attempts: 1, pause: firstMasterPause}
	if !out.req.Oneway {
		d.attempts += max(p.cfg.Retries, 0)
	}
	for d.goesOn() {
		switch err := d.choose(); {
		case err == nil:
			res, err := d.attempt()
			if res != nil || err == nil {
				return res, err
			}
			if !d.again(err) {
				return nil, d.failure()
			}
		case errors.Is(err, ErrIllegalMessage): // the caller's choice
			return nil, err
		case errors.Is(err, errNoMaster) && !out.req.Oneway:
			d.none = err
			if !p.renewRoute(&out.budget, out.req.Topic) {
				d.wait(d.pause)
			}
		default:
			d.none = err
			return nil, d.failure()
		}
	}
	return nil, d.failure()
}

// goesOn tells whether there is another attempt, and time for it. What has not begun
// yet begins in any case.
func (d *delivery) goesOn() bool {
	if len(d.tried) == 0 && d.none == nil {
		return true
	}
	return d.used < d.attempts && !d.ended()
}

// ended tells whether the send has no time left, or the producer was closed.
func (d *delivery) ended() bool {
	return d.out.budget.Err() != nil || d.p.ctx.Err() != nil
}

// choose chooses the queue of the next attempt: another broker's than that of the last
// one if possible, or the only one that the caller allows. errNoMaster: there is nobody
// to send to, for now.
func (d *delivery) choose() (err error) {
	fixed := d.out.choice.fixed()
	if fixed && len(d.tried) > 0 {
		return nil
	}
	p, ctx, topic := d.p, &d.out.budget, d.out.req.Topic
	if d.route, err = p.publishRoute(ctx, topic); err != nil {
		return err
	}
	if q := d.out.choice.queue; q != nil && !slices.Contains(d.route, *q) && !p.masterless(*q) {
		p.refreshRoute(ctx, topic) // it may have been added since
		if d.route, err = p.publishRoute(ctx, topic); err != nil {
			return err
		}
	}
	from := d.route
	if len(d.absent) > 0 && !fixed {
		if rest := except(d.route, d.absent); len(rest) > 0 {
			from = rest
		}
	}
	d.queue, err = p.choose(d.out, from, d.queue.BrokerName)
	return err
}

// attempt sends once. It has its share of the time that is left, unless AttemptTimeout
// says how much.
func (d *delivery) attempt() (*SendResult, error) {
	p := d.p
	if d.used > d.retries {
		p.retried.Add(1)
		d.retries = d.used
	}
	now, try := time.Now(), &d.out.first
	if len(d.tried) > 0 {
		try = new(deadline.Context)
	}
	limit := p.cfg.AttemptTimeout
	if limit == 0 {
		limit = d.left(now) / time.Duration(d.attempts-d.used)
	}
	try.Set(&d.out.budget, now.Add(limit))
	defer try.End()
	d.master, _ = p.client.MasterAddr(d.queue.BrokerName)
	res, err := p.attempt(try, d.out, d.queue)
	p.report(d.ctx, d.out, d.queue.BrokerName, res, err, now)
	return res, err
}

// left is the time that the send still has.
func (d *delivery) left(now time.Time) time.Duration {
	until, _ := d.out.budget.Deadline()
	return until.Sub(now)
}

// again tells whether another attempt may do better than the one that got err, and waits
// until it can be made.
func (d *delivery) again(err error) bool {
	d.tried = append(d.tried, attempt{d.queue.BrokerName, err})
	between := betweenMasters(err) && !d.out.req.Oneway
	if !between {
		d.used++
	}
	if !retriable(err) {
		return false
	}
	if moved(err) {
		d.p.client.Suspect()
	}
	switch {
	case between || len(d.absent) > 0:
		d.leave()
	case d.used < d.attempts && d.stays(err):
		d.awaitSuccessor(err)
	}
	return true
}

// leave has the next attempt ask another group, at once; after all of them it waits, and
// begins anew. Nothing is stored meanwhile, so it may be asked as often as one likes.
func (d *delivery) leave() {
	d.absent = append(d.absent, d.queue.BrokerName)
	if !d.out.choice.fixed() && len(except(d.route, d.absent)) > 0 {
		return
	}
	d.absent = nil
	if !d.successor() {
		d.wait(d.pause)
	}
}

// stays tells whether the next attempt is with the same group, whose master may have
// moved, or another one be about to take its place.
func (d *delivery) stays(err error) bool {
	if d.out.choice.fixed() {
		return true
	}
	var answered *protocol.Error
	return oneBroker(d.route) && (errors.Is(err, ErrNotMaster) || !errors.As(err, &answered))
}

// awaitSuccessor asks for the group's master. When that one is gone it waits for another
// one, for the share of an attempt: refusals would use the attempts up in no time.
func (d *delivery) awaitSuccessor(err error) {
	gone := d.out.choice.fixed() && errors.Is(err, ErrUnreachable) || errors.Is(err, ErrNotMaster)
	now := time.Now()
	share := now.Add(d.left(now) / time.Duration(d.attempts-d.used+1))
	for !d.successor() && gone && time.Now().Before(share) && !d.ended() {
		d.wait(min(d.pause, time.Until(share)))
	}
}

// successor asks the name servers for the master of the queue, and tells whether it is
// another one than that of the last attempt.
func (d *delivery) successor() bool {
	d.p.renewRoute(&d.out.budget, d.queue.Topic)
	addr, ok := d.p.client.MasterAddr(d.queue.BrokerName)
	return ok && addr != d.master
}

// wait waits for that time, or until the send or the producer ends. The next pause is
// longer.
func (d *delivery) wait(pause time.Duration) {
	d.pause = min(2*pause, maxMasterPause)
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.out.budget.Done():
	case <-d.p.ctx.Done():
	}
}

// How long a send waits before it asks again who is the master of a group: the first
// time, and at most.
const (
	firstMasterPause = 10 * time.Millisecond
	maxMasterPause   = 500 * time.Millisecond
)

// failure tells what all attempts of a send got, and which brokers it has kept away
// from.
func (d *delivery) failure() error {
	p := d.p
	took := time.Since(d.out.req.BornTime)
	var kinds []error
	text := "send failed"
	if len(d.tried) > 0 {
		var each []string
		for _, a := range d.tried {
			t := a.err.Error()
			if !strings.Contains(t, a.broker) {
				t = a.broker + ": " + t
			}
			if slices.Contains(each, t) {
				continue // it is said already
			}
			each = append(each, t)
			kinds = append(kinds, a.err)
		}
		if !d.out.choice.fixed() {
			each = append(each, p.notRetried(d.route, d.tried)...)
		}
		plural := "s"
		if len(d.tried) == 1 {
			plural = ""
		}
		text = fmt.Sprintf("send failed after %d attempt%s in %v: %s", len(d.tried), plural, took.Round(time.Millisecond), strings.Join(each, "; "))
	} else if d.none != nil {
		text = "send failed: " + d.none.Error()
		kinds = append(kinds, d.none)
	}
	switch {
	case p.ctx.Err() != nil:
		text += "; " + p.life.what + " was closed meanwhile"
		kinds = append(kinds, ErrClosed)
	case d.ctx.Err() != nil:
		kinds = append(kinds, d.ctx.Err())
		if errors.Is(d.ctx.Err(), context.DeadlineExceeded) {
			kinds = append(kinds, ErrTimeout)
		}
	case d.out.budget.Err() != nil:
		kinds = append(kinds, ErrTimeout)
		text += fmt.Sprintf(" (ProducerConfig.SendTimeout is %v)", p.cfg.SendTimeout)
	}
	return protocol.Tagged(text, kinds...)
}

// except returns the queues that are of other broker groups.
func except(queues []MessageQueue, brokers []string) []MessageQueue {
	var rest []MessageQueue
	for _, q := range queues {
		if !slices.Contains(brokers, q.BrokerName) {
			rest = append(rest, q)
		}
	}
	return rest
}

// oneBroker tells whether all queues are of one broker group: there is no other one to
// be tried.
func oneBroker(queues []MessageQueue) bool {
	return len(queues) > 0 && !slices.ContainsFunc(queues, func(q MessageQueue) bool { return q.BrokerName != queues[0].BrokerName })
}

// betweenMasters tells whether nothing is stored because a broker group is about to have
// another master, or more slaves in sync.
func betweenMasters(err error) bool {
	if errors.Is(err, errNoMaster) || errors.Is(err, ErrNotEnoughReplicas) {
		return true
	}
	var e *protocol.Error
	return errors.As(err, &e) && e.Code == protocol.ServiceNotAvailable && strings.HasPrefix(e.Remark, protocol.RemarkRole)
}

// renewRoute asks for the topic's route again because it seems to be wrong, together
// with all others to whom it seems so, and tells whether it is another one now.
func (p *Producer) renewRoute(ctx context.Context, topic string) (changed bool) {
	changed, err := p.client.Renew(ctx, topic)
	if errors.Is(err, ErrNoRoute) { // it is about to be made, after the template
		changed, err = p.client.Renew(ctx, message.AutoCreateTopic)
	}
	if err != nil {
		p.log.Debug("route not renewed", "topic", topic, "err", err)
	}
	return changed
}

// masterless tells whether a queue cannot be sent to only because its broker group has
// no master.
func (p *Producer) masterless(q MessageQueue) bool {
	route := p.client.Cached(q.Topic)
	return route != nil && route.Masterless(q)
}

// attempt sends once to the master of queue's broker.
func (p *Producer) attempt(ctx context.Context, out *outgoing, queue MessageQueue) (*SendResult, error) {
	addr, ok := p.client.MasterAddr(queue.BrokerName)
	if !ok {
		return nil, fmt.Errorf("broker %s has %w", queue.BrokerName, errNoMaster)
	}
	conn, err := p.client.Broker(ctx, addr)
	if err != nil {
		return nil, err
	}
	out.req.QueueID = queue.QueueID
	resp, err := conn.SendMessage(ctx, &out.req)
	if err != nil {
		var answered *protocol.Error
		if !errors.As(err, &answered) && ctx.Err() == nil {
			p.client.Lost(addr, conn)
		}
		if resp == nil {
			return nil, err
		}
	}
	if out.req.Oneway {
		return nil, nil
	}
	res := &SendResult{
		MsgID: out.msgID, MsgIDs: out.msgIDs, OffsetMsgID: resp.MsgID,
		Queue: MessageQueue{Topic: queue.Topic, BrokerName: queue.BrokerName, QueueID: resp.QueueID}, QueueOffset: resp.QueueOffset,
	}
	switch {
	case errors.Is(err, ErrFlushDiskTimeout):
		res.Status = SendFlushDiskTimeout
	case errors.Is(err, ErrFlushSlaveTimeout):
		res.Status = SendFlushSlaveTimeout
	case errors.Is(err, ErrSlaveNotAvailable):
		res.Status = SendSlaveNotAvailable
	}
	return res, err
}

// retriable tells whether another attempt may do better. Java:
// DefaultMQProducer.retryResponseCodes, plus every failure of the transport.
func retriable(err error) bool {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return true
	}
	switch e.Code {
	case protocol.TopicNotExist, protocol.ServiceNotAvailable, protocol.SystemError, protocol.SystemBusy, protocol.NoPermission:
		return true
	}
	return false
}

// moved tells whether an attempt may have failed because the group's master is another
// one now.
func moved(err error) bool {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return true
	}
	return e.Code == protocol.ServiceNotAvailable || e.Code == protocol.SystemError
}
