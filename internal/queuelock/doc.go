// Package queuelock is a broker's table of queue locks: which member of an
// orderly group may consume which queue. Java: RebalanceLockManager.
//
//	group -> queue -> client, last update
//
// A lock is granted when it is free, when the client has it (which renews it),
// or when it was not renewed for longer than the expiry. So a queue has one
// holder at a time as long as its broker lives, and a member that died keeps
// its queues from the others for the expiry, not longer.
//
// Locks are in memory only: a broker that restarts has none. They end by Unlock
// or by expiry, not with the connection of their holder, as in RocketMQ: a
// member whose connection broke for a moment goes on where it was.
//
// The time is a parameter. The package checks no names: whoever calls Lock
// bounds what may be locked.
package queuelock
