// Package rebalance shares the queues of a topic among the members of a
// consumer group.
//
// Nobody hands queues out: every member computes its own share from the same
// sorted queues and the same sorted members, and all of them come to results
// that fit together. That holds as long as they see the same lists and use the
// same Strategy. While their views differ a queue may have two owners or none
// for a moment; the next rebalance repairs it.
//
//	mine, err := rebalance.Averagely.Allocate(group, self, queues, members)
//	revoked, added := rebalance.Diff(held, mine)
//
// Everything here is pure: no state, no clock, no network.
package rebalance
