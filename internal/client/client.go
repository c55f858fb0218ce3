package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Config says who the client is and whom it talks to. Copied by New.
type Config struct {
	Node        string             // client id; node name at the transport
	NameServers []string           // addresses, at least one
	Transport   protocol.Transport // never nil
	Peer        protocol.Peer      // calls from brokers; nil = none are wanted

	// RouteRefresh is how often the loop asks for every route that somebody
	// uses (Java: pollNameServerInterval), Heartbeat how often it heartbeats the
	// brokers (Java: heartbeatBrokerInterval). 0 = 30 s.
	RouteRefresh, Heartbeat time.Duration

	// RouteRetry is how soon the loop asks for routes again after Suspect, and while
	// a broker group has no master. 0 = 1 s.
	RouteRetry time.Duration

	Logger *slog.Logger // never nil

	// HeartbeatData returns what to tell the brokers. When it is nil, or
	// returns nil, there are no heartbeats. It is called by the loop and by
	// whoever has a session dialled; it must not block.
	HeartbeatData func() *protocol.HeartbeatRequest

	// RoutesChanged is told the topics whose routes have changed, a first route
	// included: by the loop, once for a round, and by the caller of Refresh. It
	// is called outside of all locks and must not call Close. nil = nobody asks.
	RoutesChanged func(topics []string)
}

const (
	defaultInterval = 30 * time.Second
	defaultRetry    = time.Second
	callTimeout     = 3 * time.Second // of one call to one server. Java: mqClientApiTimeout
	connectTimeout  = 3 * time.Second // Java: connectTimeoutMillis
)

// Client finds topics and brokers for one Producer, Consumer or Admin. Safe
// for concurrent use.
type Client struct {
	cfg    Config
	life   context.Context // ends with Close
	cancel context.CancelFunc
	ended  chan struct{} // closed when the first Close is done

	running sync.WaitGroup // the loop, and what flights run

	suspect chan struct{} // 1 slot: routes may have changed

	mu      sync.Mutex // guards what follows, and additions to running
	started bool
	closed  bool
	err     error // what the first Close returned

	names     *nameServers
	brokers   *pool[protocol.BrokerConn]
	lookups   flights[*Route]
	renewals  flights[bool]
	beats     turns // of heartbeats to brokers
	lookupSeq atomic.Uint64
	routes    table[*cachedRoute]
	addresses table[protocol.BrokerData] // by broker name, as the latest route has it
	watched   table[struct{}]            // topics the loop asks for although they may have no route yet
}

// New makes a client and starts nothing. It works before Start, only without
// the loop.
func New(cfg Config) *Client {
	cfg.NameServers = slices.Clone(cfg.NameServers)
	if cfg.RouteRefresh <= 0 {
		cfg.RouteRefresh = defaultInterval
	}
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = defaultInterval
	}
	if cfg.RouteRetry <= 0 {
		cfg.RouteRetry = min(defaultRetry, cfg.RouteRefresh)
	}
	c := &Client{cfg: cfg, ended: make(chan struct{}), suspect: make(chan struct{}, 1)}
	c.life, c.cancel = context.WithCancel(context.Background())
	c.names = newNameServers(c, cfg.NameServers)
	c.brokers = &pool[protocol.BrokerConn]{c: c, dial: c.dialBroker}
	return c
}

// Start begins the loop: routes are refreshed every RouteRefresh and brokers
// heartbeated every Heartbeat, both counted from now. A second Start, and one
// after Close, do nothing. It does not block.
func (c *Client) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.closed {
		return
	}
	c.started = true
	c.running.Go(c.routeLoop)
	c.running.Go(c.beatLoop)
}

// Close ends the loop and all sessions, fails calls in flight, and returns
// when nothing of the client runs any more. A second Close waits for the
// first and returns the same. Later calls of other methods that would have to
// ask a server return protocol.ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if !first {
		<-c.ended
		return c.err
	}
	c.cancel()
	err := errors.Join(c.brokers.close(), c.names.pool.close())
	c.running.Wait()
	c.err = err
	close(c.ended)
	return err
}

// AddNameServer makes the client know one more name server. One that it knows
// is not added again.
func (c *Client) AddNameServer(addr string) { c.names.add(addr) }

// beatLoop, like routeLoop, runs until Close. They are two, so that a slow name
// server does not make brokers believe that the client has died.
func (c *Client) beatLoop() {
	c.every(c.cfg.Heartbeat, func() {
		if err := c.HeartbeatAll(c.life); err != nil && c.life.Err() == nil {
			c.cfg.Logger.Warn("heartbeat failed", "err", err)
		}
	})
}

// every calls f at each multiple of d until Close.
func (c *Client) every(d time.Duration, f func()) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// begin counts shared work that is about to run. It is false after Close.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Add(1)
	return true
}

func (c *Client) errClosed() error {
	return fmt.Errorf("client %s: %w", c.cfg.Node, protocol.ErrClosed)
}

// answered tells whether a server has answered, be it with an error.
func answered(err error) bool {
	var e *protocol.Error
	return err == nil || errors.As(err, &e)
}

// contextError returns the context error that err carries, nil if none.
func contextError(err error) error {
	for _, e := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}

// unreachable is an error with a text of its own that matches
// protocol.ErrUnreachable, and the context error if cause carries one: nothing
// of what the caller wanted has left.
func unreachable(cause error, format string, args ...any) error {
	is := []error{protocol.ErrUnreachable}
	if ended := contextError(cause); ended != nil {
		is = append(is, ended)
	}
	return protocol.Tagged(fmt.Sprintf(format, args...), is...)
}
