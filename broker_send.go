package pocketmq

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"
	"unsafe"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// SendMessage stores a message or a batch.
// Java: SendMessageProcessor, AbstractSendMessageProcessor.msgCheck.
func (s *brokerSession) SendMessage(ctx context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	return serveBroker(ctx, s, protocol.CodeSendMessage, q.Topic, q.ProducerGroup, q, (*brokerSession).sendMessage)
}

func (s *brokerSession) sendMessage(ctx context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	s.sends.enter()
	defer s.sends.leave()
	if s.draining.Load() {
		return nil, protocol.Errorf(protocol.ServiceNotAvailable, "%s is shutting down", s.cfg.Name)
	}
	topic, dead, err := s.sendTopic(q)
	switch {
	case errors.Is(err, errDropped):
		return &protocol.SendMessageResponse{QueueOffset: -1}, nil
	case err != nil:
		return nil, err
	}
	queueID := q.QueueID
	if dead {
		queueID = 0
	}
	switch queues := max(topic.ReadQueues, topic.WriteQueues); {
	case queueID >= queues:
		return nil, protocol.Errorf(protocol.InvalidParameter, "queue %d of topic %s does not exist on %s, it has queues 0 to %d", queueID, q.Topic, s.cfg.Name, queues-1)
	case queueID < 0 && topic.WriteQueues == 0:
		return nil, protocol.Errorf(protocol.NoPermission, "topic %s has no writable queue on %s", q.Topic, s.cfg.Name)
	case queueID < 0:
		queueID = rand.IntN(topic.WriteQueues)
	}
	if topic.Perm&PermWrite == 0 {
		return nil, protocol.Errorf(protocol.NoPermission, "topic %s is not writable on %s", q.Topic, s.cfg.Name)
	}
	if !q.Batch && q.SysFlag&message.FlagTransactionMask != 0 {
		return nil, protocol.Errorf(protocol.RequestCodeNotSupported, "transactional messages (sysFlag %#x) are not supported", uint32(q.SysFlag))
	}
	if len(q.Body) == 0 {
		return nil, protocol.Errorf(protocol.MessageIllegal, "the body is empty")
	}
	if len(q.Body) > s.cfg.MaxMessageSize {
		return nil, protocol.Errorf(protocol.MessageIllegal, "%s body of %d bytes, %s takes at most %d (BrokerConfig.MaxMessageSize)", protocol.RemarkBodyTooBig, len(q.Body), s.cfg.Name, s.cfg.MaxMessageSize)
	}
	rec := message.Record{
		Topic:          topic.Name,
		QueueID:        int32(queueID),
		Flag:           q.Flag,
		SysFlag:        q.SysFlag,
		BornTime:       q.BornTime.UnixMilli(),
		BornHost:       s.peer.Remote,
		StoreHost:      s.addr,
		ReconsumeTimes: q.ReconsumeTimes,
	}
	if topic.MultiTag {
		rec.SysFlag |= message.FlagMultiTags
	}
	batch := s.store().NewBatch()
	noWait, uniqKey := false, ""
	if q.Batch {
		err = s.addBatch(batch, &rec, q)
	} else {
		noWait, uniqKey, err = s.addSingle(batch, &rec, q, dead)
	}
	if err != nil {
		return nil, illegal(err)
	}
	n := batch.Len()
	var m *mastery
	lonely := false
	if !noWait {
		if m, lonely, err = s.mayAppend(); err != nil {
			return nil, err
		}
	}
	at, err := s.store().Append(ctx, batch, store.AppendOptions{NoWait: noWait})
	if err != nil && !errors.Is(err, store.ErrFlushTimeout) {
		return nil, s.appendError(err)
	}
	s.puts.count.Add(int64(n))
	resp := &protocol.SendMessageResponse{
		MsgID:         offsetMsgIDs(s, at.Position, n),
		QueueID:       queueID,
		QueueOffset:   at.QueueOffset,
		TransactionID: uniqKey,
		Region:        protocol.DefaultRegion,
		TraceOn:       true,
	}
	if s.cfg.Replication == SyncReplication && !noWait {
		// What became of the slaves counts for more than what became of the disk.
		if haErr := s.awaitSlaves(ctx, m, at.Position+int64(n)-1, lonely); haErr != nil {
			return resp, haErr
		}
	}
	if err != nil {
		return resp, protocol.Errorf(protocol.FlushDiskTimeout, "stored at %s queue %d offset %d, but not flushed within %v", q.Topic, queueID, at.QueueOffset, s.cfg.Timings.FlushTimeout)
	}
	return resp, nil
}

