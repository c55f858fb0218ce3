package pocketmq

import "time"

// Timings holds every interval of a cluster and its clients. A zero field
// means RocketMQ's default, given in brackets, or that of the cluster a client
// is started through, changed if need be to fit the fields that are set; a
// negative one is refused, and 100 years are the longest. LockRenew, LockClientLife
// and LockExpire must not descend, nor PullSuspend and PullExpire. Over TCP, where
// a connection ends that is idle for 120 s, members whose BrokerRegister,
// ClientHeartbeat or PullSuspend is longer are gone meanwhile.
// The Java name of each is given where there is one.
type Timings struct {
	BrokerRegister  time.Duration // a broker registers with every name server this often [30 s] (registerNameServerPeriod)
	BrokerExpire    time.Duration // a broker silent for longer is dropped from the routes at the next scan [120 s] (heartbeatTimeoutMillis)
	BrokerScanDelay time.Duration // a name server's first scan for silent brokers after its start [5 s]
	BrokerScan      time.Duration // between two scans [10 s] (scanNotActiveBrokerInterval; 5 s in 5.x)

	ClientHeartbeat time.Duration // clients to brokers [30 s] (heartbeatBrokerInterval)
	ClientExpire    time.Duration // a client silent for longer leaves its groups at the next scan [120 s] (channelExpiredTimeout)
	ClientScan      time.Duration // between two scans of a broker [10 s]

	RouteRefresh time.Duration // clients ask for the routes they use [30 s] (pollNameServerInterval)
	RouteRetry   time.Duration // a consumer asks again for a subscribed topic without a route, and clients for one whose group has no master, or when a broker is not what the route says, at most this often [1 s]

	Rebalance      time.Duration // a consumer recomputes its share of queues [20 s] (rocketmq.client.rebalance.waitInterval)
	RebalanceRetry time.Duration // the same after a round that left something open [1 s] (rocketmq.client.rebalance.minInterval)

	OffsetPersist time.Duration // offsets: client to broker, and broker to disk [5 s] (persistConsumerOffsetInterval, flushConsumerOffsetInterval)

	PullSuspend    time.Duration // a broker holds a pull that finds nothing for this long [15 s] (brokerSuspendMaxTimeMillis)
	PullErrorDelay time.Duration // a failed pull is repeated after this [3 s] (pullTimeDelayMillsWhenException)
	PullExpire     time.Duration // a queue whose pull has had no answer for longer is dropped and taken anew by the next rebalance; more than PullSuspend [120 s] (rocketmq.client.pull.pullMaxIdleTime)

	LockExpire     time.Duration // a broker gives a queue of an orderly group to another member once its lock was not renewed for this long [60 s] (rocketmq.broker.rebalance.lockMaxLiveTime)
	LockRenew      time.Duration // an orderly consumer renews its locks [20 s] (rocketmq.client.rebalance.lockInterval)
	LockClientLife time.Duration // it starts no handler on a lock older than this [30 s] (rocketmq.client.rebalance.lockMaxLiveTime)
	OrderlySuspend time.Duration // a failed message of an orderly consumer is handed out again after this [1 s] (suspendCurrentQueueTimeMillis)

	FlushInterval time.Duration // AsyncFlush: fsync this often [500 ms] (flushIntervalCommitLog)
	FlushTimeout  time.Duration // SyncFlush: wait this long for the fsync [5 s] (syncFlushTimeout)

	ReplicationTimeout time.Duration // SyncReplication: wait this long for the slaves, and for 9/10 of what is left of the attempt at most: 0.9 s with a producer's defaults [3 s] (slaveTimeout)
	HAHeartbeat        time.Duration // master and slave say something this often [5 s] (haSendHeartbeatInterval)
	HAHousekeeping     time.Duration // a link between them on which nothing came for longer is closed; more than HAHeartbeat [20 s] (haHousekeepingInterval)
	HARedial           time.Duration // a slave tries to reach its master this often at least; it begins with 100 ms and doubles [5 s] (waitForRunning of HAClient)
	LeaseRenew         time.Duration // Failover: members renew at the controller this often [1 s] (brokerHeartbeatInterval)
	LeaseExpire        time.Duration // Failover: a master that the controller has not heard of for longer serves no more, and another one does within this and two LeaseRenew of its loss; at least two LeaseRenew [5 s] (controllerHeartBeatTimeoutMills)
	SlaveSync          time.Duration // a slave copies topics, groups and offsets of its master [3 s] (SlaveSynchronize)

	// DelayLevels are how long messages of Message.DelayLevel 1 and up wait at a
	// broker, and failed messages before they are tried again: level 3 after the
	// first failure, then one level higher each time
	// [1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h] (messageDelayLevel).
	// Level 1 is DelayLevels[0]; above the last one means the last one. When a broker
	// comes back with other levels, a message that waits keeps its time, but waits no
	// longer than its level does now. message.ParseDelayLevels reads RocketMQ's text.
	DelayLevels []time.Duration
}

