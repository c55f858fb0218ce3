// Package offsets keeps the committed offsets of a broker's consumer groups:
// per group, topic and queue the offset of the first message that is not
// consumed. Java: ConsumerOffsetManager.
//
// Commits are memory only and cheap; Persist writes the whole table to one
// file, atomically, in the reference's shape:
//
//	{"offsetTable":{"orders@billing":{"0":12,"1":7}}}
//
// and, while resets wait for the next pull, "resetOffsetTable" in the same shape;
// what else is in it RocketMQ passes over.
//
// A slave has the table of its master (Follow, Replace) and what consumers commit at
// it while they do not see the master (Own), which the master takes in (Merge). own.go
// has the rule by which the two are put together.
//
// After a crash a group goes on from the last persisted offsets and gets some
// messages again. The log may have lost more than the table then, so Clamp
// lowers every offset to the end of its queue before the broker serves.
//
// The package checks no names and knows no queues: its caller does.
package offsets
