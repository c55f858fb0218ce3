package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/internal/deadline"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Send stores m and returns where. It blocks for at most SendTimeout, or until
// ctx ends. The queue is the next one of the topic, or the one of m's
// ShardingKey.
//
// While no broker group of the topic has a master, or the one that the message has to
// go to has none or too few slaves in sync, Send asks the name servers and the broker
// again and again for as long as it may block; that is none of the Retries, for nothing
// is stored meanwhile.
// Differs: Java's producer fails, or uses its retries up in no time.
//
// Errors: ErrNotMaster and ErrNotEnoughReplicas when that takes too long;
// ErrIllegalMessage, ErrIllegalName, ErrMessageTooLarge before anything is sent;
// ErrNoRoute; ErrTimeout when the time is used up;
// otherwise what the last attempt got. ErrFlushDiskTimeout,
// ErrFlushSlaveTimeout and ErrSlaveNotAvailable come with the result: the message
// is stored.
func (p *Producer) Send(ctx context.Context, m *Message) (*SendResult, error) {
	return p.send(ctx, m, choice{})
}

// SendTo is Send to queue q of m's topic. A queue that the topic does not have
// or that is not writable is ErrIllegalMessage.
func (p *Producer) SendTo(ctx context.Context, q MessageQueue, m *Message) (*SendResult, error) {
	if m != nil && q.Topic != m.Topic {
		return nil, fmt.Errorf("%w: queue %v is not of the message's topic %q", ErrIllegalMessage, q, clip(m.Topic))
	}
	return p.send(ctx, m, choice{queue: &q})
}

// SendSelect is Send to the queue that s chooses.
func (p *Producer) SendSelect(ctx context.Context, m *Message, s QueueSelector) (*SendResult, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: the QueueSelector is nil", ErrIllegalMessage)
	}
	return p.send(ctx, m, choice{selector: s})
}

// SendBatch stores ms, all of one topic, in one queue without a gap, and in
// their order. A broker that crashes meanwhile may keep a prefix of them.
func (p *Producer) SendBatch(ctx context.Context, ms []*Message) (*SendResult, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	defer p.sends.leave()
	out, err := p.prepareBatch(ms)
	if err != nil {
		p.failed.Add(1)
		return nil, err
	}
	return p.count(p.deliver(ctx, out))
}

// SendOneway hands m to a broker and does not wait for an answer: whether it
// is stored is not known, and nothing is retried.
func (p *Producer) SendOneway(ctx context.Context, m *Message) error {
	if err := p.begin(); err != nil {
		return err
	}
	defer p.sends.leave()
	out, err := p.prepare(m, choice{})
	if err == nil {
		out.req.Oneway = true
		_, err = p.deliver(ctx, out)
	}
	if err != nil {
		p.failed.Add(1)
		return err
	}
	p.sent.Add(1)
	return nil
}

// SendAsync is Send in the background. When it returns nil, done runs exactly
// once, on another goroutine, with what Send would have returned; otherwise
// never. With MaxInFlight sends running it blocks until one ends or ctx does;
// afterwards ctx bounds the send as it bounds Send. Asynchronous sends run
// beside each other: nothing is said about their order. m may be reused when
// SendAsync has returned. A panic of done is recovered and logged.
func (p *Producer) SendAsync(ctx context.Context, m *Message, done func(*SendResult, error)) error {
	if err := p.begin(); err != nil {
		return err
	}
	out, err := p.reserve(ctx, m, done)
	if err != nil {
		p.sends.leave()
		return err
	}
	go func() {
		defer p.sends.leave()
		sendCtx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(p.ctx, cancel)
		res, err := p.count(p.deliver(sendCtx, out))
		stop()
		cancel()
		<-p.slots // before done: it may send the next one
		defer func() {
			if r := recover(); r != nil {
				p.log.Error("SendAsync callback panicked", "panic", r, "stack", string(debug.Stack()))
			}
		}()
		done(res, err)
	}()
	return nil
}

