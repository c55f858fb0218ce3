package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/pocketmq/pocketmq/protocol"
)

// Broker returns the session with the broker at addr, dialled on first use and
// kept until Lost or Close. A new session of a client that has heartbeat data
// begins with a heartbeat, so that a restarted broker knows its members at
// once (Java 5.x: heartbeat when a channel becomes active). Concurrent callers
// share one dial of at most 3 s; ctx bounds only this caller's wait.
//
// The error matches protocol.ErrUnreachable, ctx's error as well if that ended
// the wait, or protocol.ErrClosed after Close. A session that knows that it is
// over is replaced; of others callers learn by an error, and say so with Lost.
func (c *Client) Broker(ctx context.Context, addr string) (protocol.BrokerConn, error) {
	return c.brokers.get(ctx, addr)
}

// Current reports whether conn is the session with addr still and is not known
// to be over. It takes no lock and does not block.
func (c *Client) Current(addr string, conn protocol.BrokerConn) bool {
	held, ok := c.brokers.conns.get(addr)
	return ok && held == conn && alive(held)
}

// Lost gives up conn after an error that no server answered: it is closed,
// and dialled anew on the next use if it is still the session with addr. A nil
// conn is ignored.
func (c *Client) Lost(addr string, conn protocol.BrokerConn) { c.brokers.drop(addr, conn) }

func (c *Client) dialBroker(ctx context.Context, addr string) (protocol.BrokerConn, error) {
	conn, err := c.cfg.Transport.DialBroker(ctx, protocol.Dial{Node: c.cfg.Node, Addr: addr, Peer: c.cfg.Peer})
	if err != nil {
		return nil, err
	}
	data := c.heartbeatData()
	if data == nil {
		return conn, nil
	}
	_, err = conn.Heartbeat(ctx, data)
	switch {
	case err == nil:
	case answered(err):
		// The broker lives; whoever uses the session will hear the same.
		c.cfg.Logger.Warn("first heartbeat of a session refused", "broker", addr, "err", err)
	default:
		_ = conn.Close() // It has failed already.
		return nil, unreachable(err, "%s: first heartbeat: %v", addr, err)
	}
	return conn, nil
}

func (c *Client) heartbeatData() *protocol.HeartbeatRequest {
	if c.cfg.HeartbeatData == nil {
		return nil
	}
	data := c.cfg.HeartbeatData()
	if data == nil {
		return nil
	}
	own := *data
	own.Language, own.Version = protocol.ClientLanguage, protocol.ClientVersion
	return &own
}

// HeartbeatAll heartbeats the brokers of all routes at the same time: masters
// only, when the client has only producer groups, slaves too when it has
// consumers. It returns when each has answered or failed, in at most 3 s. A
// broker that does not answer loses its session; the error names each that
// failed. Without heartbeat data nothing is done.
// Java: sendHeartbeatToAllBrokerWithLock.
func (c *Client) HeartbeatAll(ctx context.Context) error {
	data := c.heartbeatData()
	if data == nil {
		return nil
	}
	var addrs []string
	for _, b := range c.addresses.all() {
		for id, addr := range b.Addrs {
			if id == protocol.MasterID || len(data.Consumers) > 0 {
				addrs = append(addrs, addr)
			}
		}
	}
	slices.Sort(addrs)
	return each(slices.Compact(addrs), func(addr string) error { return c.HeartbeatTo(ctx, addr) })
}

// HeartbeatTo heartbeats the broker at addr, in at most 3 s. A broker hears one at a
// time, each with what holds when its turn has come: what a client has just told is not
// followed by what it was before. Errors as for HeartbeatAll.
func (c *Client) HeartbeatTo(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	give, err := c.beats.take(ctx, addr)
	if err != nil {
		return fmt.Errorf("heartbeat to %s: the one before has no answer yet: %w", addr, err)
	}
	defer give()
	data := c.heartbeatData()
	if data == nil {
		return nil
	}
	if conn, ok := c.brokers.held(addr); ok {
		_, err := conn.Heartbeat(ctx, data)
		if err == nil {
			return nil
		}
		if !answered(err) && c.life.Err() == nil && ctx.Err() != context.Canceled {
			c.Lost(addr, conn)
		}
		if !errors.Is(err, protocol.ErrUnreachable) || ctx.Err() != nil {
			return fmt.Errorf("heartbeat to %s: %w", addr, err)
		}
	}
	// A session that is dialled now begins with a heartbeat.
	if _, err := c.Broker(ctx, addr); err != nil {
		return fmt.Errorf("heartbeat to %s: %w", addr, err)
	}
	return nil
}

// Unregister takes the client out of its groups, "" for none, at every broker
// it has a session with, all at the same time. Best effort: what fails is
// logged, since the broker forgets the client when the session ends. It
// returns when each has answered or failed, in at most 3 s.
// Java: unregisterClient.
func (c *Client) Unregister(ctx context.Context, producerGroup, consumerGroup string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conns := c.brokers.conns.all()
	addrs := slices.Sorted(maps.Keys(conns))
	err := each(addrs, func(addr string) error {
		_, err := conns[addr].UnregisterClient(ctx, &protocol.UnregisterClientRequest{
			ClientID: c.cfg.Node, ProducerGroup: producerGroup, ConsumerGroup: consumerGroup,
		})
		if err != nil {
			return fmt.Errorf("unregister at %s: %w", addr, err)
		}
		return nil
	})
	if err != nil {
		c.cfg.Logger.Debug("not unregistered everywhere", "err", err)
	}
}

// each calls f for all addresses at the same time and joins the errors, in the
// order of addrs.
func each(addrs []string, f func(addr string) error) error {
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		if i == len(addrs)-1 {
			errs[i] = f(addr) // the last one here: most clusters have one broker
			break
		}
		wg.Go(func() { errs[i] = f(addr) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
