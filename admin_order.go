package pocketmq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/protocol"
)

// orderConf is the order configuration of a topic, share by share, sorted by
// broker: "broker-a:4;broker-b:4".
type orderConf []string

// brokerOf is the broker group of a share.
func brokerOf(share string) string {
	broker, _, _ := strings.Cut(share, ":")
	return broker
}

func parseOrderConf(text string) (c orderConf) {
	for share := range strings.SplitSeq(text, ";") {
		if share != "" {
			c = append(c, share)
		}
	}
	return c
}

// without takes out the shares of broker groups.
func (c orderConf) without(brokers []string) orderConf {
	return slices.DeleteFunc(slices.Clone(c), func(share string) bool { return slices.Contains(brokers, brokerOf(share)) })
}

func (c orderConf) String() string {
	sorted := slices.SortedStableFunc(slices.Values(c), func(a, b string) int { return cmp.Compare(brokerOf(a), brokerOf(b)) })
	return strings.Join(sorted, ";")
}

// order notes at every name server that a topic is ordered: with queues on each
// of the brokers, which are all there are or some of them.
// Java: DefaultMQAdminExt.createOrUpdateOrderConf.
func (a *Admin) order(ctx context.Context, topic string, queues int, brokers []master, all bool) error {
	var names []string
	for _, b := range brokers {
		names = append(names, b.name)
	}
	var c orderConf
	if !all {
		old, _, err := a.client.KVConfig(ctx, protocol.NamespaceOrderTopic, topic)
		if err != nil {
			return err
		}
		c = parseOrderConf(old).without(names)
	}
	for _, name := range names {
		c = append(c, fmt.Sprintf("%s:%d", name, queues))
	}
	return a.putOrder(ctx, topic, c)
}

// unorder takes the shares of broker groups, nil = all, out of the order of a
// topic, if it has one.
func (a *Admin) unorder(ctx context.Context, topic string, brokers []string) error {
	old, found, err := a.client.KVConfig(ctx, protocol.NamespaceOrderTopic, topic)
	if err != nil || !found {
		return err
	}
	c := parseOrderConf(old)
	rest := c.without(brokers)
	switch {
	case len(brokers) == 0:
		rest = nil
	case len(rest) == len(c):
		return nil
	}
	return a.putOrder(ctx, topic, rest)
}

// putOrder replaces the order of a topic at every name server.
func (a *Admin) putOrder(ctx context.Context, topic string, c orderConf) error {
	err := a.client.EachNameServer(ctx, func(ctx context.Context, conn protocol.NameServerConn) error {
		var err error
		if len(c) == 0 {
			_, err = conn.DeleteKVConfig(ctx, &protocol.DeleteKVConfigRequest{Namespace: protocol.NamespaceOrderTopic, Key: topic})
		} else {
			_, err = conn.PutKVConfig(ctx, &protocol.PutKVConfigRequest{Namespace: protocol.NamespaceOrderTopic, Key: topic, Value: c.String()})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("order configuration: %w", err)
	}
	return nil
}

// WipeWritePerm takes the write permission from all topics of a broker group in
// the routes of every name server, so that producers send elsewhere, each from
// its next route refresh on: before the broker is taken away, say. What it holds
// is consumed as before.
//
// It is the name servers that say so: the broker itself still takes what it is
// sent. A topic gets its own permission back when the broker's settings of that
// topic change, all of them when the broker restarts or loses its connection; a
// name server that restarts knows nothing of it either. An ordered topic (see
// TopicConfig.Order) keeps its queues, and producers go on sending to them.
//
// Errors: ErrNotFound when no name server knows a topic of the broker group;
// ErrUnreachable, ErrTimeout: then name servers that were reached have done it,
// and it may be called again. Java: wipeWritePermOfBroker.
func (a *Admin) WipeWritePerm(ctx context.Context, broker string) error {
	return a.writePerm(ctx, "wipe write permission of "+broker, broker, func(ctx context.Context, conn protocol.NameServerConn) (int, error) {
		r, err := conn.WipeWritePerm(ctx, &protocol.WipeWritePermRequest{BrokerName: broker})
		if err != nil {
			return 0, err
		}
		return r.Topics, nil
	})
}

// AddWritePerm makes all topics of a broker group readable and writable in the
// routes of every name server, whatever they were before WipeWritePerm, as
// RocketMQ does. Errors as WipeWritePerm's. Java: addWritePermOfBroker.
func (a *Admin) AddWritePerm(ctx context.Context, broker string) error {
	return a.writePerm(ctx, "add write permission of "+broker, broker, func(ctx context.Context, conn protocol.NameServerConn) (int, error) {
		r, err := conn.AddWritePerm(ctx, &protocol.AddWritePermRequest{BrokerName: broker})
		if err != nil {
			return 0, err
		}
		return r.Topics, nil
	})
}

func (a *Admin) writePerm(ctx context.Context, what, broker string, call func(context.Context, protocol.NameServerConn) (int, error)) error {
	return a.bounded(ctx, what, func(ctx context.Context) error {
		var topics atomic.Int64
		err := a.client.EachNameServer(ctx, func(ctx context.Context, conn protocol.NameServerConn) error {
			n, err := call(ctx, conn)
			topics.Add(int64(n))
			return err
		})
		if err == nil && topics.Load() == 0 {
			return fmt.Errorf("no name server knows a topic of a broker group %q: %w", clip(broker), ErrNotFound)
		}
		return err
	})
}