// reserve prepares an asynchronous send and takes one of MaxInFlight slots.
func (p *Producer) reserve(ctx context.Context, m *Message, done func(*SendResult, error)) (*outgoing, error) {
	if done == nil {
		return nil, fmt.Errorf("%w: SendAsync without a callback; use SendOneway", ErrIllegalMessage)
	}
	out, err := p.prepare(m, choice{})
	if err != nil {
		p.failed.Add(1)
		return nil, err
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for one of %d asynchronous sends to end (ProducerConfig.MaxInFlight): %w", p.cfg.MaxInFlight, ctx.Err())
	case <-p.ctx.Done():
		return nil, p.life.unusable()
	}
	if p.ctx.Err() != nil {
		<-p.slots
		return nil, p.life.unusable()
	}
	out.async = true
	out.req.BornTime = time.Now() // SendTimeout does not count the wait for a slot
	if out.req.SysFlag&message.FlagCompressed == 0 {
		out.req.Body = slices.Clone(out.req.Body)
	}
	return out, nil
}

// choice is how the queue of a message is chosen; zero = round robin.
type choice struct {
	queue    *MessageQueue
	selector QueueSelector
	key      string // sharding key
	message  *Message
}

// fixed tells that a retry must go to the same queue.
func (c choice) fixed() bool { return c.queue != nil || c.selector != nil || c.key != "" }

// outgoing is a send that is ready to leave.
type outgoing struct {
	req    protocol.SendMessageRequest
	choice choice
	msgID  string
	msgIDs []string // of a batch
	async  bool     // sent by SendAsync

	// Here, and not allocated one by one, because every send needs them.
	budget, first deadline.Context // of the send; of its first attempt
}

func (p *Producer) send(ctx context.Context, m *Message, c choice) (*SendResult, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	defer p.sends.leave()
	out, err := p.prepare(m, c)
	if err != nil {
		p.failed.Add(1)
		return nil, err
	}
	return p.count(p.deliver(ctx, out))
}

// count adds a finished send to the status.
func (p *Producer) count(res *SendResult, err error) (*SendResult, error) {
	if res != nil {
		p.sent.Add(1)
	} else {
		p.failed.Add(1)
	}
	return res, err
}

// prepare turns m into a request: everything that can be wrong with a message
// is found here, before anything is sent.
func (p *Producer) prepare(m *Message, c choice) (*outgoing, error) {
	if err := p.checkMessage(m); err != nil {
		return nil, err
	}
	now := time.Now()
	out := &outgoing{choice: c}
	out.choice.message = m
	if c.queue == nil && c.selector == nil {
		out.choice.key = m.ShardingKey
	}
	out.req = protocol.SendMessageRequest{
		ProducerGroup:      p.cfg.Group,
		Topic:              m.Topic,
		DefaultTopic:       message.AutoCreateTopic,
		DefaultTopicQueues: p.cfg.DefaultTopicQueues,
		BornTime:           now,
		Flag:               m.Flag,
		Body:               m.Body,
	}
	var buf [256]byte
	var key [32]byte // of IPv4 addresses, as all of ours are
	out.req.Properties = string(m.AppendProperties(buf[:0], string(p.keys.AppendNext(key[:0], now))))
	// The unique key is the last property: its text serves as the id too.
	end := len(out.req.Properties) - 1
	out.msgID = out.req.Properties[end-len(key) : end]
	// Consumers inflate up to a limit: a larger body goes as it is.
	if p.cfg.CompressOver > 0 && len(m.Body) >= p.cfg.CompressOver && len(m.Body) <= message.DefaultInflateLimit {
		body, flag, err := p.codec.Compress(nil, m.Body, p.cfg.Compression)
		if err != nil {
			return nil, fmt.Errorf("compress %d bytes: %w", len(m.Body), err)
		}
		if len(body) < len(m.Body) { // or the body is nothing to compress
			out.req.Body, out.req.SysFlag = body, flag
		}
	}
	return out, nil
}

