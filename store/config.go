package store

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of [Config], and the smallest sizes.
const (
	DefaultFileSize           = 4 << 20
	DefaultFlushInterval      = 500 * time.Millisecond
	DefaultFlushTimeout       = 5 * time.Second
	DefaultCheckpointInterval = 5 * time.Second
	DefaultRetention          = 72 * time.Hour
	DefaultMinFreeBytes       = 256 << 20
	DefaultCacheBytes         = 32 << 20
	MinFileSize               = 4 << 10
	MinCacheBytes             = 1 << 20
	MaxCacheBytes             = 1 << 40
)

// Config says where a store lies and how it flushes. It is copied by Open.
type Config struct {
	// Dir is the data folder. It is made when missing. Only an empty folder, or
	// one that a store of the same identity made before, is accepted; a folder
	// "config" inside it belongs to the broker and is not touched.
	Dir string
	// Cluster, Broker and ID are the identity that is written to the folder
	// when it is made, and compared with it later.
	Cluster, Broker string
	ID              int64

	// FileSize is the soft limit of a commit-log file in bytes: a file that
	// has passed it takes no further group. 0 means 4 MiB; at least 4 KiB.
	// RocketMQ: mapedFileSizeCommitLog.
	FileSize int64
	// SyncFlush acknowledges an append after fsync instead of after write.
	// RocketMQ: flushDiskType=SYNC_FLUSH.
	SyncFlush bool
	// FlushInterval is how long written data may stay unsynced. 0 means
	// 500 ms. RocketMQ: flushIntervalCommitLog.
	FlushInterval time.Duration
	// FlushTimeout bounds the wait for fsync of an append with SyncFlush. 0
	// means 5 s. RocketMQ: syncFlushTimeout.
	FlushTimeout time.Duration
	// CheckpointInterval is the time between two checkpoints while records
	// arrive. 0 means 5 s. It bounds what must be replayed after a crash.
	CheckpointInterval time.Duration
	// Retention is how long records are kept at least. Commit-log files whose
	// records are all older are deleted, within CleanInterval. 0 means 72 h;
	// negative keeps them for ever. RocketMQ: fileReservedTime.
	Retention time.Duration
	// RetentionBytes bounds the commit log: while it is larger, its oldest file
	// is deleted whatever its age. The file that is written to always stays. 0 or
	// negative means no bound.
	RetentionBytes int64
	// MinFreeBytes is how much of the disk must be free: with less, appends fail
	// with [ErrDiskFull] until there is more, and reads go on. With less than four
	// times as much, the oldest commit-log files are deleted whatever their age and
	// whoever has read them, but for the last one: as many as it takes, and none
	// when all of them would not suffice. 0 means 256 MiB; negative means no such
	// guard, as does Throwaway.
	MinFreeBytes int64
	// FreeBytes asks how much an ordinary user may still write to the disk of a
	// folder. Nil asks the operating system. It is called on a goroutine of its own,
	// one call at a time. While it fails, panics or does not return, the space is not
	// known, and nothing is refused or deleted for it. Open waits a second for the
	// first call, and Close, Kill, PowerOff and Discard 10 s for the last: then they
	// return [ErrHookRunning].
	FreeBytes func(dir string) (int64, error)
	// Disk, when not nil, is what a test does to the disk.
	Disk *Disk
	// CleanInterval is how often the store looks whether there is something to
	// tidy up that nothing else tells it of. 0 means 10 s. RocketMQ:
	// cleanResourceInterval.
	CleanInterval time.Duration
	// CacheBytes bounds the memory of the cache for random reads of older files;
	// it takes none before the first of them. 0 means 32 MiB, -1 no cache; at
	// least 1 MiB, at most 1 TiB.
	CacheBytes int64
	// DelayLevels are the delays of the levels of message.ScheduleTopic: a record
	// of its queue n shows with its store time plus level n + 1 as the tags code of
	// its unit, the time when it is due in milliseconds since 1970. It is fixed when
	// the unit is made; a unit that is rebuilt follows the levels of that time.
	// RocketMQ: messageDelayLevel.
	DelayLevels []time.Duration
	// Begin, when not nil, is where the log of a folder without one begins, as
	// [Store.Beginning] of another store says. For a folder that holds a log it is an
	// error.
	Begin *Beginning
	// Confirming keeps records out of the queues and the key index, and from all
	// reads but those of [Store.ReadLog], until [Store.SetConfirmed] says that they
	// are to stay: of a broker whose log may be cut when another becomes master.
	Confirming bool
	// Throwaway never calls fsync: not for files, folders or metadata, and not
	// on Close. The data survives the end of the process but not of the
	// machine. SyncFlush and Sync then wait for the write only.
	Throwaway bool

	// Logger receives what recovery cut, fencing and background errors. Nil
	// means silence.
	Logger *slog.Logger

	// Arrived, when not nil, is called after a record became readable through
	// Get, in the order of the log. It runs on the appending goroutine and
	// delays every appender: it must be fast, must not block and must not call
	// Append, Close, Kill, PowerOff or Discard.
	Arrived func(topic string, queueID int, offset int64, tagsCode int64)
	// Written, when not nil, is called after each write, like Arrived, with the last
	// position that was written. It must not block.
	Written func(position int64)
	// Dropped, when not nil, is called after the deletion of a topic, which stands at a
	// position, has come into effect by [Store.Replicate], or by [Store.SetConfirmed] in
	// a store with Confirming, in the order of the log, and before that returns. A
	// deletion that is replayed when the store opens is not told. Like Arrived, but that
	// it may block for file calls.
	Dropped func(topic string, position int64)
	// Synced, when not nil, is called after each sync of the log, with the last position
	// that was synced, by the goroutine that syncs. It must not block. A throwaway store
	// never calls it.
	Synced func(position int64)
	// Full, when not nil, is called when appends begin to be refused because of
	// MinFreeBytes, and, with nil, when nothing refuses them any more, by Open or a goroutine
	// of the store and without any lock. It must not call Close, Kill, PowerOff and
	// Discard, nor must the functions below: those wait for it.
	Full func(*DiskFullError)
	// Deleted, when not nil, is called in the same way after old records have been
	// deleted.
	Deleted func(Deletion)
	// Damaged, when not nil, is called once for each place at which a read has found
	// stored data damaged, by the reader. The error is [ErrDamaged].
	Damaged func(error)
	// Fenced, when not nil, is called once when a write or sync error has
	// fenced the store, from a goroutine of the store and without any lock.
	// Close, Kill, PowerOff and Discard wait for it, so it must not call them.
	Fenced func(err error)
	// Repaired, when not nil, is called in the same way after a fenced store has
	// been repaired in place, by itself or by [Store.Repair]; each call follows one
	// of Fenced. cut is the number of records whose appends failed, and whose
	// positions are given out again. None of them was acknowledged.
	Repaired func(cut int)

	// tableEntries and indexBlocks replace the constants of the key index if
	// they are not 0, so that tests need not write millions of keys.
	tableEntries, indexBlocks int
}

