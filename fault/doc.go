// Package fault decides which queue a producer sends to next: in turn, not to
// the broker that has just failed, and not to brokers that were slow or failed
// a moment ago.
//
//	table := fault.NewTracker(fault.V5())  // one per producer
//	next := fault.NewCounter(rand.Int32()) // one per producer and topic
//	q, ok := table.Select(queues, lastBroker, next, now)
//	table.Report(q.BrokerName, latency, failed, reachable, now)
//
// A [Tracker] keeps the table of brokers, a [Config] says what isolates one and
// for how long ([V5], [V4], [Breaker]). A pocketmq.Producer has both built in:
// see ProducerConfig.Fault.
//
// Everything here is pure: no clock, no network, no goroutine.
package fault