func (p *Producer) checkMessage(m *Message) error {
	if m == nil {
		return fmt.Errorf("%w: the message is nil", ErrIllegalMessage)
	}
	if err := checkTopicName(m.Topic); err != nil {
		return err
	}
	if message.IsNotSendable(m.Topic) {
		return fmt.Errorf("%w: topic %s is reserved, it takes no messages from producers", ErrNoPermission, m.Topic)
	}
	if len(m.Body) == 0 {
		return fmt.Errorf("%w: the body is empty", ErrIllegalMessage)
	}
	if len(m.Body) > p.cfg.MaxMessageSize {
		return fmt.Errorf("%w: the body has %d bytes, at most %d are allowed (ProducerConfig.MaxMessageSize)", ErrMessageTooLarge, len(m.Body), p.cfg.MaxMessageSize)
	}
	if err := m.Validate(); err != nil {
		return err
	}
	if m.Delay != 0 || !m.DeliverAt.IsZero() {
		return fmt.Errorf("%w: delays of any length (Delay, DeliverAt); use DelayLevel", ErrNotSupported)
	}
	return nil
}

func (p *Producer) prepareBatch(ms []*Message) (*outgoing, error) {
	if len(ms) == 0 {
		return nil, fmt.Errorf("%w: the batch is empty", ErrIllegalMessage)
	}
	now := time.Now()
	out := &outgoing{msgIDs: make([]string, len(ms))}
	size := 0
	for i, m := range ms {
		if err := p.checkMessage(m); err != nil {
			return nil, fmt.Errorf("message %d of the batch: %w", i, err)
		}
		switch {
		case m.DelayLevel != 0:
			return nil, fmt.Errorf("%w: message %d of the batch has DelayLevel %d; delayed messages are sent one by one", ErrIllegalMessage, i, m.DelayLevel)
		case m.Topic != ms[0].Topic:
			return nil, fmt.Errorf("%w: message %d of the batch is of topic %q, message 0 of %q; a batch goes to one queue", ErrIllegalMessage, i, m.Topic, ms[0].Topic)
		case m.ShardingKey != ms[0].ShardingKey:
			return nil, fmt.Errorf("%w: message %d of the batch has sharding key %q, message 0 %q; a batch goes to one queue", ErrIllegalMessage, i, m.ShardingKey, ms[0].ShardingKey)
		case m.NoWait != ms[0].NoWait:
			return nil, fmt.Errorf("%w: message %d of the batch differs from message 0 in NoWait", ErrIllegalMessage, i)
		}
		size += len(m.Body) + 160
	}
	if message.IsRetryTopic(ms[0].Topic) {
		return nil, fmt.Errorf("%w: a batch to a retry topic is not allowed", ErrIllegalMessage)
	}
	const idLen = 32 // of IPv4 addresses, as all of ours are
	keys := make([]byte, 0, idLen*len(ms))
	for range ms {
		keys = p.keys.AppendNext(keys, now)
	}
	ids := string(keys) // one string, cut into ids
	body := make([]byte, 0, size)
	var scratch [512]byte
	for i, m := range ms {
		out.msgIDs[i] = ids[i*idLen : (i+1)*idLen]
		props := m.AppendProperties(scratch[:0], out.msgIDs[i])
		body = message.AppendBatch(body, m.Flag, m.Body, props)
	}
	if len(body) > p.cfg.MaxMessageSize {
		return nil, fmt.Errorf("%w: the batch has %d bytes, at most %d are allowed (ProducerConfig.MaxMessageSize)", ErrMessageTooLarge, len(body), p.cfg.MaxMessageSize)
	}
	out.msgID = out.msgIDs[0]
	out.choice = choice{key: ms[0].ShardingKey, message: ms[0]}
	out.req = protocol.SendMessageRequest{
		ProducerGroup:      p.cfg.Group,
		Topic:              ms[0].Topic,
		DefaultTopic:       message.AutoCreateTopic,
		DefaultTopicQueues: p.cfg.DefaultTopicQueues,
		BornTime:           now,
		Batch:              true,
		Body:               body,
	}
	if ms[0].NoWait {
		out.req.Properties = string(message.AppendProperty(nil, message.PropWait, "false"))
	}
	return out, nil
}