func (c Config) withDefaults() Config {
	if c.FileSize == 0 {
		c.FileSize = DefaultFileSize
	}
	if c.FlushInterval == 0 {
		c.FlushInterval = DefaultFlushInterval
	}
	if c.FlushTimeout == 0 {
		c.FlushTimeout = DefaultFlushTimeout
	}
	if c.CheckpointInterval == 0 {
		c.CheckpointInterval = DefaultCheckpointInterval
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.MinFreeBytes == 0 {
		c.MinFreeBytes = DefaultMinFreeBytes
	}
	if c.Throwaway {
		c.MinFreeBytes = -1
	}
	if c.FreeBytes == nil {
		c.FreeBytes = freeBytes
	}
	if c.CleanInterval == 0 {
		c.CleanInterval = DefaultCleanInterval
	}
	if c.tableEntries == 0 {
		c.tableEntries = tableEntries
	}
	if c.indexBlocks == 0 {
		c.indexBlocks = indexBlocks
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate lists every violation. It expects the defaults to be filled in.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	if c.Dir == "" {
		bad("Config.Dir is empty: name a data folder")
	}
	if c.Broker == "" {
		bad("Config.Broker is empty: name the broker the folder belongs to")
	}
	if c.ID < 0 {
		bad("Config.ID is %d: must be 0 or more", c.ID)
	}
	if c.FileSize < MinFileSize {
		bad("Config.FileSize is %d: must be at least %d bytes, or 0 for the default", c.FileSize, MinFileSize)
	}
	if c.CacheBytes != -1 && c.CacheBytes < MinCacheBytes {
		bad("Config.CacheBytes is %d: must be at least %d bytes, -1 for no cache, or 0 for the default", c.CacheBytes, MinCacheBytes)
	}
	if c.CacheBytes > MaxCacheBytes {
		bad("Config.CacheBytes is %d: must be at most %d bytes", c.CacheBytes, int64(MaxCacheBytes))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"FlushInterval", c.FlushInterval}, {"FlushTimeout", c.FlushTimeout},
		{"CheckpointInterval", c.CheckpointInterval}, {"CleanInterval", c.CleanInterval},
	} {
		if d.value < 0 {
			bad("Config.%s is %v: must not be negative; 0 is the default", d.name, d.value)
		}
	}
	return errors.Join(errs...)
}
