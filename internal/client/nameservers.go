package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// A call that had less time than this and got no answer says little about the
// server. Java: NettyRemotingClient.MIN_CLOSE_TIMEOUT_MILLIS.
const fairTimeout = 100 * time.Millisecond

// nameServers chooses whom to ask: the first one at random, the same one as
// long as it works, the next one after a failure, and when what it knows of a broker
// seems to be wrong.
//
// Differs: the Java client fails the call and takes the next name server for
// the next call; here each is asked once within the call.
type nameServers struct {
	c    *Client
	pool *pool[protocol.NameServerConn]

	mu     sync.Mutex // guards what follows and the fields of nameServer
	list   []*nameServer
	chosen int // index in list
}

type nameServer struct {
	addr    string // never changes
	backoff Backoff
	err     error // the last failure; nil = none since the last success
}

// attempt is what asking one name server came to.
type attempt struct {
	addr string
	err  error
}

func newNameServers(c *Client, addrs []string) *nameServers {
	n := &nameServers{c: c}
	n.pool = &pool[protocol.NameServerConn]{c: c, dial: func(ctx context.Context, addr string) (protocol.NameServerConn, error) {
		return c.cfg.Transport.DialNameServer(ctx, protocol.Dial{Node: c.cfg.Node, Addr: addr})
	}}
	for _, a := range addrs {
		n.add(a)
	}
	if len(n.list) > 0 {
		n.chosen = rand.IntN(len(n.list))
	}
	return n
}

func (n *nameServers) add(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.list {
		if s.addr == addr {
			return
		}
	}
	n.list = append(n.list, &nameServer{addr: addr})
}

// order lists all name servers, the chosen one first. ready tells which of
// them are not in back-off at now, earliest when the first of them will be.
func (n *nameServers) order(now time.Time) (all []*nameServer, ready map[*nameServer]bool, earliest time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ready = make(map[*nameServer]bool)
	for i := range n.list {
		s := n.list[(n.chosen+i)%len(n.list)]
		all = append(all, s)
		if !s.backoff.Until.After(now) {
			ready[s] = true
		} else if earliest.IsZero() || s.backoff.Until.Before(earliest) {
			earliest = s.backoff.Until
		}
	}
	return all, ready, earliest
}

// ask puts a question to the chosen name server and then to each other once,
// until one answers without an error. If none does, the attempts tell why.
// Each call may take 3 s, and its share of the time that ctx leaves to those
// not asked yet. When all are in back-off, a patient caller waits for the
// first to come out of it, if that is before ctx's deadline.
func ask[T any](ctx context.Context, n *nameServers, patient bool, question func(context.Context, protocol.NameServerConn) (T, error)) (v T, attempts []attempt, err error) {
	all, ready, earliest := n.order(time.Now())
	if len(ready) == 0 && patient && n.waitUntil(ctx, earliest) {
		all, ready, _ = n.order(time.Now())
	}
	left := len(ready)
	for _, s := range all {
		switch {
		case n.c.life.Err() != nil:
			return v, nil, n.c.errClosed()
		case !ready[s]:
			err = n.notRetried(s)
		case ctx.Err() != nil:
			err = unreachable(ctx.Err(), "%s: not asked: %v", s.addr, ctx.Err())
		default:
			if v, err = askOne(ctx, n, s, share(ctx, left), question); err == nil {
				return v, nil, nil
			}
			left--
		}
		attempts = append(attempts, attempt{s.addr, err})
	}
	if n.c.life.Err() != nil {
		return v, nil, n.c.errClosed()
	}
	return v, attempts, errAllFailed
}

// errAllFailed says that no name server gave a good answer; the attempts tell
// more. It stays inside the package.
var errAllFailed = errors.New("no name server answered")

// share is how long one of left calls may take.
func share(ctx context.Context, left int) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return min(callTimeout, time.Until(d)/time.Duration(left))
	}
	return callTimeout
}

