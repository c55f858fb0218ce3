package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	blockSize   = 4096
	blockHeader = blockSize - unitBytes // queue id 4, base offset 8, CRC 4 bytes
	// extentBlocks is the number of blocks of an extent file of 64 MiB. The
	// first holds the file's stamp, the others one block of a queue each.
	extentBlocks = 16384
	// chunkBytes is how much is collected before it is written.
	chunkBytes  = 64 << 10
	extentMagic = 0x504D5145 // "PMQE"
)

// extents are the files shared by all consume queues. A block is appended once
// and never changed. They are derived from the commit log, so they are synced
// only before a checkpoint refers to them.
type extents struct {
	dir     string
	disk    syncer
	handles *handles // for reading

	// mu guards all below.
	mu    sync.RWMutex
	files []*extent // by number, from first on
	next  uint32    // number of the next block; n/extentBlocks is its file
	// chunk holds the blocks from number chunkAt on that are not written yet.
	// After a failed write it keeps them and grows.
	chunk   []byte
	chunkAt uint32
	// broken is the error of a failed sync. The kernel may have dropped what it
	// was to write, so no later sync proves anything: the files are good for
	// reading, but no checkpoint refers to them any more.
	broken error
	// gone are files that no queue refers to any more. A checkpoint may.
	gone []*extent

	// recent holds blocks that were read lately, by number modulo its length:
	// a reader of 32 units comes back to the same block six times.
	recent [64]atomic.Pointer[readBlock]
}

// readBlock is a verified block. It is never changed.
type readBlock struct {
	number, queue uint32
	base          int64
	units         []byte
}

// extent is one file of blocks.
type extent struct {
	number uint32
	stamp  stamp
	path   string
	file   *os.File // for writing; nil once it is full and synced
	dirty  bool     // written to since the last sync
	listed bool     // its entry in the folder is synced
}

func blockCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:blockHeader-4], castagnoli), castagnoli, b[blockHeader:])
}

// add appends a full block of a queue and returns its number. The block can be
// read afterwards whatever the error, which tells that it could not be written
// to disk; the next call tries again.
func (x *extents) add(queue uint32, base int64, units []byte) (uint32, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.next%extentBlocks == 0 {
		// The number of a file's stamp belongs to no queue.
		if len(x.chunk) > 0 {
			x.chunk = append(x.chunk, make([]byte, blockSize)...)
		}
		x.next++
	}
	n := x.next
	x.next++
	if len(x.chunk) == 0 {
		x.chunkAt = n
	}
	at := len(x.chunk)
	x.chunk = binary.BigEndian.AppendUint32(x.chunk, queue)
	x.chunk = binary.BigEndian.AppendUint64(x.chunk, uint64(base))
	x.chunk = append(x.chunk, 0, 0, 0, 0)
	x.chunk = append(x.chunk, units...)
	block := x.chunk[at:]
	binary.BigEndian.PutUint32(block[blockHeader-4:], blockCRC(block))
	if len(x.chunk) < chunkBytes {
		return n, nil
	}
	return n, x.writeLocked()
}

// write writes the collected blocks now.
func (x *extents) write() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.writeLocked()
}

// writeLocked writes the collected blocks.
func (x *extents) writeLocked() error {
	done := 0
	var err error
	for done < len(x.chunk) && err == nil {
		number, index := x.chunkAt/extentBlocks, int(x.chunkAt%extentBlocks)
		piece := x.chunk[done:min(len(x.chunk), done+(extentBlocks-index)*blockSize)]
		var e *extent
		if e, err = x.extentLocked(number); err != nil {
			break
		}
		e.dirty = true
		if index == 0 {
			err = x.disk.write(e.file, piece[blockSize:], blockSize)
		} else {
			err = x.disk.write(e.file, piece, int64(index)*blockSize)
		}
		if err == nil {
			done += len(piece)
			x.chunkAt += uint32(len(piece) / blockSize)
		}
	}
	x.chunk = append(x.chunk[:0], x.chunk[done:]...)
	if err != nil {
		return fmt.Errorf("store: write consume queues: %w", err)
	}
	return nil
}

