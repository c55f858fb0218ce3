package consume

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Reset has queues that are held go on at other offsets, at once: what is cached is
// forgotten, and what handlers have of it does not count any more. The offsets are
// committed by the next OffsetPersist. Queues of other topics, and such as are not
// held, are passed over. It does not block. Java: MQClientInstance.resetOffset,
// which suspends the consumer for 10 s.
func (e *Engine) Reset(topic string, offsets map[message.Queue]int64) {
	r := e.current()
	if r == nil {
		return
	}
	for q, to := range offsets {
		if q.Topic != topic {
			continue
		}
		r.mu.Lock()
		from := int64(-1)
		if h := r.held[q]; h != nil {
			from = h.pq.end
		}
		r.mu.Unlock()
		if from >= 0 && r.seek(q, to, true) {
			r.log.Info("the group was reset, going on where the broker says", "queue", q, "offset", from, "next", to)
			r.jumped(q, from, to)
		}
	}
}

// ConsumeDirectly hands one stored record to the handler, beside everything else,
// and tells what came of it. Nothing is committed or given back for it, and it is
// none of the counters' messages. A handler that has not returned when ctx ends
// goes on; Close and Shutdown wait for it as for others.
//
// Errors: ctx's; an *Error of code SystemError for a record that does not decode,
// for a polled engine, which has no handler, and for one that is not running. Java:
// ConsumeMessageService.consumeMessageDirectly.
func (e *Engine) ConsumeDirectly(ctx context.Context, record []byte, broker string) (*protocol.ConsumeMessageDirectlyResponse, error) {
	r := e.current()
	switch {
	case e.cfg.Polled:
		return nil, protocol.Errorf(protocol.SystemError, "consumer %s of group %s has no handler: it is asked for messages by its user", e.cfg.ClientID, e.cfg.Group)
	case r == nil:
		return nil, e.notRunning()
	}
	done := make(chan directly, 1) // it is not waited for when ctx has ended
	if !r.spawnHandler(func() { r.consumeDirectly(record, broker, done) }) {
		return nil, e.notRunning()
	}
	select {
	case d := <-done:
		return d.resp, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *Engine) notRunning() error {
	return protocol.Errorf(protocol.SystemError, "consumer %s of group %s is not running", e.cfg.ClientID, e.cfg.Group)
}

// directly is the end of a consumeDirectly.
type directly struct {
	resp *protocol.ConsumeMessageDirectlyResponse
	err  error
}

// consumeDirectly calls the handler with one record and tells done what came of
// it, whichever way the handler ends.
func (r *run) consumeDirectly(record []byte, broker string, done chan<- directly) {
	var m *message.Ext
	view, err := message.ParseView(record)
	if err == nil {
		m, err = r.cfg.Codec.DecodeExt(record, broker, string(view.Topic()))
	}
	if err != nil {
		done <- directly{err: protocol.Errorf(protocol.SystemError, "the stored record does not decode: %v", err)}
		return
	}
	began := time.Now()
	resp := &protocol.ConsumeMessageDirectlyResponse{
		Result: protocol.ConsumeException, Remark: errGoexit.Error(), Orderly: r.cfg.Orderly, AutoCommit: true,
	}
	defer func() {
		if v := recover(); v != nil {
			resp.Remark = fmt.Sprintf("the handler panicked: %v", v)
			r.log.Error("consumer handler panicked", "queue", m.Queue, "offset", m.QueueOffset, "panic", v, "stack", string(debug.Stack()))
		}
		resp.Spent = time.Since(began)
		done <- directly{resp: resp}
	}()
	if r.cfg.Handler != nil {
		err = r.cfg.Handler(r.handlerCtx, []*message.Ext{m})
	}
	if judge(err, 1).done == 1 {
		resp.Result, resp.Remark = protocol.ConsumeSuccess, ""
		return
	}
	resp.Result, resp.Remark = protocol.ConsumeLater, err.Error()
}