// DefaultTimings returns RocketMQ's defaults.
func DefaultTimings() Timings {
	return Timings{
		BrokerRegister:  30 * time.Second,
		BrokerExpire:    120 * time.Second,
		BrokerScanDelay: 5 * time.Second,
		BrokerScan:      10 * time.Second,
		ClientHeartbeat: 30 * time.Second,
		ClientExpire:    120 * time.Second,
		ClientScan:      10 * time.Second,
		RouteRefresh:    30 * time.Second,
		RouteRetry:      time.Second,
		Rebalance:       20 * time.Second,
		RebalanceRetry:  time.Second,
		OffsetPersist:   5 * time.Second,
		PullSuspend:     15 * time.Second,
		PullErrorDelay:  3 * time.Second,
		PullExpire:      120 * time.Second,
		LockExpire:      60 * time.Second,
		LockRenew:       20 * time.Second,
		LockClientLife:  30 * time.Second,
		OrderlySuspend:  time.Second,
		FlushInterval:   500 * time.Millisecond,
		FlushTimeout:    5 * time.Second,

		ReplicationTimeout: 3 * time.Second,
		HAHeartbeat:        5 * time.Second,
		HAHousekeeping:     20 * time.Second,
		HARedial:           5 * time.Second,
		LeaseRenew:         time.Second,
		LeaseExpire:        5 * time.Second,
		SlaveSync:          3 * time.Second,

		DelayLevels: []time.Duration{
			time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
			time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute,
			6 * time.Minute, 7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute,
			20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
		},
	}
}

// fields lists the plain intervals with their names.
func (t *Timings) fields() []timing {
	return []timing{
		{"BrokerRegister", &t.BrokerRegister}, {"BrokerExpire", &t.BrokerExpire},
		{"BrokerScanDelay", &t.BrokerScanDelay}, {"BrokerScan", &t.BrokerScan},
		{"ClientHeartbeat", &t.ClientHeartbeat}, {"ClientExpire", &t.ClientExpire}, {"ClientScan", &t.ClientScan},
		{"RouteRefresh", &t.RouteRefresh}, {"RouteRetry", &t.RouteRetry},
		{"Rebalance", &t.Rebalance}, {"RebalanceRetry", &t.RebalanceRetry},
		{"OffsetPersist", &t.OffsetPersist},
		{"PullSuspend", &t.PullSuspend}, {"PullErrorDelay", &t.PullErrorDelay}, {"PullExpire", &t.PullExpire},
		{"LockExpire", &t.LockExpire}, {"LockRenew", &t.LockRenew}, {"LockClientLife", &t.LockClientLife}, {"OrderlySuspend", &t.OrderlySuspend},
		{"FlushInterval", &t.FlushInterval}, {"FlushTimeout", &t.FlushTimeout},
		{"ReplicationTimeout", &t.ReplicationTimeout}, {"SlaveSync", &t.SlaveSync},
		{"HAHeartbeat", &t.HAHeartbeat}, {"HAHousekeeping", &t.HAHousekeeping}, {"HARedial", &t.HARedial},
		{"LeaseRenew", &t.LeaseRenew}, {"LeaseExpire", &t.LeaseExpire},
	}
}

type timing struct {
	name string
	d    *time.Duration
}

// Scaled returns t with defaults filled in and every interval and level
// multiplied by f, at least 1 ms. f must be positive; NaN, zero and negative
// factors leave the defaults as they are.
func (t Timings) Scaled(f float64) Timings {
	t = t.withDefaults()
	if !(f > 0) {
		return t
	}
	scale := func(d time.Duration) time.Duration {
		s := float64(d) * f
		if s >= float64(maxInterval) {
			return maxInterval
		}
		return max(time.Duration(s), time.Millisecond)
	}
	for _, e := range t.fields() {
		*e.d = scale(*e.d)
	}
	for i, d := range t.DelayLevels {
		t.DelayLevels[i] = scale(d)
	}
	return t
}