// sendTopic returns the topic of a send, made after its template if need be. dead
// tells that it is a dead-letter topic in place of a %RETRY% topic.
func (s *brokerSession) sendTopic(q *protocol.SendMessageRequest) (topic protocol.TopicConfig, dead bool, err error) {
	if message.IsNotSendable(q.Topic) {
		return protocol.TopicConfig{}, false, protocol.Errorf(protocol.NoPermission, "topic %s is reserved, it takes no messages from producers", q.Topic)
	}
	if message.IsRetryTopic(q.Topic) && !q.Batch { // a batch is refused later
		return s.redirect(q)
	}
	if topic, ok := s.topics.Get(q.Topic); ok && s.unrouted.Load() == 0 { // in this order: what is unrouted is not in the table before it counts
		return topic, false, nil
	}
	// Concurrent first sends make the topic once, and all of them wait until it
	// is routable: their producers' next lookups would miss it otherwise. So does
	// one that comes while the first waits, another attempt of the same sender say.
	v, err, _ := s.creating.Do(q.Topic, func() (any, error) {
		s.unrouted.Add(1)
		defer s.unrouted.Add(-1)
		topic, created, err := s.topics.AutoCreate(time.Now(), q.Topic, q.DefaultTopic, q.DefaultTopicQueues)
		if err != nil || !created {
			return topic, err
		}
		s.log.Info("topic created by a send", "topic", q.Topic, "queues", topic.WriteQueues)
		// Not with ctx: whoever came first may give up, the others still wait.
		if err := s.reg.register(s.ctx, registerTimeout); err != nil {
			s.log.Warn("new topic not registered everywhere", "topic", q.Topic, "err", err)
		}
		return topic, nil
	})
	return v.(protocol.TopicConfig), false, err
}

// addSingle encodes one message. One that is delayed goes where it waits, a dead
// one does not wait.
func (s *brokerSession) addSingle(b *store.Batch, rec *message.Record, q *protocol.SendMessageRequest, dead bool) (noWait bool, uniqKey string, err error) {
	props, popped, level := q.Properties, false, 0
	var refused error
	for name, value := range message.Properties(props) {
		switch name {
		case message.PropUniqKey:
			uniqKey = value
		case message.PropWait:
			noWait = value == "false"
		case message.PropPopCK:
			popped = true
		case message.PropDelay:
			if level, err = delayLevel(value); err != nil {
				return false, "", err
			}
		case message.PropTimerDelaySec, message.PropTimerDelayMs, message.PropTimerDeliverMs:
			if e := unsupported(name, value); e != nil {
				refused = e
			}
		default:
			if err := unsupported(name, value); err != nil {
				return false, "", err
			}
		}
	}
	if level == 0 && refused != nil { // a level wins over other kinds of delay
		return false, "", refused
	}
	if props != "" && !strings.HasSuffix(props, "\x02") {
		props += "\x02" // or what is appended would extend the last value
	}
	if popped { // a receipt of another life of the message
		m := message.DecodeProperties(props)
		delete(m, message.PropPopCK)
		props = message.EncodeProperties(m)
	}
	if uniqKey == "" {
		uniqKey = s.uniqKeys.Next(q.BornTime)
		props = string(message.AppendProperty([]byte(props), message.PropUniqKey, uniqKey))
	}
	rec.Body, rec.Properties = q.Body, props
	limit := message.MaxPropertiesLength
	if message.IsRetryTopic(q.Topic) { // it was accepted, and has grown since
		rec.Accepted, limit = true, message.MaxStoredPropertiesLength-deferRoom
	}
	if len(props) > limit {
		return false, "", protocol.Errorf(protocol.MessageIllegal, "the properties text of a message to topic %s takes %d bytes, maximum %d; send fewer or shorter properties", q.Topic, len(props), limit)
	}
	switch {
	case dead:
		rec.Properties = string(message.AppendWithout(nil, props, message.PropDelay))
	case level > 0:
		if err := s.deferRecord(rec, level); err != nil {
			return false, "", err
		}
	}
	return noWait, uniqKey, b.Add(rec)
}

