package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

const (
	firstName    = "first"    // in the folder of the commit log
	firstMagic   = 0x504D5146 // "PMQF"
	firstVersion = 1
)

// firstMark is the content of the file commitlog/first: where the log begins
// now that older files have been deleted. It belongs to the log and is written
// before the first of them goes, so a file below it is a leftover, and a log
// that begins above it is damaged.
//
// It also keeps where a queue goes on of which no record is left, or none that
// is known to be synced: nothing else in the log tells. There is no such file
// before something has been deleted.
//
//	magic 4, version 4, position 8, bytes 8, epoch 8, number of queues 4
//	per queue: length of topic 4, topic, queue id 8, next offset 8
//	CRC-32C of all before 4
type firstMark struct {
	position int64 // of the first record; one behind the end when there is none
	bytes    int64 // size of all files before it
	epoch    int64
	queues   []queueStart
}

// queueStart is the offset at which the first record of a queue lies that the
// log holds, or will hold.
type queueStart struct {
	key  QueueID
	next int64
}

func (m *firstMark) encode() []byte {
	be := binary.BigEndian
	b := be.AppendUint32(nil, firstMagic)
	b = be.AppendUint32(b, firstVersion)
	b = be.AppendUint64(b, uint64(m.position))
	b = be.AppendUint64(b, uint64(m.bytes))
	b = be.AppendUint64(b, uint64(m.epoch))
	b = be.AppendUint32(b, uint32(len(m.queues)))
	for _, q := range m.queues {
		b = be.AppendUint32(b, uint32(len(q.key.Topic)))
		b = append(b, q.key.Topic...)
		b = be.AppendUint64(b, uint64(q.key.ID))
		b = be.AppendUint64(b, uint64(q.next))
	}
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseFirst reads a firstMark. ok is false for anything that is not one whole
// mark of this version.
func parseFirst(b []byte) (m *firstMark, ok bool) {
	if len(b) < 4 {
		return nil, false
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	r := checkpointReader{b: body}
	if r.u32() != firstMagic || r.u32() != firstVersion || crc32.Checksum(body, castagnoli) != sum {
		return nil, false
	}
	m = &firstMark{position: r.i64(), bytes: r.i64(), epoch: r.i64()}
	queues := r.count(4 + 8 + 8)
	for i := 0; i < queues && !r.bad; i++ {
		var q queueStart
		q.key.Topic = string(r.bytes(r.count(1)))
		id := r.i64()
		q.key.ID, q.next = int(id), r.i64()
		if id > math.MaxInt32 {
			return nil, false
		}
		m.queues = append(m.queues, q)
	}
	return m, !r.bad && len(r.b) == 0 && m.position > 0
}

// loadFirst reads the mark of a commit log; nil when there is none. bad means
// that there is one and it cannot be right.
func loadFirst(dir string) (m *firstMark, bad bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, firstName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	m, ok := parseFirst(b)
	return m, !ok, nil
}

// save replaces the mark of a commit log.
func (m *firstMark) save(dir string, disk syncer) error {
	return replaceFile(filepath.Join(dir, firstName), m.encode(), disk)
}