// maxInterval is the longest interval: two of them can be added.
const maxInterval = 100 * 365 * 24 * time.Hour

// withDefaults returns t with zero fields filled in; it shares no slice with t.
func (t Timings) withDefaults() Timings { return t.over(DefaultTimings()) }

// over returns t with its zero fields taken from base, and nothing longer than
// maxInterval; it shares no slice with either.
//
// Where what is taken would contradict what t says, it follows that: locks are
// to live longer than they are renewed and believed in, and pulls to be given up
// later than brokers answer them.
func (t Timings) over(base Timings) Timings {
	said := t
	from := base.fields()
	for i, e := range t.fields() {
		if *e.d == 0 {
			*e.d = *from[i].d
		}
		*e.d = min(*e.d, maxInterval)
	}
	levels := t.DelayLevels
	if len(levels) == 0 {
		levels = base.DelayLevels
	}
	t.DelayLevels = make([]time.Duration, len(levels))
	for i, d := range levels {
		t.DelayLevels[i] = min(d, maxInterval)
	}
	said.fit(&t)
	return t
}

// fit changes fields of all that t leaves open so that they fit those that it
// sets.
func (t *Timings) fit(all *Timings) {
	if t.LockClientLife == 0 && t.LockRenew > 0 {
		all.LockClientLife = min(max(all.LockClientLife, t.LockRenew+t.LockRenew/2), maxInterval)
	}
	if t.LockExpire == 0 {
		all.LockExpire = min(max(all.LockExpire, 2*all.LockClientLife), maxInterval)
	}
	if t.LockClientLife == 0 && all.LockClientLife > all.LockExpire {
		all.LockClientLife = all.LockExpire / 2
	}
	if t.LockRenew == 0 && all.LockRenew > all.LockClientLife {
		all.LockRenew = all.LockClientLife * 2 / 3
	}
	if t.LeaseExpire == 0 {
		all.LeaseExpire = max(all.LeaseExpire, min(5*min(all.LeaseRenew, maxInterval/5), maxInterval))
	}
	if t.LeaseRenew == 0 && 2*all.LeaseRenew > all.LeaseExpire {
		all.LeaseRenew = max(all.LeaseExpire/5, 1)
	}
	if t.HAHousekeeping == 0 {
		all.HAHousekeeping = max(all.HAHousekeeping, min(4*min(all.HAHeartbeat, maxInterval/4), maxInterval))
	}
	if t.HAHeartbeat == 0 && all.HAHeartbeat >= all.HAHousekeeping {
		all.HAHeartbeat = max(all.HAHousekeeping/4, 1)
	}
	if t.PullExpire == 0 {
		all.PullExpire = max(all.PullExpire, min(8*min(all.PullSuspend, maxInterval/8), maxInterval))
	}
}

func (t Timings) validate(p *problems) {
	for _, e := range t.fields() {
		if *e.d < 0 {
			p.add("Timings.%s is %v, must be positive (0 = the default)", e.name, *e.d)
		}
	}
	for i, d := range t.DelayLevels {
		if d <= 0 {
			p.add("Timings.DelayLevels[%d] is %v, must be positive", i, d)
		}
	}
	// What one of these waits for, the other has to allow.
	t = t.withDefaults()
	for _, pair := range [][2]timing{
		{{"PullSuspend", &t.PullSuspend}, {"PullExpire", &t.PullExpire}},
		{{"LeaseRenew", &t.LeaseRenew}, {"LeaseExpire", &t.LeaseExpire}},
		{{"HAHeartbeat", &t.HAHeartbeat}, {"HAHousekeeping", &t.HAHousekeeping}},
		{{"LockRenew", &t.LockRenew}, {"LockClientLife", &t.LockClientLife}},
		{{"LockClientLife", &t.LockClientLife}, {"LockExpire", &t.LockExpire}},
	} {
		if short, long := pair[0], pair[1]; *long.d > 0 && *short.d > *long.d {
			p.add("Timings.%s is %v, longer than Timings.%s, which is %v: set both", short.name, *short.d, long.name, *long.d)
		}
	}
	if t.LeaseRenew > 0 && t.LeaseExpire >= t.LeaseRenew && t.LeaseExpire < min(2*min(t.LeaseRenew, maxInterval), maxInterval) {
		p.add("Timings.LeaseExpire is %v, less than two Timings.LeaseRenew of %v: a renewal that is late once would end the lease; set both", t.LeaseExpire, t.LeaseRenew)
	}
}
