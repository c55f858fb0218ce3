// Package offsets keeps the committed offsets of a broker's consumer groups:
// per group, topic and queue the offset of the first message that is not
// consumed. Java: ConsumerOffsetManager.
//
// Commits are memory only and cheap; Persist writes the whole table to one
// file, atomically, in the reference's shape:
//
//	{"offsetTable":{"orders@billing":{"0":12,"1":7}}}
//
// and, while resets wait for the next pull, "resetOffsetTable" in the same shape.
//
// After a crash a group goes on from the last persisted offsets and gets some
// messages again. The log may have lost more than the table then, so Clamp
// lowers every offset to the end of its queue before the broker serves.
//
// The package checks no names and knows no queues: its caller does.
package offsets
