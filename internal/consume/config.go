package consume

import (
	"context"
	"log/slog"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

// Config describes an engine. It is complete: whoever makes it fills in the
// defaults and checks the ranges. The engine copies Subscriptions.
type Config struct {
	Group    string // consumer group
	ClientID string // this member's id, as brokers list it
	Model    protocol.MessageModel

	// OffsetFile is where a broadcasting member keeps how far it has come; "" =
	// in memory only, so that the next Start begins where From says.
	OffsetFile string

	Client Client         // routes and connections
	Codec  *message.Codec // decodes what is delivered; outlives the engine

	// Subscriptions maps each topic to its filter; the zero filter is
	// everything. Empty is legal.
	Subscriptions map[string]filter.Tags

	// Pauses are the queues that are neither pulled nor handed out. Whoever
	// changes it calls PausesChanged. nil: none, for ever.
	Pauses *Pauses

	// Handler consumes 1 to BatchSize messages of one queue. nil: consumed. An
	// error or a panic: every message of the call goes back to its broker, for the
	// group to get it again later, see RetryAfter, DeadLetter and Done. ctx ends when Close gives up on the handler. It runs without
	// locks, up to Concurrency times at once, also for one queue. The messages
	// and the slice belong to the handler.
	Handler func(ctx context.Context, msgs []*message.Ext) error

	From     protocol.ConsumeFrom // where a group without a committed offset starts
	FromTime time.Time            // with ConsumeFromTime; brokers look at whole milliseconds
	Strategy rebalance.Strategy   // shares queues among members; called by one goroutine at a time, for other members too, see allocate

	// Orderly calls one handler per queue at a time, with messages in the order
	// of their offsets. A failed call is repeated, the same messages first, and
	// the queue waits. In a clustering group each queue is locked at its broker.
	Orderly bool

	// Polled hands messages to the callers of Poll: there are no workers, and no
	// Handler. ManualCommit leaves it to Commit what is committed, with one
	// exception: where a member of a group that shares queues begins, see
	// startOffset.
	Polled       bool
	ManualCommit bool

	Concurrency   int // workers; at least 1, 0 of a polled engine. Java: consumeThreadMax
	BatchSize     int // messages per handler call; at least 1. Java: consumeMessageBatchMaxSize
	PullBatchSize int // messages per pull; at least 1. Java: pullBatchSize

	// Flow control: a queue is pulled while a whole batch fits below MaxCached
	// messages and the three other limits are not reached. Records count with
	// their stored size. The byte limits are looked at before a pull, so what
	// the pulls in flight bring comes on top.
	MaxCached      int   // unfinished messages per queue. Java: pullThresholdForQueue
	MaxCachedBytes int64 // per queue. Java: pullThresholdSizeForQueue
	MaxCachedTotal int64 // bytes of all queues
	MaxCachedAll   int   // messages of all queues; 0 = without limit. Java: pullThresholdForAll of a lite pull consumer
	MaxSpan        int64 // highest received - lowest unfinished offset; not of an orderly engine. Java: consumeConcurrentlyMaxSpan

	// MaxReconsume is how many attempts a message gets after the first one, before
	// it is a dead letter; GroupMaximum = as many as the group's settings say, in
	// order: without limit.
	// Java: maxReconsumeTimes.
	MaxReconsume int
	// ConsumeTimeout is how long a handler may have a message before the message
	// is given back, as after a failure; not in order, nor of a broadcast. Java:
	// consumeTimeout.
	ConsumeTimeout time.Duration
	CloseTimeout   time.Duration // how long Close waits for cancelled handlers

	Rebalance      time.Duration // between two periodic rounds
	RebalanceRetry time.Duration // after a round that left something undone; after a pull that the broker knew no subscription for
	RouteRetry     time.Duration // between two looks for a topic without a route
	OffsetPersist  time.Duration // between two commits
	PullSuspend    time.Duration // how long a broker may hold a pull
	PullErrorDelay time.Duration // after a failed pull
	PullExpire     time.Duration // a queue whose last pull is older is dropped and taken anew

	// Of an orderly engine.
	LockRenew      time.Duration // between two renewals of all locks
	LockClientLife time.Duration // no handler starts on a lock older than this
	OrderlySuspend time.Duration // before a failed message is handed out again

	Logger *slog.Logger // never nil

	// OnRebalanced, when not nil, is told of every change of the queues held,
	// outside all locks, in order. It must not block: the rebalance loop waits
	// for it.
	OnRebalanced func(Rebalanced)

	// OnJumped, when not nil, is told when a queue goes on at another offset than
	// this member asked for, outside all locks. It must not block.
	OnJumped func(Jumped)

	// OnIdle, when not nil, is told when this member of a clustering group got none
	// of a topic's queues. The same rules as for OnRebalanced.
	OnIdle func(Idle)
}

// Rebalanced tells that the queues held of one topic changed.
type Rebalanced struct {
	Topic         string
	Before, After []message.Queue // sorted; owned by the receiver
	Reason        string          // "start", "subscriptions changed", "members changed", "route changed", "periodic" or "retry"
}

// Idle tells that this member got none of a topic's queues.
type Idle struct {
	Topic   string
	Members int // of the group
	Queues  int // that they share

	Strategy string // name of the one that shared them out
}

// Status is a snapshot of an engine's counters, all since the last Start.
type Status struct {
	Received    int64 // messages pulled, after the filter
	Consumed    int64 // messages whose handler returned nil
	Failed      int64 // failed deliveries, in messages; those whose time was up included
	SentBack    int64 // messages that a broker has taken back, dead letters included
	Undecodable int64 // records passed over because they do not decode
	Running     int   // handler calls that have not returned

	Idle []string // topics of which this member got no queue, sorted
}
