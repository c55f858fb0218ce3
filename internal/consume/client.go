package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/protocol"
)

// Client is what the engine needs of a client's connections and routes:
// *client.Client. Safe for concurrent use.
type Client interface {
	// Route returns the topic's route, from the cache or a name server.
	// protocol.ErrNoRoute when the topic has none.
	Route(ctx context.Context, topic string) (*client.Route, error)
	// Refresh asks a name server and tells whether the route changed. Whoever
	// owns the client passes every change on to Engine.RoutesChanged.
	Refresh(ctx context.Context, topic string) (*client.Route, bool, error)
	// Cached returns the cached route, nil without one. It does not block.
	Cached(topic string) *client.Route
	// Watch has the topic's route kept fresh until Unwatch.
	Watch(topic string)
	Unwatch(topic string)

	// MasterAddr returns the address of a broker group's master.
	MasterAddr(broker string) (addr string, ok bool)
	// MemberAddr returns the member of a broker group with an id, else its master,
	// else another one.
	MemberAddr(broker string, want int64) (addr string, id int64, ok bool)
	// Broker returns the connection to addr, dialling if there is none.
	Broker(ctx context.Context, addr string) (protocol.BrokerConn, error)
	// Current reports whether conn is the connection to addr still, and not known
	// to be over. It takes no lock and does not block.
	Current(addr string, conn protocol.BrokerConn) bool
	// Lost gives up a connection that failed.
	Lost(addr string, conn protocol.BrokerConn)

	// HeartbeatAll registers the client's groups with every known broker.
	HeartbeatAll(ctx context.Context) error
	// HeartbeatTo registers them with one broker.
	HeartbeatTo(ctx context.Context, addr string) error
	// Unregister takes the client out of its groups at every broker.
	Unregister(ctx context.Context, producerGroup, consumerGroup string)
}

var _ Client = (*client.Client)(nil)

// Timeouts of one call. Java: 3 s for the member list, 5 s for offsets.
const (
	routeTimeout     = 3 * time.Second
	heartbeatTimeout = 3 * time.Second
	membersTimeout   = 3 * time.Second
	offsetTimeout    = 5 * time.Second
	// pullSlack is added to PullSuspend: Java's 30 s for a pull held 15 s.
	pullSlack = 15 * time.Second
	// leaveTimeout bounds the last commits and the farewell together, so that
	// a silent broker cannot hold up Close, nor a Shutdown without deadline.
	leaveTimeout = 3 * time.Second
	// startLeaveTimeout bounds the farewell of a Start that failed.
	startLeaveTimeout = time.Second
)

// addr returns the master of a broker group, else any member.
// id is 0 for a master.
func (r *run) addr(broker string) (addr string, id int64, ok bool) {
	return r.cfg.Client.MemberAddr(broker, protocol.MasterID)
}

// call runs f on a connection to the broker group. A connection that broke is
// given up; one whose answer is only late is kept, because giving it up would
// end the client's registrations there.
func (r *run) call(ctx context.Context, broker string, timeout time.Duration, f func(context.Context, protocol.BrokerConn) error) error {
	addr, _, ok := r.addr(broker)
	if !ok {
		return fmt.Errorf("broker %q has no address in any route: %w", broker, protocol.ErrUnreachable)
	}
	return r.callAt(ctx, broker, addr, timeout, f)
}

// callMaster is call for what only a master does.
func (r *run) callMaster(ctx context.Context, broker string, timeout time.Duration, f func(context.Context, protocol.BrokerConn) error) error {
	addr, ok := r.cfg.Client.MasterAddr(broker)
	if !ok {
		return fmt.Errorf("broker %q has no master in any route: %w", broker, protocol.ErrUnreachable)
	}
	return r.callAt(ctx, broker, addr, timeout, f)
}

func (r *run) callAt(ctx context.Context, broker, addr string, timeout time.Duration, f func(context.Context, protocol.BrokerConn) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := r.cfg.Client.Broker(ctx, addr)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", broker, addr, err)
	}
	if err = f(ctx, conn); err == nil || answered(err) {
		return err
	}
	if ctx.Err() == nil {
		r.cfg.Client.Lost(addr, conn)
	}
	return fmt.Errorf("%s at %s: %w", broker, addr, err)
}

// heartbeat registers the client with one broker group.
func (r *run) heartbeat(ctx context.Context, broker string) error {
	addr, _, ok := r.addr(broker)
	if !ok {
		return fmt.Errorf("broker %q has no address in any route: %w", broker, protocol.ErrUnreachable)
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	if err := r.cfg.Client.HeartbeatTo(ctx, addr); err != nil {
		return fmt.Errorf("heartbeat to %s at %s: %w", broker, addr, err)
	}
	return nil
}

// refresh asks for the topic's route again; a change comes back as
// RoutesChanged.
func (r *run) refresh(ctx context.Context, topic string) {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	if _, _, err := r.cfg.Client.Refresh(ctx, topic); err != nil {
		r.log.Debug("route not refreshed", "topic", topic, "error", err)
	}
}

// answered reports whether a server answered with err.
func answered(err error) bool {
	var e *protocol.Error
	return errors.As(err, &e)
}

// code returns the code that a server answered with, 0 without one.
func code(err error) protocol.Code {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}