// deferRoom is more than what a delay adds to a properties text.
const deferRoom = 1 << 10

// addBatch encodes each message of a batch body as a record of its own.
func (s *brokerSession) addBatch(b *store.Batch, rec *message.Record, q *protocol.SendMessageRequest) error {
	if message.IsRetryTopic(q.Topic) {
		return protocol.Errorf(protocol.MessageIllegal, "a batch to a retry topic is not allowed")
	}
	if len(q.Topic) > message.MaxTopicLength {
		return protocol.Errorf(protocol.MessageIllegal, "a batch to a topic of more than %d bytes is not allowed", message.MaxTopicLength)
	}
	if q.SysFlag&message.FlagTransactionMask != 0 {
		return protocol.Errorf(protocol.MessageIllegal, "a batch can't be part of a transaction")
	}
	if _, ok := message.Property(q.Properties, message.PropDelay); ok {
		return protocol.Errorf(protocol.MessageIllegal, "a batch can't be delayed")
	}
	if _, err := message.CountBatch(q.Body); err != nil { // whole or not at all
		return err
	}
	for item, err := range message.BatchItems(q.Body) {
		if err != nil {
			return err
		}
		// A string that shares the request's memory: Add encodes it at once and
		// keeps nothing, and the request does not change meanwhile.
		text := unsafe.String(unsafe.SliceData(item.Properties), len(item.Properties))
		rec.Flag, rec.Body, rec.Properties = item.Flag, item.Body, text
		for name, value := range message.Properties(text) {
			if name == message.PropDelay && value != "0" {
				return protocol.Errorf(protocol.MessageIllegal, "a message of a batch can't be delayed")
			}
			if err := unsupported(name, value); err != nil {
				return err
			}
		}
		if rec.Properties != "" && !strings.HasSuffix(rec.Properties, "\x02") {
			rec.Properties += "\x02"
		}
		if err := b.Add(rec); err != nil {
			return err
		}
	}
	return nil
}

// unsupported refuses properties that ask for what this broker does not do:
// storing such a message as an ordinary one would break its promise.
func unsupported(name, value string) error {
	switch name {
	case message.PropTimerDelaySec, message.PropTimerDelayMs, message.PropTimerDeliverMs:
		if value != "0" {
			return protocol.Errorf(protocol.RequestCodeNotSupported, "delayed messages (property %s) are not supported", name)
		}
	case message.PropTransactionPrepared:
		if value == "true" {
			return protocol.Errorf(protocol.RequestCodeNotSupported, "transactional messages (property %s) are not supported", name)
		}
	}
	return nil
}

// illegal gives an encoding error its code.
func illegal(err error) error {
	var e *protocol.Error
	if errors.As(err, &e) {
		return err
	}
	return protocol.Errorf(protocol.MessageIllegal, "%v", err)
}

// appendError is what a sender learns of a store that did not take its
// message.
func (s *brokerSession) appendError(err error) error {
	switch {
	case errors.Is(err, store.ErrDiskFull):
		return protocol.Errorf(protocol.ServiceNotAvailable, "%s %s", protocol.RemarkDiskFull, s.refusal(err))
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrReadOnly):
		return protocol.Errorf(protocol.ServiceNotAvailable, "%s %v; reads go on", protocol.RemarkFenced, err)
	case errors.Is(err, store.ErrNoEpoch):
		return protocol.Errorf(protocol.ServiceNotAvailable, "%s could not begin an epoch of its log when it started, which is tried again each second; reads go on", s.cfg.Name)
	case errors.Is(err, store.ErrClosed):
		return protocol.Errorf(protocol.ServiceNotAvailable, "%s is closed", s.cfg.Name)
	case errors.Is(err, store.ErrBehind):
		return protocol.Errorf(protocol.SystemBusy, "%s is busy: %v; reads go on", s.cfg.Name, err)
	}
	return err
}

// offsetMsgIDs names n records from position on, as mqadmin shows them.
func offsetMsgIDs(s *brokerSession, position int64, n int) string {
	if n == 1 {
		return message.OffsetMsgID(s.addr, position)
	}
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		} else {
			b.Grow(n * 33)
		}
		b.WriteString(message.OffsetMsgID(s.addr, position+int64(i)))
	}
	return b.String()
}
