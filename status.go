package pocketmq

import "time"

// NameServerStatus is a snapshot of a name server.
type NameServerStatus struct {
	Brokers      []BrokerLive // sorted by name and id
	Topics       int
	RouteChanges int64 // topics whose route changed, since Start
	Requests     int64 // served, since Start
}

// BrokerLive is a broker as a name server sees it.
type BrokerLive struct {
	Name string
	ID   int64
	Addr string
	Age  time.Duration // since its last sign of life
}

// BrokerStatus is a snapshot of a broker.
type BrokerStatus struct {
	Role     Role
	Epoch    int64 // of the master that it is, or whose log it follows; 0 = nobody has ever replicated it. See Broker.Epoch
	Writable bool
	Reason   string // why not writable; "" when it is
	// Positions count the records of the commit log from 1; each is the last
	// one that is kept, written, synced, dispatched to its queue (0 = none).
	MinPosition, WrittenPosition, SyncedPosition, DispatchedPosition int64
	ConfirmedPosition                                                int64         // of a master with slaves: all that are in sync have it, the master alone when no slave is; of a slave: what its master said of that
	Slaves                                                           []SlaveStatus // of a master: those that it has known since it became master, by id; see SlaveStatus
	Master                                                           MasterStatus  // of a slave
	Cut                                                              int           // records cut from a torn end at the last open
	HeldPulls, Connections                                           int
	PutRate, GetRate                                                 float64 // messages a second since the Status call before this one (at least a second apart), or since Start
	Err                                                              error   // why the store takes no messages: a failed write, damage found at Start, a full disk; nil when it does
	Damage                                                           error   // the first damage that a read has met since Start; sends go on. See DamageFound
}

// SlaveStatus is how far a slave is, as its master sees it: one that is gone stays, for as
// long as the master is master, with what it had; of those that are neither connected nor
// in sync the last 64. Java: HAConnectionRuntimeInfo.
type SlaveStatus struct {
	ID        int64
	Connected bool
	Addr      string // of its end of the link; "" when it is not connected
	Acked     int64  // the last position that it has acknowledged on its last link; 0 before the first
	// What it lacks: LagBytes is an estimate, Lag the age of the oldest message that it
	// is not known to have, 0 when it has all.
	LagMessages, LagBytes int64
	Lag                   time.Duration
	// InSync: answers rest on it. Without failover it is connected and has lacked
	// something for 15 s at most, measured from when it had last acknowledged all, so
	// that a slow link counts, too. With failover that is what the controller has
	// stored: one that is gone stays in it for LeaseExpire, and for longer when the set
	// would get smaller than MinInSyncReplicas.
	InSync bool
}

// MasterStatus is the link of a slave to its master, as the slave sees it.
type MasterStatus struct {
	Connected bool
	Addr      string // of the master, or of the last one
	Epoch     int64
	End       int64 // of the master's log, as it said last
	Err       error // why the slave does not follow
}

// GroupStatus is a snapshot of a consumer group: as one broker sees it
// (Broker.Group), or as all of them and its members do (Admin.Group).
type GroupStatus struct {
	Name    string
	Model   MessageModel   // what its members said last; Clustering without any
	Orderly bool           // some queue is locked: the members consume in order
	Members []MemberStatus // sorted by client id
	Differ  string         // which members subscribe to what, when not all to the same; "" when they agree
	Queues  []QueueLag     // queues that the group subscribes to or has committed, sorted; last those of its %RETRY% topic that ever held a message; of a broadcasting group without its progress, see QueueLag
	// Locks tell which client holds which queue; locks that were not renewed for
	// Timings.LockExpire are left out. nil without any.
	Locks map[MessageQueue]string
}

// MemberStatus is one member of a consumer group.
type MemberStatus struct {
	ClientID, Addr string
	Subscriptions  map[string]string // topic -> expression; without the group's %RETRY% topic
	// Assigned are the queues that it has, sorted, without those of %RETRY%. A
	// broker does not know shares, it knows who pulls: there a queue belongs to the
	// member whose pull came last (in a broadcasting group to each that pulls it),
	// until that one gives it up or is gone. Admin.Group asks the members.
	Assigned      []MessageQueue
	LastHeartbeat time.Time // zero when nobody could tell
}

// QueueLag tells how far a group has come in a queue, by what it has committed at
// the broker. A broadcasting group commits nothing there, its members keep their
// own offsets: everything is Lag then, whatever they have consumed. Wait for such a
// group by what its handlers did.
type QueueLag struct {
	Queue     MessageQueue
	Committed int64 // -1 = none
	Max       int64 // the queue's end
	Lag       int64 // messages not consumed; without a commit, all that the queue holds; never negative
	// LastConsumed is when the last message before Committed was stored; zero
	// without one, or when it is not there any more.
	LastConsumed time.Time
}

// ConsumerStatus counts what a consumer did since its Start.
type ConsumerStatus struct {
	Received int64 // messages pulled that match the subscription, and those of the group's retry topic
	Consumed int64 // messages whose handler returned nil, or counted them in Done
	Failed   int64 // failed deliveries, those that took longer than ConsumeTimeout included
	SentBack int64 // failed messages that a broker has taken back, to be retried or as dead letters
	Running  int   // handlers running now
	// Idle are the subscribed topics of which this consumer got no queue, sorted;
	// nil for none. The event ConsumerIdle tells what can be done.
	Idle []string
	// Undecodable counts stored messages that could not be decoded, or inflated
	// to more than 16 MiB. They are logged as errors and passed over.
	Undecodable int64
}

// QueueStatus is a snapshot of one queue that a consumer holds. Java:
// ProcessQueueInfo.
type QueueStatus struct {
	Queue          MessageQueue
	Cached         int       // messages received and not finished
	CachedBytes    int64     // of them, as they are stored
	CommitOffset   int64     // the lowest unfinished offset: what is committed next
	NextPullOffset int64     // where the next pull begins
	Locked         bool      // Orderly: the broker's lock is held, and young enough to count
	Paused         bool      // by Pause
	Pulling        bool      // a pull is under way; a broker may hold it for PullSuspend
	LastPull       time.Time // when it, or the one before, was sent
}

// ProducerStatus counts what a producer did since its Start. A batch counts
// once.
type ProducerStatus struct {
	Sent     int64 // acknowledged, or handed over oneway
	Failed   int64 // returned an error
	Retried  int64 // attempts after the first one
	InFlight int   // sends running now
}
