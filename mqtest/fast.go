package mqtest

import (
	"time"

	"github.com/pocketmq/pocketmq"
)

// Fast returns the timings that Run uses in real time: what tests wait for
// happens within a fraction of a second. Rebalance 200 ms and its retry 20 ms,
// routes 100 ms, registration and heartbeats 300 ms, offsets 50 ms, repeated
// pulls 100 ms, locks of orderly consumers 200 ms, their failed messages 20 ms,
// delay levels and the scans for silent nodes at 1/100.
//
// What decides that somebody is dead keeps its default, because official
// clients rely on it and a slow test machine is not a crash: brokers and
// clients expire after 120 s, locks after 60 s, a pull is held for 15 s.
//
// The result is the caller's.
func Fast() pocketmq.Timings {
	t := pocketmq.DefaultTimings()
	t.BrokerRegister = 300 * time.Millisecond
	t.BrokerScanDelay /= 100
	t.BrokerScan /= 100
	t.ClientHeartbeat = 300 * time.Millisecond
	t.ClientScan /= 100
	t.RouteRefresh = 100 * time.Millisecond
	t.RouteRetry = 20 * time.Millisecond
	t.Rebalance = 200 * time.Millisecond
	t.RebalanceRetry = 20 * time.Millisecond
	t.OffsetPersist = 50 * time.Millisecond
	t.PullErrorDelay = 100 * time.Millisecond
	t.LockRenew = 200 * time.Millisecond
	t.OrderlySuspend = 20 * time.Millisecond
	for i := range t.DelayLevels {
		t.DelayLevels[i] /= 100
	}
	return t
}