// publishRoute returns where topic can be sent to. A topic that no name server
// knows goes where the template of auto-creation lies: the broker makes it.
// That answer is not kept, so the next send sees the real route.
// Java: DefaultMQProducerImpl.tryToFindTopicPublishInfo.
func (p *Producer) publishRoute(ctx context.Context, topic string) ([]MessageQueue, error) {
	route, err := p.client.Route(ctx, topic)
	if err == nil {
		if len(route.Publish) == 0 {
			is := []error{ErrNoRoute}
			if route.MissesMaster() {
				is = append(is, errNoMaster)
			}
			return nil, protocol.Tagged(fmt.Sprintf("topic %q has no writable queue with a master: %s: %v", topic, unwritable(route), ErrNoRoute), is...)
		}
		return route.Publish, nil
	}
	if !errors.Is(err, ErrNoRoute) {
		return nil, err
	}
	template, terr := p.client.Route(ctx, message.AutoCreateTopic)
	if terr != nil {
		return nil, err
	}
	var queues []MessageQueue
	for _, q := range template.Publish {
		if q.QueueID < p.cfg.DefaultTopicQueues {
			queues = append(queues, MessageQueue{Topic: topic, BrokerName: q.BrokerName, QueueID: q.QueueID})
		}
	}
	switch {
	case len(queues) > 0:
		return queues, nil
	case template.MissesMaster():
		return nil, protocol.Tagged(err.Error()+"; nor has any broker that could create it a master now", err, errNoMaster)
	}
	return nil, err
}

// unwritable says why each broker group of a topic may not be sent to.
func unwritable(route *client.Route) string {
	var why []string
	for _, q := range route.Queues {
		switch {
		case q.Perm&PermWrite == 0:
			why = append(why, q.BrokerName+" has no write permission (Admin.AddWritePerm, or TopicConfig.Perm)")
		case q.WriteQueues == 0:
			why = append(why, q.BrokerName+" has no write queues (TopicConfig.WriteQueues)")
		default:
			why = append(why, q.BrokerName+" has no master now")
		}
	}
	return strings.Join(why, "; ")
}

// refreshRoute asks for the topic's route again; an error leaves the old one.
func (p *Producer) refreshRoute(ctx context.Context, topic string) {
	if _, _, err := p.client.Refresh(ctx, topic); err != nil {
		p.log.Debug("route not refreshed", "topic", topic, "err", err)
	}
}

// choose picks the queue for a send; failed is the broker of the last attempt.
func (p *Producer) choose(out *outgoing, queues []MessageQueue, failed string) (MessageQueue, error) {
	c := out.choice
	switch {
	case c.queue != nil:
		switch {
		case slices.Contains(queues, *c.queue):
		case p.masterless(*c.queue):
			return MessageQueue{}, fmt.Errorf("broker %s has %w", c.queue.BrokerName, errNoMaster)
		default:
			return MessageQueue{}, fmt.Errorf("%w: queue %v is not a writable queue of its topic", ErrIllegalMessage, *c.queue)
		}
		return *c.queue, nil
	case c.selector != nil:
		q, err := callSelector(c.selector, c.message, slices.Clone(queues))
		if err != nil {
			return MessageQueue{}, err
		}
		if !slices.Contains(queues, q) {
			return MessageQueue{}, fmt.Errorf("%w: the QueueSelector chose %v, which is not a writable queue of the topic", ErrIllegalMessage, q)
		}
		return q, nil
	case c.key != "":
		h := fnv.New32a()
		h.Write([]byte(c.key)) // never fails
		return queues[h.Sum32()%uint32(len(queues))], nil
	}
	table := p.sick.table.Load()
	var now time.Time
	if table.cfg.Enabled { // or nobody asks what time it is
		now = time.Now()
	}
	q, _ := table.Select(queues, failed, p.cursor(out.req.Topic), now) // queues is not empty
	return q, nil
}

func callSelector(s QueueSelector, m *Message, queues []MessageQueue) (q MessageQueue, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: the QueueSelector panicked: %v", ErrIllegalMessage, r)
		}
	}()
	return s(m, queues)
}
