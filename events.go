package pocketmq

import (
	"sync"
	"sync/atomic"
	"time"
)

// Event is something that happened in a cluster: one struct per kind, with
// EventBase embedded. OnEvent functions get events in order from one
// goroutine, outside all locks. A function that can't keep up loses events
// (Dropped tells how many), never slows the cluster down. An event at which it
// panics counts as lost. It may call Close.
type Event interface{ Base() EventBase }

// EventBase is common to all events.
type EventBase struct {
	Time    time.Time
	Node    string // the node it happened at: "ns-0", "broker-a/0", a client id
	Dropped int64  // events lost before this one because OnEvent was too slow
}

// Base returns the common part.
func (b EventBase) Base() EventBase { return b }

// BrokerRegistered: a name server learned of a broker, or of a new address.
type BrokerRegistered struct {
	EventBase
	Broker string
	ID     int64
	Addr   string
}

// BrokerExpired: a name server dropped a broker that did not say goodbye.
type BrokerExpired struct {
	EventBase
	Broker string
	ID     int64
	Addr   string
	Reason string // "silent" or "connection closed"
}

// SlaveConnected: a slave follows the master of its group, which tells it.
type SlaveConnected struct {
	EventBase
	ID       int64
	Addr     string // of its end of the link
	Position int64  // up to which its log is the master's
}

// SlaveDisconnected: a slave does not follow its master any more, or was refused.
type SlaveDisconnected struct {
	EventBase
	ID   int64 // -1: it has not said who it is
	Addr string
	Err  error
}

// MasterFollowed: a slave follows a master.
type MasterFollowed struct {
	EventBase
	ID       int64 // of the master
	Addr     string
	Epoch    int64
	Position int64 // up to which the slave's log is the master's
}

// MasterLost: a slave follows its master no more, or cannot begin to. It tries again by
// itself. It is told once, until it follows again or the reason is another one.
type MasterLost struct {
	EventBase
	Addr string // "" when it was not reached
	Err  error
}

// Elected: a broker has become the master of its group, under an epoch.
type Elected struct {
	EventBase
	Epoch int64
}

// UncleanElection: a broker has become the master of its group although messages that
// were acknowledged may be lost by it, see Cluster.ElectUnclean. Its node is the group's
// controller.
type UncleanElection struct {
	EventBase
	Broker string // the group
	ID     int64
	Epoch  int64
}

// Truncated: a slave has cut off the end of its log, which its master does not have.
type Truncated struct {
	EventBase
	From, To int64 // last position before, and after
	Epoch    int64 // of the master
}

// LogRestarted: a slave has dropped its log, which begins anew at a position: it was
// too far behind, or had none.
type LogRestarted struct {
	EventBase
	From     int64 // last position before
	Position int64 // first one now
	Epoch    int64 // of the master
	Err      error // why nothing could be kept; nil: it held nothing
}

// RouteChanged: the routes of some topics changed at a name server.
type RouteChanged struct {
	EventBase
	Topics []string
}

// MemberJoined: a client joined a consumer group at a broker.
type MemberJoined struct {
	EventBase
	Group, Client string
}

// MemberLeft: a client left a consumer group at a broker.
type MemberLeft struct {
	EventBase
	Group, Client string
	Reason        string // "unregistered", "connection closed", "silent"
}

// Rebalanced: a consumer's share of a topic's queues changed.
type Rebalanced struct {
	EventBase
	Group, Client, Topic string
	Before, After        []MessageQueue // sorted
	Reason               string         // "start", "subscriptions changed", "members changed", "route changed", "periodic", "retry"
}

// SubscriptionsDiffer: the members of a consumer group do not all subscribe to the
// same, or not by the same model. A broker has one view of a group, so messages may
// be left out for some, and queues may fall to members that do not want them. It is
// told once, until something of it changes.
type SubscriptionsDiffer struct {
	EventBase
	Group string
	How   string // which members subscribe to what, and the remedy
}

// ConsumerIdle: a consumer got none of a topic's queues. It is told once, until the
// consumer gets some and loses them again. With more Members than Queues the others
// have them all, and the remedy is more queues, or fewer consumers; otherwise the
// Strategy gives it none.
type ConsumerIdle struct {
	EventBase
	Group, Client, Topic string
	Members, Queues      int    // of the group, of the topic
	Strategy             string // name of the allocation strategy
}

// OffsetJumped: a queue goes on at another offset than the consumer had asked for,
// because that one was not in the queue any more, or not yet (retention, a log that
// lost its end, a Seek), or because somebody reset the group. Its node is the
// consumer.
type OffsetJumped struct {
	EventBase
	Group    string
	Queue    MessageQueue
	From, To int64
}

