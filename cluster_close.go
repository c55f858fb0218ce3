package pocketmq

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
)

// Shutdown lets consumers finish what they handle and producers what they
// send, until ctx ends, then closes.
func (c *Cluster) Shutdown(ctx context.Context) error {
	if err := c.life.use(); err != nil {
		return c.Close()
	}
	c.mu.Lock()
	clients := slices.Clone(c.clients)
	c.mu.Unlock()
	drain := func(consumers bool) error {
		return each(clients, func(cl clusterClient) error {
			if cl.consumer != consumers {
				return nil
			}
			return cl.shutdown(ctx)
		})
	}
	err := errors.Join(drain(true), drain(false))
	if cerr := c.Close(); err == nil {
		err = cerr
	}
	return err
}

// Close closes the clients started through the cluster, then brokers, then
// name servers, and returns when nothing runs any more. It joins their errors,
// ErrHandlersRunning of consumers among them. Members that were killed count
// as closed. A throwaway folder is removed.
func (c *Cluster) Close() error {
	return c.life.close(func() error {
		c.cancel()
		c.turn <- struct{}{} // a change in progress was cancelled
		defer func() { <-c.turn }()
		return c.closeAll()
	}, func() error { return errors.Join(c.closeClients(), c.wire.events.close()) })
}

// closeClients closes all clients at the same time; again, for those whose
// handlers had not returned.
func (c *Cluster) closeClients() error {
	c.mu.Lock()
	clients := slices.Clone(c.clients)
	c.mu.Unlock()
	return each(clients, func(cl clusterClient) error { return cl.close() })
}

func (c *Cluster) closeAll() error {
	c.cancel()
	c.mu.Lock()
	members := slices.Clone(c.members)
	c.mu.Unlock()
	for _, m := range members {
		m.disk.Slow(0)
		m.disk.Full(false)
	}
	c.mu.Lock()
	servers := slices.Clone(c.servers)
	c.mu.Unlock()
	for _, s := range servers {
		s.gate.open() // nobody has to wait for one that is paused
	}
	errs := []error{c.closeClients()}
	if c.admin != nil {
		errs = append(errs, c.admin.Close())
	}
	c.stopControllers()
	var masters, slaves []*Broker
	for b := range c.Brokers() {
		if b.Role() == RoleMaster {
			masters = append(masters, b)
		} else {
			slaves = append(slaves, b)
		}
	}
	errs = append(errs, each(masters, c.closeBroker), each(slaves, c.closeBroker))
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	errs = append(errs, c.wire.events.close())
	if c.throwaway {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

func (c *Cluster) closeBroker(b *Broker) error {
	if b.life.use() != nil { // killed, or closed by its user: its own Close says how that went
		_ = b.Close()
		return nil
	}
	if c.throwaway {
		return b.discard()
	}
	return b.Close()
}

// each calls f for all of list at the same time and joins the errors.
func each[T any](list []T, f func(T) error) error {
	if len(list) == 1 {
		return f(list[0])
	}
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, v := range list {
		wg.Go(func() { errs[i] = f(v) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