// waitUntil waits until at. It is false, at once, when ctx ends before, and
// when the client is closed.
func (n *nameServers) waitUntil(ctx context.Context, at time.Time) bool {
	if d, ok := ctx.Deadline(); ok && !at.Before(d) {
		return false
	}
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-n.c.life.Done():
		return false
	}
}

func askOne[T any](ctx context.Context, n *nameServers, s *nameServer, timeout time.Duration, question func(context.Context, protocol.NameServerConn) (T, error)) (T, error) {
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, held := n.pool.held(s.addr)
	for {
		conn, err := n.pool.get(call, s.addr)
		var v T
		if err == nil {
			v, err = question(call, conn)
		}
		if answered(err) {
			n.succeeded(s)
			return v, err
		}
		if ctx.Err() == context.Canceled || n.c.life.Err() != nil ||
			call.Err() != nil && timeout < fairTimeout {
			return v, err // It is not the server that gave up.
		}
		n.pool.drop(s.addr, conn)
		if held && errors.Is(err, protocol.ErrUnreachable) && call.Err() == nil {
			held = false // The session had died unnoticed: that says nothing about the server.
			continue
		}
		n.failed(s, err)
		return v, err
	}
}

// succeeded ends s's back-off. A chosen one that had failed is not gone back
// to.
func (n *nameServers) succeeded(s *nameServer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.backoff, s.err = Backoff{}, nil
	if n.list[n.chosen].err == nil {
		return
	}
	for i, o := range n.list {
		if o == s {
			n.chosen = i
		}
	}
}

// failed begins s's next back-off and turns to the next name server.
func (n *nameServers) failed(s *nameServer, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.list[n.chosen] == s {
		n.chosen = (n.chosen + 1) % len(n.list)
	}
	now := time.Now()
	if s.backoff.Until.After(now) {
		return // Several calls that fail together are one failure.
	}
	s.backoff.Failed(now)
	s.err = err
}

// turn makes the next name server the chosen one.
func (n *nameServers) turn() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.list) > 0 {
		n.chosen = (n.chosen + 1) % len(n.list)
	}
}

func (n *nameServers) notRetried(s *nameServer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.err == nil {
		return unreachable(nil, "%s: not asked", s.addr) // It has recovered since the order was made.
	}
	return unreachable(nil, "%s: not retried until %s after: %v", s.addr,
		s.backoff.Until.Format("15:04:05.000"), strings.TrimPrefix(s.err.Error(), s.addr+": "))
}

// askAny is ask for a question whose failure has no special meaning.
func askAny[T any](ctx context.Context, n *nameServers, what string, question func(context.Context, protocol.NameServerConn) (T, error)) (T, error) {
	v, attempts, err := ask(ctx, n, true, question)
	if err == errAllFailed {
		err = failure(attempts, fmt.Sprintf("no name server answered for %s", what), fmt.Sprintf("%s not known", what))
	}
	return v, err
}

// failure makes an error of attempts that all failed. silent heads its text
// when no server has answered, otherwise refused does. It is not about a
// missing topic: errors.Is does not find the "not found" of some servers.
func failure(attempts []attempt, silent, refused string) error {
	var is []error
	head := silent
	for _, a := range attempts {
		var answer *protocol.Error
		switch {
		case errors.As(a.err, &answer):
			head = refused
			if answer.Code != protocol.TopicNotExist {
				is = append(is, answer)
			}
		case contextError(a.err) != nil:
			is = append(is, contextError(a.err))
		}
	}
	if head == silent {
		is = append(is, protocol.ErrUnreachable)
	}
	return protocol.Tagged(head+": "+describe(attempts), is...)
}