// BrokerAvoided: a producer began to avoid a broker that was slow or failed (see
// ProducerConfig.Fault). Its node is the producer. That it avoids it for longer
// is no event, nor is the end.
type BrokerAvoided struct {
	EventBase
	Broker  string
	Latency time.Duration // of the attempt that was too slow, or failed
	Until   time.Time     // until then the broker gets nothing as long as there is another
}

// StoreFenced: a broker's store refuses writes. Err says why: after a failed write
// or sync it is ErrFenced; because there is too little space on the disk,
// ErrDiskFull; because its log was found damaged at Start, ErrFenced, and its text
// names file and position. The first of these ends with Cluster.Kill and Restart, or
// with Close and a new broker on the same folder, which lose nothing acknowledged;
// the second by itself; the third when the folder has been salvaged.
type StoreFenced struct {
	EventBase
	Err error
}

// StoreRepaired: a broker's store takes writes again. After StoreFenced that was
// in place, and Cut counts messages whose sends had failed; 0 when they were only
// refused for a lack of space. At a start it means
// that a torn end was cut off the log, and Cut, as in BrokerStatus, counts messages
// of which nothing proved that they had been synced.
type StoreRepaired struct {
	EventBase
	Cut int
}

// MessagesDeleted: a broker deleted old messages, consumed or not.
type MessagesDeleted struct {
	EventBase
	Reason   string // "age" (BrokerConfig.Retention), "size" (RetentionBytes), "space" (MinFreeBytes)
	Files    int    // of the commit log
	From, To int64  // positions, both included
}

// DamageFound: a broker has met stored data that is damaged, once for each place.
// Sends go on; what is damaged cannot be read, and a consumer group that needs it
// waits there until the folder has been salvaged, or until an admin sets its offset
// behind.
type DamageFound struct {
	EventBase
	Err error // names file and position
}

// eventBuffer bounds what may wait for a slow OnEvent.
const eventBuffer = 1024

// emitter hands events to one OnEvent function. A nil emitter drops all.
type emitter struct {
	ch      chan queuedEvent
	dropped atomic.Int64
	stop    chan struct{}
	once    sync.Once // closes stop
	done    chan struct{}
}

type queuedEvent struct {
	base func(EventBase) Event
	at   time.Time
	node string
}

// newEmitter starts the goroutine that calls f; close ends it.
func newEmitter(f func(Event)) *emitter {
	if f == nil {
		return nil
	}
	e := &emitter{ch: make(chan queuedEvent, eventBuffer), stop: make(chan struct{}), done: make(chan struct{})}
	go e.run(f)
	return e
}

// run delivers events until close, then what is queued. A panic of f is an
// event lost; a goroutine that f ended (runtime.Goexit) is replaced.
func (e *emitter) run(f func(Event)) {
	ended := false
	defer func() {
		if ended {
			close(e.done)
			return
		}
		e.dropped.Add(1)
		go e.run(f)
	}()
	for {
		select {
		case q := <-e.ch:
			e.deliver(f, q)
		case <-e.stop:
			for { // what was emitted before close is still delivered
				select {
				case q := <-e.ch:
					e.deliver(f, q)
				default:
					ended = true
					return
				}
			}
		}
	}
}

func (e *emitter) deliver(f func(Event), q queuedEvent) {
	defer func() {
		if recover() != nil {
			e.dropped.Add(1)
		}
	}()
	f(q.base(EventBase{Time: q.at, Node: q.node, Dropped: e.dropped.Swap(0)}))
}

// emit queues an event made by base. It never blocks.
func (e *emitter) emit(node string, base func(EventBase) Event) {
	if e == nil {
		return
	}
	select {
	case e.ch <- queuedEvent{base, time.Now(), node}:
	default:
		e.dropped.Add(1)
	}
}

// close delivers what is queued and joins the goroutine. Called from OnEvent
// itself it gives up after closeTimeout with ErrHandlersRunning. It may be
// called again.
func (e *emitter) close() error {
	if e == nil {
		return nil
	}
	e.once.Do(func() { close(e.stop) })
	return waitOr(e.done, closeTimeout)
}

// closeTimeout bounds how long a Close waits for user code.
const closeTimeout = 10 * time.Second

// waitOr waits for done, at most d; then ErrHandlersRunning.
func waitOr(done <-chan struct{}, d time.Duration) error {
	select {
	case <-done:
		return nil
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return ErrHandlersRunning
	}
}
