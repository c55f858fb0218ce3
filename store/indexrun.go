package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sort"
	"sync/atomic"
)

// A run is a table on disk, sorted by hash, then position. All numbers are big
// endian; what is not used is zero.
//
//	header block   magic 4, version 4, entries 4, 0 4, first position 8, last
//	               position 8, first time 8, last time 8, the first hash of each
//	               data block 4 each, CRC 4 at the end of the block
//	data block     CRC 4, number in the run from 0 4, first position of the run 8,
//	               340 entries: hash 4, position 4, time 4; the latter two count
//	               from the first of the run, times in milliseconds
//
// A checksum is the CRC-32C of all other bytes of the block. The data blocks say
// which run they are of, so an old block in place of a new one is found out.
const (
	runMagic   = 0x504D5152 // "PMQR"
	runVersion = 1
	runFixed   = 48 // bytes before the hashes

	keyEntrySize    = 12
	runBlockHeader  = 16
	runBlockEntries = (blockSize - runBlockHeader) / keyEntrySize
	// maxRunBlocks is the most data blocks whose first hashes a header holds.
	maxRunBlocks = (blockSize - runFixed - 4) / 4
)

// keyRun is a run of the index. It is not changed, but for fences.
type keyRun struct {
	keySpan
	file *indexFile
	at   uint32 // number of its header block in the file

	// fences are the first hashes of its data blocks: set when it is written,
	// or by its first reader.
	fences atomic.Pointer[[]uint32]
}

// dataBlocks is the number of data blocks of so many entries.
func dataBlocks(entries int) int { return (entries + runBlockEntries - 1) / runBlockEntries }

// blocks is the number of blocks, with the header.
func (r *keyRun) blocks() uint32 { return uint32(1 + dataBlocks(r.entries)) }

// inBlock is the number of entries in a data block.
func (r *keyRun) inBlock(block int) int {
	return min(runBlockEntries, r.entries-block*runBlockEntries)
}

// fits reports whether what a checkpoint says of a run can be one that lies
// within so many blocks.
func (r *keyRun) fits(blocks uint32) bool {
	return r.entries > 0 && r.entries <= maxRunBlocks*runBlockEntries &&
		0 < r.first && r.first <= r.last && r.last-r.first <= math.MaxUint32 &&
		r.firstTime <= r.lastTime && r.lastTime-r.firstTime <= math.MaxUint32 &&
		r.at >= 1 && uint64(r.at)+uint64(r.blocks()) <= uint64(blocks)
}

// appendRun appends the blocks of a run and returns the first hashes, too.
func appendRun(dst []byte, s keySpan, sorted []keyEntry) (blocks []byte, fences []uint32) {
	be := binary.BigEndian
	start := len(dst)
	dst = be.AppendUint32(dst, runMagic)
	dst = be.AppendUint32(dst, runVersion)
	dst = be.AppendUint32(dst, uint32(s.entries))
	dst = be.AppendUint32(dst, 0)
	dst = be.AppendUint64(dst, uint64(s.first))
	dst = be.AppendUint64(dst, uint64(s.last))
	dst = be.AppendUint64(dst, uint64(s.firstTime))
	dst = be.AppendUint64(dst, uint64(s.lastTime))
	fences = make([]uint32, 0, dataBlocks(len(sorted)))
	for i := 0; i < len(sorted); i += runBlockEntries {
		fences = append(fences, sorted[i].hash)
		dst = be.AppendUint32(dst, sorted[i].hash)
	}
	dst = append(dst, make([]byte, start+blockSize-4-len(dst))...)
	dst = be.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	for n := uint32(0); len(sorted) > 0; n++ {
		at := len(dst)
		dst = be.AppendUint32(dst, 0)
		dst = be.AppendUint32(dst, n)
		dst = be.AppendUint64(dst, uint64(s.first))
		some := sorted[:min(len(sorted), runBlockEntries)]
		sorted = sorted[len(some):]
		for _, e := range some {
			dst = be.AppendUint32(dst, e.hash)
			dst = be.AppendUint32(dst, e.position)
			dst = be.AppendUint32(dst, e.time)
		}
		dst = append(dst, make([]byte, at+blockSize-len(dst))...)
		be.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], castagnoli))
	}
	return dst, fences
}