// extentLocked returns the file with the given number, the last one or the one
// after it, and makes it when it is missing.
func (x *extents) extentLocked(number uint32) (*extent, error) {
	if n := len(x.files); n > 0 && x.files[n-1].number == number {
		return x.files[n-1], nil
	}
	if err := x.disk.makeDir(x.dir); err != nil {
		return nil, err
	}
	e := &extent{number: number, path: filepath.Join(x.dir, numberedName(number))}
	if _, err := rand.Read(e.stamp[:]); err != nil {
		return nil, err
	}
	f, err := x.disk.create(e.path)
	if err != nil {
		return nil, err
	}
	if err := x.disk.write(f, e.stampBlock(), 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	e.file = f
	x.files = append(x.files, e)
	return e, nil
}

func (e *extent) stampBlock() []byte { return stampBlock(extentMagic, e.number, e.stamp) }

// read returns the units of a block, verified to be the one of queue whose
// first offset is base. They are read-only.
func (x *extents) read(n, queue uint32, base int64) ([]byte, error) {
	slot := &x.recent[n%uint32(len(x.recent))]
	if r := slot.Load(); r != nil && r.number == n && r.queue == queue && r.base == base {
		return r.units, nil
	}
	b := make([]byte, blockSize)
	path, done := x.readChunk(n, b)
	if !done {
		f, err := x.handles.acquire(path)
		if err != nil {
			return nil, err
		}
		_, err = f.ReadAt(b, int64(n%extentBlocks)*blockSize)
		x.handles.release(f)
		if err != nil {
			return nil, fmt.Errorf("%w file %s, block %d: %v; it is rebuilt from the commit log when the store is opened next", errQueueDamaged, path, n%extentBlocks, err)
		}
	}
	if binary.BigEndian.Uint32(b) != queue || int64(binary.BigEndian.Uint64(b[4:])) != base ||
		binary.BigEndian.Uint32(b[blockHeader-4:]) != blockCRC(b) {
		return nil, fmt.Errorf("%w file %s, block %d is not the one written for offset %d; it is rebuilt from the commit log when the store is opened next",
			errQueueDamaged, path, n%extentBlocks, base)
	}
	slot.Store(&readBlock{number: n, queue: queue, base: base, units: b[blockHeader:]})
	return b[blockHeader:], nil
}

// readChunk copies a block that is not written yet, or names the file of one
// that is.
func (x *extents) readChunk(n uint32, b []byte) (path string, done bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n >= x.chunkAt && int(n-x.chunkAt) < len(x.chunk)/blockSize {
		copy(b, x.chunk[int(n-x.chunkAt)*blockSize:])
		done = true
	}
	number := n / extentBlocks
	if len(x.files) > 0 && number >= x.files[0].number {
		if i := int(number - x.files[0].number); i < len(x.files) {
			return x.files[i].path, done
		}
	}
	return filepath.Join(x.dir, numberedName(number)), done
}

// extentState is what a checkpoint says about an extent file.
type extentState struct {
	number uint32
	blocks uint32 // length
	stamp  stamp
}

// sync writes and syncs all blocks appended so far, and describes the files
// and the number of the next block. Only the janitor calls it, or whoever closes
// the store after the janitor has ended.
func (x *extents) sync() (states []extentState, next uint32, err error) {
	x.mu.Lock()
	if err = x.broken; err == nil {
		err = x.writeLocked()
	}
	next = x.next
	var dirty []*extent
	for i, e := range x.files {
		blocks := uint32(extentBlocks)
		if i == len(x.files)-1 {
			blocks = next - e.number*extentBlocks
		}
		states = append(states, extentState{number: e.number, blocks: blocks, stamp: e.stamp})
		if e.dirty && e.file != nil {
			e.dirty = false
			dirty = append(dirty, e)
		}
	}
	x.mu.Unlock()
	for _, e := range dirty {
		if err != nil {
			break
		}
		if err = x.disk.file(e.file); err == nil && !e.listed {
			err = x.disk.dir(x.dir)
			e.listed = err == nil
		}
		if err != nil {
			x.mu.Lock()
			x.broken = err
			x.mu.Unlock()
		}
	}
	if err == nil {
		err = x.closeFull()
	}
	if err != nil {
		return nil, 0, fmt.Errorf("store: sync consume queues: %w", err)
	}
	return states, next, nil
}

// closeFull closes the write handles of synced files that are full.
func (x *extents) closeFull() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.files[:max(0, len(x.files)-1)] {
		if e.file == nil || e.dirty {
			continue
		}
		err := e.file.Close()
		e.file = nil
		if err != nil {
			return err
		}
		x.disk.finished(e.path)
	}
	return nil
}

