// Package store is the storage engine of a broker: a commit log that every
// record is appended to, and, derived from it, consume queues, through which the
// records of one queue are read, and an index of keys.
//
//	Append -> group commit -> commit log -> dispatch -> consume queues
//	                              |                         |
//	Get  <-- records at positions +---- positions at offsets +
//
// # Model
//
// A record is a message in RocketMQ's stored format (package message). Its
// position counts all records of the log, from 1, without gaps. Its queue
// offset counts those of its (topic, queue id), from 0, without gaps. Both are
// given out when a batch joins the log. Java: CommitLog, ConsumeQueue,
// ReputMessageService.
//
// Differs: a position counts records where RocketMQ's physical offset counts
// bytes, because the log below is one of records; a position names another
// record after a crash has torn off the end. And a record can be read as soon
// as its append returns, because it is dispatched by the one who wrote it.
//
// The log is a chain of files, each a github.com/tidwall/wal log of a single
// segment, soft-limited to Config.FileSize. The last file, and those before it that
// are not synced yet, are read from the memory of their wals, which therefore hold
// what Config.FileSize says; all others from disk with a sparse index: scans through a
// buffer that goes on where it stopped, single records by way of a cache of
// blocks of 64, bounded by Config.CacheBytes. Every entry
// carries a checksum over record and position, and how far the log was synced
// when it was written; recovery decides by that what may be cut off.
//
// Each queue has a unit of 20 bytes per record: position, size, hash of the
// tag. Full blocks of 204 units go to extent files shared by all queues, the
// rest is in memory. The record, not the unit, is the truth about its offset:
// whatever is missing after a crash is replayed from the last checkpoint.
//
// A record is found by its position, or by its store time: those of a queue do
// not decrease, so OffsetByTime is a binary search.
//
// The key index leads from the hash of a topic and a key to positions. Entries
// collect in memory in the order of the log; each 64 Ki of them are sorted by
// hash and appended to a file as a run, which a query searches with one read.
// What is found is compared with the record, so a hash never tells a lie.
//
// Files whose records are too old, or that make the log too large, are deleted
// from its front, with what refers to them; Config.Retention and RetentionBytes
// say when. Positions and offsets go on as if they were there.
//
// # The data folder
//
//	FORMAT              version and identity
//	LOCK                held while a store is open
//	commitlog/N/        the log file whose first position is N
//	commitlog/next.tmp/ the prepared next one
//	commitlog/first     where the log begins, once something has been deleted
//	commitlog/synced    up to where it is synced
//	consumequeue/N      extent files of 64 MiB
//	index/N             files of the key index of 64 MiB
//	checkpoint          queues and key index up to a position
//	salvage-TIME/       what a salvage has changed, as it was; nothing reads it
//	config/             the broker's; not touched
//
// # Failures
//
// After a failed write or fsync nothing in memory can be trusted to match the
// disk: the store is fenced. Appends fail with [ErrFenced], reads go on, and
// [Store.Repair], or opening the store anew, repairs it. When the write failed for
// a lack of space that happens by itself as soon as there is some; and before the
// disk is full, below Config.MinFreeBytes, appends fail with [ErrDiskFull]. A crash
// may tear off what had not been synced; it is cut at the next open, and
// [Store.Cut] tells. Damage to what had been synced is never cut: the store opens
// read-only and [Store.Err] names file and position.
//
// [Store.PowerOff] leaves what a loss of power leaves at the least: all that an
// fsync has covered, by a ledger that is kept of them, and nothing else.
//
// # What it does not do
//
// It does not replicate.
package store
