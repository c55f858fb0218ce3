package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// Cutting off the end of a log is for one that holds what its master does not: what
// was written last, and was never to be relied on. It is done while the store is not
// open, and the next open does the rest, as after a crash:
//
//	the checkpoint goes, if it covers what is cut; what it proves is lowered else
//	commitlog/synced is lowered
//	files behind the cut are removed, the last one first
//	the file in which it is is cut
//
// A crash between two steps leaves a log that is whole, and longer than wanted: it is
// cut again.

// CutEnd takes back all records behind a position of a store that is not open, and
// returns how many it took. The caller knows that none of them is to stay. It is an
// error to cut below the first position, and to cut a damaged log.
//
// Errors: [ErrInUse], [ErrForeign], [ErrNoRecord] below the log, [ErrDamaged], those
// of the file system. Java: AutoSwitchHAService.truncateInvalidMsg.
func CutEnd(cfg Config, last int64) (cut int64, err error) {
	cfg = cfg.withDefaults()
	disk, unlock, err := borrowToChange(cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	f, err := lookAt(cfg.Dir)
	if err != nil {
		return 0, err
	}
	r := &f.recovery
	switch {
	case r.bad != nil && r.damaged():
		return 0, fmt.Errorf("store: cut %s behind position %d: %s is damaged at position %d: %s; salvage it first: %w",
			cfg.Dir, last, r.path(&f.log, r.bad), r.bad.position, r.bad.reason, ErrDamaged)
	case last < r.first-1:
		return 0, fmt.Errorf("store: cut %s behind position %d: the log begins at %d: %w", cfg.Dir, last, r.first, ErrNoRecord)
	}
	cut = max(0, r.end-last)
	c := cutter{dir: cfg.Dir, disk: disk, last: last}
	if err := c.run(f); err != nil {
		return 0, fmt.Errorf("store: cut %s behind position %d: %w", cfg.Dir, last, err)
	}
	return cut, nil
}

// checkpointSyncedAt is where in a checkpoint synced is: behind magic, version and
// flags.
const checkpointSyncedAt = 12

// cutter cuts the end off one log.
type cutter struct {
	dir  string
	disk syncer
	last int64
}

func (c *cutter) run(f *folder) error {
	if err := c.checkpoint(f.checkpoint); err != nil {
		return err
	}
	var mark syncedMark
	if err := mark.load(f.log.dir, c.disk); err != nil {
		return err
	}
	if err := mark.lower(c.last); err != nil {
		return err
	}
	files := f.recovery.files
	for ; len(files) > 0 && files[len(files)-1].base > c.last; files = files[:len(files)-1] {
		if err := errors.Join(c.disk.remove(files[len(files)-1].dir), c.disk.dir(f.log.dir)); err != nil {
			return err
		}
	}
	if len(files) == 0 {
		return nil
	}
	return c.file(&files[len(files)-1])
}

// checkpoint takes back what the checkpoint says of the records that are cut.
func (c *cutter) checkpoint(cp *checkpoint) error {
	path := filepath.Join(c.dir, checkpointName)
	switch {
	case cp == nil || cp.position <= c.last && cp.synced <= c.last:
		return nil
	case cp.position > c.last:
		return errors.Join(c.disk.remove(path), c.disk.dir(c.dir))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	be := binary.BigEndian
	be.PutUint64(b[checkpointSyncedAt:], uint64(c.last))
	be.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	if cp, ok := parseCheckpoint(b); !ok || cp.synced != c.last {
		return fmt.Errorf("%w: checkpoint", ErrDamaged)
	}
	return replaceFile(path, b, c.disk)
}

// file cuts the file that holds the last position that stays.
func (c *cutter) file(f *foundFile) error {
	data, err := readStart(f.path, f.size)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	off := f.headSize
	for position := f.base; position <= c.last; position++ {
		_, n, ok := cutEntry(data[off:])
		if !ok {
			return nil // it ends before
		}
		off += n
	}
	if int64(off) == f.size {
		return nil
	}
	return cutFile(c.disk, f.path, int64(off))
}