// parseRunHeader reads a header block. ok is false when it is not one.
func parseRunHeader(b []byte) (s keySpan, fences []uint32, ok bool) {
	be := binary.BigEndian
	if len(b) != blockSize || be.Uint32(b) != runMagic || be.Uint32(b[4:]) != runVersion ||
		be.Uint32(b[blockSize-4:]) != crc32.Checksum(b[:blockSize-4], castagnoli) {
		return s, nil, false
	}
	n := be.Uint32(b[8:])
	if n == 0 || n > maxRunBlocks*runBlockEntries {
		return s, nil, false
	}
	s = keySpan{
		entries: int(n),
		first:   int64(be.Uint64(b[16:])), last: int64(be.Uint64(b[24:])),
		firstTime: int64(be.Uint64(b[32:])), lastTime: int64(be.Uint64(b[40:])),
	}
	fences = make([]uint32, dataBlocks(s.entries))
	for i := range fences {
		fences[i] = be.Uint32(b[runFixed+4*i:])
	}
	return s, fences, true
}

// runBlock is a verified data block.
type runBlock []byte

func (b runBlock) entry(i int) keyEntry {
	at := b[runBlockHeader+i*keyEntrySize:]
	be := binary.BigEndian
	return keyEntry{hash: be.Uint32(at), position: be.Uint32(at[4:]), time: be.Uint32(at[8:])}
}

// read fills b with a block of the run: 0 is its header.
func (r *keyRun) read(fd io.ReaderAt, block uint32, b []byte) error {
	if _, err := fd.ReadAt(b, int64(r.at+block)*blockSize); err != nil {
		if errors.Is(err, io.EOF) {
			return r.damaged(block, "the file ends before it")
		}
		return fmt.Errorf("store: read key index %s: %w", r.file.path, err)
	}
	return nil
}

// damaged makes an error for a block of the run that is not what was written.
func (r *keyRun) damaged(block uint32, what string) error {
	return fmt.Errorf("%w file %s, block %d: %s; it is rebuilt from the commit log when the store is opened next",
		errIndexDamaged, r.file.path, r.at+block, what)
}

// fencesOf returns the first hashes of the data blocks. It reads the header with
// the help of b when they are not known.
func (r *keyRun) fencesOf(fd io.ReaderAt, b []byte) ([]uint32, error) {
	if f := r.fences.Load(); f != nil {
		return *f, nil
	}
	if err := r.read(fd, 0, b); err != nil {
		return nil, err
	}
	s, fences, ok := parseRunHeader(b)
	if !ok || s != r.keySpan {
		return nil, r.damaged(0, fmt.Sprintf("it is not the header of the run of positions %d to %d", r.first, r.last))
	}
	r.fences.Store(&fences)
	return fences, nil
}

// block reads a data block into b and verifies it.
func (r *keyRun) block(fd io.ReaderAt, block int, b []byte) (runBlock, error) {
	at := uint32(block) + 1
	if err := r.read(fd, at, b); err != nil {
		return nil, err
	}
	be := binary.BigEndian
	if be.Uint32(b) != crc32.Checksum(b[4:], castagnoli) || be.Uint32(b[4:]) != uint32(block) || int64(be.Uint64(b[8:])) != r.first {
		return nil, r.damaged(at, fmt.Sprintf("it is not the one written for the run of positions %d to %d", r.first, r.last))
	}
	return b, nil
}

// find calls yield for each entry of a hash, newest first, until it returns
// false. b is room for one block.
func (r *keyRun) find(fd io.ReaderAt, hash uint32, b []byte, yield func(keyEntry) bool) error {
	fences, err := r.fencesOf(fd, b)
	if err != nil {
		return err
	}
	// The last block that begins with the hash or a smaller one has the newest
	// entry. Others lie in those before as long as they begin with it.
	for i := sort.Search(len(fences), func(i int) bool { return fences[i] > hash }) - 1; i >= 0; i-- {
		block, err := r.block(fd, i, b)
		if err != nil {
			return err
		}
		n := r.inBlock(i)
		for j := sort.Search(n, func(j int) bool { return block.entry(j).hash > hash }) - 1; j >= 0; j-- {
			e := block.entry(j)
			if e.hash != hash {
				break
			}
			if !yield(e) {
				return nil
			}
		}
		if fences[i] != hash {
			return nil
		}
	}
	return nil
}
