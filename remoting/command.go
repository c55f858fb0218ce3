package remoting

import (
	"context"
	"errors"
	"fmt"

	"github.com/pocketmq/pocketmq/protocol"
)

// command is one RocketMQ command: a method of the service S and how its
// request and response look on the wire. Server and client use the same value,
// so that a method cannot exist on one side only.
type command[S, Q, R any] struct {
	name   string
	codes  []protocol.Code // all that mean the command; our client sends the first unless encodeRequest says otherwise
	method func(S, context.Context, *Q) (*R, error)

	encodeRequest  func(*Q, *Frame)
	decodeRequest  func(*Frame) (*Q, error)
	encodeResponse func(site, *Q, *R, *Frame)
	decodeResponse func(*Frame) (*R, error)

	outcome   func(protocol.Code) outcome // nil: only Success comes with a response
	oneway    func(*Q) bool               // nil: never
	onFailure func(*Frame)                // what an answer without a response carries; nil: nothing
	body      bodyKind                    // of requests
	lasts     bool                        // see lasting
	bound     bool                        // what it says holds until the connection ends
}

// lasting says that the command has an effect that outlives the caller: it is also
// done for one that is gone, or reads no answers any more. All others only answer.
func (c *command[S, Q, R]) lasting() *command[S, Q, R] {
	c.lasts = true
	return c
}

// bodyKind is what the body of a command's requests is.
type bodyKind byte

const (
	bodyText  bodyKind = iota // JSON, at most maxBodyText
	bodyTable                 // JSON or the like, as large as a frame may be
	bodyBytes                 // nothing that a server looks into
)

// maxBodyText is far more than any request of a client needs, and far less than
// a frame may have: reading JSON takes many times its size.
const maxBodyText = 1 << 20

// decode reads a request. Only so many large bodies are read at a time: see bodies.
func (c *command[S, Q, R]) decode(req *Frame) (*Q, error) {
	if c.body == bodyText && len(req.Body) > maxBodyText {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", errBadBody, len(req.Body), maxBodyText)
	}
	if req.bodies != nil && (c.body == bodyTable || c.body == bodyText && len(req.Body) > smallFrame) {
		req.bodies.reading <- struct{}{} // whoever has a place is at work and waits for nothing
		defer func() { <-req.bodies.reading }()
	}
	return c.decodeRequest(req)
}

// site is where a response is made.
type site struct {
	broker string     // the name of the broker's group; "" elsewhere
	frames *framePool // for the response
}

// outcome is what the code of an answer means to the caller.
type outcome byte

const (
	failed   outcome = iota // an *Error
	answered                // a response
	both                    // a response beside an *Error
)

func (c *command[S, Q, R]) outcomeOf(code protocol.Code) outcome {
	switch {
	case c.outcome != nil:
		return c.outcome(code)
	case code == protocol.Success:
		return answered
	}
	return failed
}

// Fields of an answer that name the server that refused a request. RocketMQ has the
// first in requests; the second is our name servers' own.
const (
	fieldBroker     = "bname"
	fieldNameServer = "nsname"
)

// request makes the frame of a request.
func (c *command[S, Q, R]) request(q *Q) *Frame { return c.fill(new(Frame), q) }

// fill makes an empty frame that of a request.
func (c *command[S, Q, R]) fill(f *Frame, q *Q) *Frame {
	f.Code, f.Language, f.Version = int32(c.codes[0]), LanguageGo, Version
	if c.encodeRequest != nil {
		c.encodeRequest(q, f)
	}
	if c.oneway != nil && c.oneway(q) {
		f.Flag |= FlagOneway
	}
	return f
}

// read returns what an answer says. An error that is no *Error is about an
// answer that cannot be understood.
func (c *command[S, Q, R]) read(f *Frame) (*R, error) {
	code := protocol.Code(f.Code)
	kind := c.outcomeOf(code)
	var err error
	if kind != answered {
		e := &protocol.Error{Code: code, Remark: f.Remark}
		for _, field := range []string{fieldBroker, fieldNameServer} {
			if name, ok := f.Ext.Get(field); ok {
				e.Broker = name
				break
			}
		}
		if kind == failed {
			return nil, e
		}
		err = e
	}
	if c.decodeResponse == nil {
		return new(R), err
	}
	r, bad := c.decodeResponse(f)
	switch {
	case bad != nil && err != nil:
		return nil, err // whoever refuses may leave out the rest, an injected fault does
	case bad != nil:
		return nil, bad
	}
	return r, err
}

