package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
)

const (
	syncedName    = "synced"   // in the folder of the commit log
	syncedMagic   = 0x504D5153 // "PMQS"
	syncedVersion = 1
	syncedSlot    = 32        // bytes of a slot
	syncedStride  = blockSize // from one slot to the other: they do not share a sector
	syncedSize    = syncedStride + syncedSlot
)

// syncedMark is the file commitlog/synced: up to which position the log is known
// to be synced. It belongs to the log, and proves of its end what entries and
// headers further behind prove of the rest. Without it those, and the checkpoint,
// have to do.
//
// It has two slots, which are written in turn, in place, and synced: whatever
// becomes of a write, the other slot stays. The valid one with the higher sequence
// counts. What it says was true before it was written and stays true, so neither
// a lost nor an early write of it does harm.
//
//	magic 4, version 4, position 8, sequence 8, zeros 4
//	CRC-32C of all before 4
type syncedMark struct {
	path string
	disk syncer

	// position is what the file says; 0 when there is none. Only the janitor
	// writes, or who opens or closes the store.
	position atomic.Int64
	sequence uint64
	whole    bool // there is a file with a valid slot
}

// load reads the mark of a commit log. A file that is missing, or not one of this
// version, says nothing.
func (m *syncedMark) load(dir string, disk syncer) error {
	m.path, m.disk = filepath.Join(dir, syncedName), disk
	b, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(b) != syncedSize {
		return nil
	}
	for _, slot := range [][]byte{b[:syncedSlot], b[syncedStride:]} {
		if position, sequence, ok := parseSyncedSlot(slot); ok && (!m.whole || sequence > m.sequence) {
			m.whole, m.sequence = true, sequence
			m.position.Store(position)
		}
	}
	return nil
}

// raise makes the mark say that the log is synced up to a position, unless it says
// so. After an error it says what it said before.
func (m *syncedMark) raise(position int64) error {
	if position <= m.position.Load() {
		return nil
	}
	write := m.overwrite
	if !m.whole {
		write = m.create
	}
	if err := write(position); err != nil {
		return err
	}
	m.whole = true
	m.sequence++
	m.position.Store(position)
	return nil
}

func (m *syncedMark) create(position int64) error {
	b := make([]byte, syncedSize)
	copy(b[m.next():], syncedSlotOf(position, m.sequence+1))
	return replaceFile(m.path, b, m.disk)
}

// next is where the next slot is written: not over the one that counts.
func (m *syncedMark) next() int64 { return int64((m.sequence + 1) % 2 * syncedStride) }

func (m *syncedMark) overwrite(position int64) error {
	f, err := m.disk.open(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m.create(position) // somebody has removed it
	}
	if err != nil {
		return err
	}
	err = m.disk.overwrite(f, syncedSlotOf(position, m.sequence+1), m.next())
	if err == nil {
		err = m.disk.file(f)
	}
	return errors.Join(err, f.Close())
}

func syncedSlotOf(position int64, sequence uint64) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(nil, syncedMagic)
	b = be.AppendUint32(b, syncedVersion)
	b = be.AppendUint64(b, uint64(position))
	b = be.AppendUint64(b, sequence)
	b = be.AppendUint32(b, 0)
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parseSyncedSlot(b []byte) (position int64, sequence uint64, ok bool) {
	be := binary.BigEndian
	position, sequence = int64(be.Uint64(b[8:])), be.Uint64(b[16:])
	return position, sequence, be.Uint32(b) == syncedMagic && be.Uint32(b[4:]) == syncedVersion && position > 0 &&
		be.Uint32(b[syncedSlot-4:]) == crc32.Checksum(b[:syncedSlot-4], castagnoli)
}

// markSynced makes commitlog/synced say what is known to be synced. Nothing
// depends on it but what an open may believe, so an error is only reported.
func (s *Store) markSynced() {
	if s.cfg.Throwaway || s.damage != nil || s.flusher.broken.Load() {
		return
	}
	if err := s.mark.raise(s.log.proven.Load()); err != nil {
		s.cfg.Logger.Warn("store: cannot write what is synced; this is tried again later", "file", s.mark.path, "err", err)
	}
}

// lower lowers what commitlog/synced says: both its slots, since the one that is
// not overwritten would count if the other were damaged.
func (m *syncedMark) lower(position int64) error {
	if !m.whole || m.position.Load() <= position {
		return nil
	}
	if position < 1 {
		err := m.disk.remove(m.path)
		return errors.Join(err, m.disk.dir(filepath.Dir(m.path)))
	}
	for range 2 {
		if err := m.overwrite(position); err != nil {
			return err
		}
		m.sequence++
	}
	m.position.Store(position)
	return nil
}
