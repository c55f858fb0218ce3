// Package groups holds tests only: consumer groups of the official RocketMQ Go
// client, and such as mix its consumers with ours, against a PocketMQ cluster
// over loopback.
//
// Every scenario prints a line when it has succeeded; the names before the colon
// are those of the official repository's examples where there is one:
//
//	interop: consumer/orderly: 1,000 consumed in order per key, lost 0
//
// The tests run side by side, because most of them wait for intervals of the
// official client that nothing shortens: 20 s between rebalances, 10 s before it
// follows a reset.
package groups