// serve has srv serve a request and makes the frame of the answer. It is nil
// when nothing is to be answered: nobody waits, or the handler gave up because
// ctx ended.
func (c *command[S, Q, R]) serve(ctx context.Context, srv S, at site, req *Frame) *Frame {
	f := at.frames.get().answer(req)
	var r *R
	var q *Q
	made, err := req.bodies.reserve(ctx, c.body, req.Body)
	defer func(b *bodies) { b.release(made) }(req.bodies)
	if err == nil {
		q, err = c.decode(req)
	}
	var refused *protocol.Error
	switch {
	case errors.As(err, &refused), err != nil && err == ctx.Err():
	case err != nil:
		err = protocol.Errorf(protocol.SystemError, "%s: %v", c.name, err)
	default:
		r, err = c.method(srv, ctx, q)
	}
	if req.Oneway() || err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	kind := answered
	if err != nil {
		e := protocol.AsError(err)
		f.Code, f.Remark = int32(e.Code), e.Remark
		if at.broker == "" {
			f.putIfAny(fieldNameServer, e.Broker)
		} else {
			f.putIfAny(fieldBroker, e.Broker)
		}
		if kind = c.outcomeOf(e.Code); kind == failed && c.onFailure != nil {
			c.onFailure(f)
		}
	}
	if c.encodeResponse != nil && r != nil && kind != failed {
		c.encodeResponse(at, q, r, f)
	}
	return f
}

// answerTo makes a successful answer without content, in the form of the
// request.
func answerTo(req *Frame) *Frame { return new(Frame).answer(req) }

// answer makes an empty frame that of answerTo.
func (f *Frame) answer(req *Frame) *Frame {
	f.Flag, f.Opaque, f.Serialize, f.Language, f.Version = FlagResponse, req.Opaque, req.Serialize, LanguageGo, Version
	return f
}

// row is a command of the service S, whatever its request and response.
type row[S any] interface {
	title() string
	wire() []protocol.Code
	isLasting() bool
	binds() bool
	serve(ctx context.Context, srv S, at site, req *Frame) *Frame
}

func (c *command[S, Q, R]) title() string         { return c.name }
func (c *command[S, Q, R]) wire() []protocol.Code { return c.codes }
func (c *command[S, Q, R]) isLasting() bool       { return c.lasts }
func (c *command[S, Q, R]) binds() bool           { return c.bound }

// table finds a row by code.
type table[S any] map[protocol.Code]row[S]

func tableOf[S any](rows []row[S]) table[S] {
	t := make(table[S])
	for _, r := range rows {
		for _, code := range r.wire() {
			t[code] = r
		}
	}
	return t
}

// brokerRows are all commands that brokers serve, one for every method of
// protocol.BrokerConn. What is lasting is what clients may have left behind when they
// closed: messages, commits, goodbyes and orders of administrators.
func brokerRows() []row[protocol.BrokerConn] {
	return []row[protocol.BrokerConn]{
		sendMessage().lasting(), pullMessage(), queryMessage(), queryConsumerOffset(), updateConsumerOffset().lasting(), createTopic().lasting(),
		searchOffset(), getMaxOffset(), getMinOffset(), getEarliestStoreTime(), viewMessage(), heartbeat(),
		unregisterClient().lasting(), consumerSendMsgBack().lasting(), getConsumerList(), lockQueues(), unlockQueues().lasting(), updateGroup().lasting(),
		getTopicStats(), getConsumerConnection(), deleteGroup().lasting(), getConsumeStats(), deleteTopic().lasting(), resetOffset().lasting(),
		getConsumerRunningInfo(), cloneGroupOffset().lasting(), getConsumerStatus(), consumeMessageDirectly(), checkClientConfig(),
		createTopicList().lasting(), getTopicConfig(), getAllTopicConfig(), updateGroupList().lasting(), getAllGroupConfig(),
		getAllConsumerOffset(), getAllDelayOffset(), notifyMinBrokerID().lasting(), getHAStatus(), getEpochCache(),
	}
}

// nameServerRows are all commands that name servers serve, one for every method
// of protocol.NameServerConn.
func nameServerRows() []row[protocol.NameServerConn] {
	return []row[protocol.NameServerConn]{
		putKVConfig().lasting(), getKVConfig(), deleteKVConfig().lasting(), registerBroker().lasting(), unregisterBroker().lasting(), getRoute(), getClusterInfo(),
		wipeWritePerm().lasting(), getAllTopics(), deleteTopicInNameServer().lasting(), registerTopic().lasting(), listKVConfig(), getTopicsByCluster(),
		getSystemTopics(), getUnitTopics(), updateNameServerConfig(), getNameServerConfig(), queryDataVersion(),
		addWritePerm().lasting(), getBrokerMemberGroup(), brokerHeartbeat(),
	}
}

// peerRows are all commands that clients serve, one for every method of
// protocol.Peer.
func peerRows() []row[protocol.Peer] {
	return []row[protocol.Peer]{
		notifyConsumerIDsChanged(), resetConsumerOffset(), peerGetConsumerRunningInfo(), peerGetConsumerStatus(), peerConsumeMessageDirectly(),
	}
}

// nothing is the response of a command that is never answered.
type nothing struct{}

func always[Q any](*Q) bool { return true }

// empty decodes the request of a command that has no fields.
func empty[Q any](*Frame) (*Q, error) { return new(Q), nil }