// describe lists what each name server said.
func describe(attempts []attempt) string {
	texts := make([]string, len(attempts))
	for i, a := range attempts {
		var answer *protocol.Error
		switch {
		case errors.As(a.err, &answer) && answer.Code == protocol.TopicNotExist:
			name := answer.Broker
			if name == "" {
				name = a.addr
			}
			texts[i] = name + ": not found"
		case answer != nil && answer.Broker == "":
			texts[i] = a.addr + ": " + answer.Error()
		case answer != nil || strings.Contains(a.err.Error(), a.addr):
			texts[i] = a.err.Error()
		default:
			texts[i] = a.addr + ": " + a.err.Error()
		}
	}
	return strings.Join(texts, "; ")
}

// EachNameServer calls every name server at the same time, those in back-off too,
// and returns what failed, by name server, in one error. Each call may take 3 s. It
// blocks until all have answered or ctx ends.
func (c *Client) EachNameServer(ctx context.Context, call func(context.Context, protocol.NameServerConn) error) error {
	all, _, _ := c.names.order(time.Now())
	servers := make(map[string]*nameServer, len(all))
	addrs := make([]string, len(all))
	for i, s := range all {
		servers[s.addr], addrs[i] = s, s.addr
	}
	err := each(addrs, func(addr string) error {
		_, err := askOne(ctx, c.names, servers[addr], callTimeout, func(ctx context.Context, conn protocol.NameServerConn) (struct{}, error) {
			return struct{}{}, call(ctx, conn)
		})
		if err != nil && !strings.Contains(err.Error(), addr) {
			err = fmt.Errorf("name server %s: %w", addr, err)
		}
		return err
	})
	if c.life.Err() != nil {
		return c.errClosed()
	}
	return err
}

// ClusterInfo lists all brokers that the chosen name server knows, sorted by
// name; the next name server is asked on an error. The result is the
// caller's. It blocks until one has answered or ctx ends. When none answers
// the error matches protocol.ErrUnreachable. Java: getBrokerClusterInfo.
func (c *Client) ClusterInfo(ctx context.Context) ([]protocol.BrokerData, error) {
	return askAny(ctx, c.names, "the list of brokers", func(ctx context.Context, conn protocol.NameServerConn) ([]protocol.BrokerData, error) {
		r, err := conn.GetClusterInfo(ctx, &protocol.GetClusterInfoRequest{})
		if err != nil {
			return nil, err
		}
		return r.Brokers, nil
	})
}

// AllTopics lists all topics that the chosen name server knows, sorted, system
// topics included; errors and blocking as for ClusterInfo.
// Java: getAllTopicListFromNameServer.
func (c *Client) AllTopics(ctx context.Context) ([]string, error) {
	return askAny(ctx, c.names, "the list of topics", func(ctx context.Context, conn protocol.NameServerConn) ([]string, error) {
		r, err := conn.GetAllTopics(ctx, &protocol.GetAllTopicsRequest{})
		if err != nil {
			return nil, err
		}
		return r.Topics, nil
	})
}

// KVConfig returns a value of the KV configuration, as the first name server that
// has it knows it; found is false when those that answered have none. Errors and
// blocking as for ClusterInfo. Java: getKVConfig.
func (c *Client) KVConfig(ctx context.Context, namespace, key string) (value string, found bool, err error) {
	value, attempts, err := ask(ctx, c.names, true, func(ctx context.Context, conn protocol.NameServerConn) (string, error) {
		r, err := conn.GetKVConfig(ctx, &protocol.GetKVConfigRequest{Namespace: namespace, Key: key})
		if err != nil {
			return "", err
		}
		return r.Value, nil
	})
	if err != errAllFailed {
		return value, err == nil, err
	}
	for _, a := range attempts {
		var answer *protocol.Error
		if errors.As(a.err, &answer) && answer.Code == protocol.QueryNotFound {
			return "", false, nil
		}
	}
	what := fmt.Sprintf("the KV configuration of %q in %s", key, namespace)
	return "", false, failure(attempts, "no name server answered for "+what, what+" not known")
}