// nextBlock is the number of the next block.
func (x *extents) nextBlock() uint32 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.next
}

// retire sets aside the files whose blocks all have lower numbers than lowest.
// They are deleted by remove, once no checkpoint refers to them.
func (x *extents) retire(lowest uint32) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	var errs []error
	for ; n < len(x.files)-1 && x.files[n].number < lowest/extentBlocks; n++ {
		if e := x.files[n]; e.file != nil {
			errs = append(errs, e.file.Close())
			e.file = nil
		}
	}
	x.gone = append(x.gone, x.files[:n]...)
	x.files = slices.Clone(x.files[n:])
	return errors.Join(errs...)
}

// remove deletes the files that were set aside. Those that cannot be deleted
// now are kept for the next time.
func (x *extents) remove() error {
	x.mu.Lock()
	gone := x.gone
	x.gone = nil
	x.mu.Unlock()
	var kept []*extent
	var errs []error
	for _, e := range gone {
		if err := removeRead(x.handles, x.disk, e.path, e.path); err != nil {
			kept, errs = append(kept, e), append(errs, err)
		}
	}
	x.mu.Lock()
	x.gone = append(kept, x.gone...)
	x.mu.Unlock()
	return errors.Join(errs...)
}

func (x *extents) extentOf(st extentState) *extent {
	return &extent{number: st.number, stamp: st.stamp, listed: true, path: filepath.Join(x.dir, numberedName(st.number))}
}

// match reports whether the files are those that a checkpoint describes.
func (x *extents) match(states []extentState, next uint32) bool {
	for i, st := range states {
		if i > 0 && st.number != states[i-1].number+1 || st.blocks < 1 || st.blocks > extentBlocks {
			return false
		}
		e := x.extentOf(st)
		if !isStamped(e.path, e.stampBlock(), int64(st.blocks)*blockSize) {
			return false
		}
	}
	n := len(states)
	return n == 0 && next == 0 || n > 0 && next == states[n-1].number*extentBlocks+states[n-1].blocks
}

// load takes over the files that a checkpoint describes, cut to the lengths it
// gives. ok is false when they are not all there; nothing is changed then.
func (x *extents) load(states []extentState, next uint32) (ok bool, err error) {
	var files []*extent
	defer func() {
		if !ok {
			for _, e := range files {
				err = errors.Join(err, e.file.Close())
			}
		}
	}()
	if !x.match(states, next) {
		return false, nil
	}
	for _, st := range states {
		e := x.extentOf(st)
		if e.file, err = x.disk.open(e.path); err != nil {
			return false, nil // rebuilt
		}
		files = append(files, e)
	}
	for i, e := range files {
		if err := x.disk.truncate(e.file, int64(states[i].blocks)*blockSize); err != nil {
			return false, err
		}
	}
	x.mu.Lock()
	x.files, x.gone, x.next, x.chunk, x.chunkAt = files, nil, next, nil, 0
	x.mu.Unlock()
	if err := x.removeOthers(); err != nil {
		return false, err
	}
	return true, x.closeFull()
}

// reset forgets everything and removes the files.
func (x *extents) reset() error {
	err := x.close()
	x.mu.Lock()
	x.files, x.gone, x.next, x.chunk, x.chunkAt = nil, nil, 0, nil, 0
	x.mu.Unlock()
	for i := range x.recent {
		x.recent[i].Store(nil)
	}
	return errors.Join(err, x.removeOthers())
}

// removeOthers removes files with the name of an extent that are not in use.
func (x *extents) removeOthers() error { return removeNumbered(x.disk, x.dir, x.has) }

func (x *extents) has(number uint32) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := len(x.files)
	return n > 0 && number >= x.files[0].number && number <= x.files[n-1].number
}

// close lets the write handles go.
func (x *extents) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, e := range x.files {
		if e.file != nil {
			errs = append(errs, e.file.Close())
			e.file = nil
		}
	}
	return errors.Join(errs...)
}
