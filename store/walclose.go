package store

import (
	"errors"
	"os"
	"reflect"

	"github.com/tidwall/wal"
)

// walFile is the place where a wal keeps the handle of its segment; nil when it
// is not where we know it to be.
//
// Reaching into the wal is the last resort. tidwall/wal v1.2.1 has a single way
// to let the handle go, Close, which fsyncs first and keeps the handle when that
// fails. A throwaway store must not pay for an fsync, and emptying the file
// before does not help: even the fsync of an empty, unlinked file waits for the
// journal of the file system, for milliseconds as a rule and for a hundred and
// more when the disk is busy.
//
// The wal changes the field only while it opens, truncates or cycles, and we
// let it do neither of the last two, so reading the field needs no lock.
func walFile(log *wal.Log) **os.File {
	field := reflect.ValueOf(log).Elem().FieldByName("sfile")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*os.File]() {
		return nil
	}
	return (**os.File)(field.Addr().UnsafePointer())
}

// closeWal closes a wal, whose Close fsyncs, and lets its handle go even when
// that fails. The error stays: a second fsync would succeed for nothing.
func closeWal(log *wal.Log) error {
	err := log.Close()
	if err != nil && !errors.Is(err, wal.ErrClosed) {
		if f := walFile(log); f != nil {
			_ = (*f).Close() // the first error is the one that counts
		}
	}
	return err
}

// closeWalUnsynced closes the segment file of a wal and does not fsync it,
// unless the wal is not one that we know. The wal itself takes no more writes
// and serves reads from its memory as before.
func closeWalUnsynced(log *wal.Log) error {
	f := walFile(log)
	if f == nil || *f == nil {
		return closeWal(log)
	}
	return (*f).Close()
}
