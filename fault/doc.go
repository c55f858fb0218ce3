// Package fault decides which queue a producer sends to next: in turn, and not
// to the broker that has just failed.
//
//	next := fault.NewCounter(rand.Int32()) // one per producer and topic
//	q, ok := next.Pick(queues, lastBroker)
//
// Everything here is pure: no clock, no network, no goroutine.
package fault
