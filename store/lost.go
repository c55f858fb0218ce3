package store

import (
	"encoding/binary"
	"math"

	"github.com/pocketmq/pocketmq/message"
)

// A lost entry stands in the log where a record cannot be read any more, so
// that positions stay dense and all other records keep theirs. Salvage writes
// it, nothing else does. Its record:
//
//	 0  u32  TOTALSIZE
//	 4  u32  MAGIC 0xDAA320F2
//	 8  u64  position
//	16  u64  store time of the last readable record before it, milliseconds; 0: none
//	24  u64  when it was written, milliseconds
//	32  u64  queue offset of the lost record
//	40  u32  its queue id; 0xFFFFFFFF: the queue is not known
//	44  u16  length of its topic
//	46       the topic, then zeros up to TOTALSIZE
//
// The zeros make it as long as what it replaces, as far as that can be: the
// entries behind it stay at their bytes, and a file keeps the size that the
// header of the next one tells. That always suffices, because a record names its
// topic, too, and takes more beside it.
//
// A lost entry whose queue is known is dispatched like a record, as a void unit:
// its position, size 0, tagsCode 0. So the offsets of a queue stay dense over
// what it has lost; Get steps over void units as over messages that nobody
// wants. One whose queue is not known is in no queue: a record of a transaction
// not committed, or the last of a queue, where nothing tells that it was there.

const (
	magicLost = 0xDAA320F2
	lostFixed = 46 // bytes of a lost record in front of the topic
	noQueue   = math.MaxUint32
)

// lostRecord is what is known about a record that is lost.
type lostRecord struct {
	position  int64
	storeTime int64 // milliseconds; not after that of any record behind it
	salvaged  int64 // milliseconds
	known     bool  // whether key and offset are
	key       QueueID
	offset    int64
}

// size is the length of the smallest record for it.
func (l *lostRecord) size() int {
	if !l.known {
		return lostFixed
	}
	return lostFixed + len(l.key.Topic)
}

// appendTo appends the lost record with a length of size bytes, which is at
// least l.size().
func (l *lostRecord) appendTo(dst []byte, size int) []byte {
	be := binary.BigEndian
	end := len(dst) + size
	dst = be.AppendUint32(dst, uint32(size))
	dst = be.AppendUint32(dst, magicLost)
	dst = be.AppendUint64(dst, uint64(l.position))
	dst = be.AppendUint64(dst, uint64(l.storeTime))
	dst = be.AppendUint64(dst, uint64(l.salvaged))
	if l.known {
		dst = be.AppendUint64(dst, uint64(l.offset))
		dst = be.AppendUint32(dst, uint32(l.key.ID))
		dst = be.AppendUint16(dst, uint16(len(l.key.Topic)))
		dst = append(dst, l.key.Topic...)
	} else {
		dst = be.AppendUint64(dst, 0)
		dst = be.AppendUint32(dst, noQueue)
		dst = be.AppendUint16(dst, 0)
	}
	return append(dst, make([]byte, end-len(dst))...)
}

func isLost(rec []byte) bool { return binary.BigEndian.Uint32(rec[4:]) == magicLost }

// parseLost reads a record for which isLost is true.
func parseLost(rec []byte) (l lostRecord, ok bool) {
	if len(rec) < lostFixed {
		return lostRecord{}, false
	}
	be := binary.BigEndian
	l = lostRecord{
		position:  int64(be.Uint64(rec[8:])),
		storeTime: int64(be.Uint64(rec[16:])),
		salvaged:  int64(be.Uint64(rec[24:])),
	}
	id, topic := be.Uint32(rec[40:]), int(be.Uint16(rec[44:]))
	if l.position < 1 || l.storeTime < 0 || l.salvaged < 0 || topic > len(rec)-lostFixed {
		return lostRecord{}, false
	}
	if id == noQueue {
		return l, topic == 0
	}
	l.known, l.offset = true, int64(be.Uint64(rec[32:]))
	l.key = QueueID{Topic: string(rec[lostFixed : lostFixed+topic]), ID: int(id)}
	return l, id <= math.MaxInt32 && l.offset >= 0 && l.offset < math.MaxInt64
}

// storeTimeOfEntry is the store time of a verified record, in milliseconds; that
// of a lost one does not exceed those behind it and is not below those before.
func storeTimeOfEntry(rec []byte) (int64, error) {
	if isLost(rec) {
		l, ok := parseLost(rec)
		if !ok {
			return 0, message.ErrBadRecord
		}
		return l.storeTime, nil
	}
	if isDrop(rec) {
		d, ok := parseDrop(rec)
		if !ok {
			return 0, message.ErrBadRecord
		}
		return d.storeTime, nil
	}
	v, err := message.ParseView(rec)
	if err != nil {
		return 0, err
	}
	return v.StoreTime(), nil
}

// slot is what a verified entry of the log says about its place.
type slot struct {
	key    QueueID
	offset int64
	unit   unit
	time   int64 // store time, milliseconds
	silent bool  // it is in no queue
	lost   bool
	drop   bool // it drops the topic of key, and is silent
}

// slotOf reads a verified entry. It fails when the entry contradicts its place.
func slotOf(path string, position int64, rec []byte) (slot, error) {
	if isLost(rec) {
		l, ok := parseLost(rec)
		if !ok || l.position != position {
			return slot{}, damagef(path, position, "the lost entry says it is at position %d", l.position)
		}
		return slot{
			key: l.key, offset: l.offset, unit: unit{position: position}, time: l.storeTime,
			silent: !l.known, lost: true,
		}, nil
	}
	if isDrop(rec) {
		d, ok := parseDrop(rec)
		if !ok || d.position != position {
			return slot{}, damagef(path, position, "the entry that drops a topic says it is at position %d", d.position)
		}
		return slot{key: QueueID{Topic: d.topic}, time: d.storeTime, silent: true, drop: true}, nil
	}
	v, err := message.ParseView(rec)
	switch {
	case err != nil:
		return slot{}, damagef(path, position, "%v", err)
	case v.Size() != len(rec):
		return slot{}, damagef(path, position, "the record has %d bytes and says %d", len(rec), v.Size())
	case v.Position() != position:
		return slot{}, damagef(path, position, "the record says it is at position %d", v.Position())
	case v.QueueID() < 0:
		return slot{}, damagef(path, position, "the record has queue id %d", v.QueueID())
	}
	s := slot{time: v.StoreTime(), silent: undispatched(v.SysFlag())}
	if !s.silent {
		s.key = QueueID{Topic: string(v.Topic()), ID: int(v.QueueID())}
		s.offset = v.QueueOffset()
		s.unit = unit{position: position, size: int32(len(rec)), tags: v.TagsCode()}
	}
	return s, nil
}
