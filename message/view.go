package message

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// View reads one encoded record in place. Its methods do not allocate and
// expect that ParseView made it; on other bytes they may panic. The slices
// they return are parts of the record: read-only wherever the record is.
// Safe for concurrent use.
type View []byte

// ParseView checks the record at the start of b, all of its lengths and its
// mark, and returns exactly its bytes. It does not check the body against its
// checksum: CheckBody does. Whatever b holds, it does not panic; what is no
// whole record is ErrBadRecord.
//
// Differs: Java's MessageDecoder.decode does not compare the lengths inside
// with the record's size; CommitLog.checkMessageAndReturnSize does, as here.
func ParseView(b []byte) (View, error) {
	v, _, err := parse(b)
	return v, err
}

// places tells where the parts of a record lie whose place depends on the
// sizes of others.
type places struct {
	storeTime, reconsume int
	body, topic, props   int // after their lengths
	bodyEnd, topicEnd    int
}

// parse is ParseView; what it found out spares its callers to look again.
func parse(b []byte) (v View, at places, err error) {
	if len(b) < MinRecordSize {
		return nil, at, fmt.Errorf("%w: %d bytes, the smallest record takes %d", ErrBadRecord, len(b), MinRecordSize)
	}
	be := binary.BigEndian
	size := int(int32(be.Uint32(b)))
	if size < MinRecordSize || size > len(b) {
		return nil, at, fmt.Errorf("%w: it claims %d bytes, %d are there", ErrBadRecord, size, len(b))
	}
	v = View(b[:size:size])
	magic := v.Magic()
	if magic != MagicV1 && magic != MagicV2 {
		return nil, at, fmt.Errorf("%w: it starts with the mark %#08x", ErrBadRecord, magic)
	}

	sysFlag := v.SysFlag()
	at.storeTime = atBornHost + hostV4
	if sysFlag&FlagBornHostV6 != 0 {
		at.storeTime = atBornHost + hostV6
	}
	at.reconsume = at.storeTime + 8 + hostV4
	if sysFlag&FlagStoreHostV6 != 0 {
		at.reconsume = at.storeTime + 8 + hostV6
	}

	// left counts what follows the part in hand; each length is compared with
	// it before the part's end is computed.
	at.body = at.reconsume + 4 + 8 + 4
	left := size - at.body
	if left < 0 {
		return nil, at, fmt.Errorf("%w: %d bytes do not hold its hosts", ErrBadRecord, size)
	}
	n := int(v.int32At(at.body - 4))
	if n < 0 || n > left {
		return nil, at, fmt.Errorf("%w: a body of %d bytes does not fit its %d bytes", ErrBadRecord, n, size)
	}
	at.bodyEnd = at.body + n
	at.topic = at.bodyEnd + 1
	if magic == MagicV2 {
		at.topic++
	}
	if left = size - at.topic; left < 0 {
		return nil, at, fmt.Errorf("%w: %d bytes end before its topic", ErrBadRecord, size)
	}
	if magic == MagicV2 {
		n = int(int16(be.Uint16(v[at.bodyEnd:])))
	} else {
		n = int(int8(v[at.bodyEnd])) // Java reads it with its sign: over 127 has wrapped
	}
	if n < 0 || n > left {
		return nil, at, fmt.Errorf("%w: a topic of %d bytes does not fit its %d bytes", ErrBadRecord, n, size)
	}
	at.topicEnd = at.topic + n
	at.props = at.topicEnd + 2
	if left = size - at.props; left < 0 {
		return nil, at, fmt.Errorf("%w: %d bytes end before its properties", ErrBadRecord, size)
	}
	if n = int(be.Uint16(v[at.topicEnd:])); n != left {
		return nil, at, fmt.Errorf("%w: properties of %d bytes, %d are left of its %d bytes", ErrBadRecord, n, left, size)
	}
	if v.int32At(at.storeTime-4)>>16 != 0 || v.int32At(at.reconsume-4)>>16 != 0 {
		return nil, at, fmt.Errorf("%w: a host has a port over %d", ErrBadRecord, math.MaxUint16)
	}
	return v, at, nil
}

// Places that depend on the sizes of the hosts.

func (v View) atStoreTime() int {
	if v.SysFlag()&FlagBornHostV6 != 0 {
		return atBornHost + hostV6
	}
	return atBornHost + hostV4
}

func (v View) atReconsume() int {
	if v.SysFlag()&FlagStoreHostV6 != 0 {
		return v.atStoreTime() + 8 + hostV6
	}
	return v.atStoreTime() + 8 + hostV4
}

// atBody is where the body's length lies.
func (v View) atBody() int { return v.atReconsume() + 4 + 8 }

func (v View) bodyLen() int { return int(binary.BigEndian.Uint32(v[v.atBody():])) }

// atTopic is where the topic's text lies.
func (v View) atTopic() int {
	at := v.atBody() + 4 + v.bodyLen() + 1
	if v.Magic() == MagicV2 {
		at++
	}
	return at
}

func (v View) topicLen() int {
	at := v.atTopic()
	if v.Magic() == MagicV2 {
		return int(binary.BigEndian.Uint16(v[at-2:]))
	}
	return int(v[at-1])
}

func (v View) int32At(at int) int32 { return int32(binary.BigEndian.Uint32(v[at:])) }
func (v View) int64At(at int) int64 { return int64(binary.BigEndian.Uint64(v[at:])) }

// hostAt reads a host; an IPv4-mapped address comes out as IPv4.
func (v View) hostAt(at int, v6 bool) netip.AddrPort {
	if v6 {
		a := netip.AddrFrom16([16]byte(v[at : at+16])).Unmap()
		return netip.AddrPortFrom(a, uint16(v.int32At(at+16)))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(v[at:at+4])), uint16(v.int32At(at+4)))
}

// Size returns the bytes the record takes: TOTALSIZE.
func (v View) Size() int { return len(v) }

// Magic returns the mark that tells the version: MagicV1 or MagicV2.
func (v View) Magic() uint32 { return binary.BigEndian.Uint32(v[atMagic:]) }

// BodyCRC returns the stored checksum of the body.
func (v View) BodyCRC() uint32 { return binary.BigEndian.Uint32(v[atBodyCRC:]) }

// QueueID returns the queue the record lies in.
func (v View) QueueID() int32 { return v.int32At(atQueueID) }

// Flag returns the application's own number.
func (v View) Flag() int32 { return v.int32At(atFlag) }

// QueueOffset returns the record's place in its queue, from 0.
func (v View) QueueOffset() int64 { return v.int64At(atQueueOffset) }

// Position returns the record's place in the commit log: PHYSICALOFFSET.
func (v View) Position() int64 { return v.int64At(atPosition) }

// SysFlag returns the Flag bits, as stored.
func (v View) SysFlag() int32 { return v.int32At(atSysFlag) }

// BornTime returns when the producer made the message, in ms since 1970.
func (v View) BornTime() int64 { return v.int64At(atBornTime) }

// StoreTime returns when the broker stored the message, in ms since 1970.
func (v View) StoreTime() int64 { return v.int64At(v.atStoreTime()) }

// BornHost returns the producer's address.
func (v View) BornHost() netip.AddrPort {
	return v.hostAt(atBornHost, v.SysFlag()&FlagBornHostV6 != 0)
}

// StoreHost returns the broker's address.
func (v View) StoreHost() netip.AddrPort {
	return v.hostAt(v.atStoreTime()+8, v.SysFlag()&FlagStoreHostV6 != 0)
}

// ReconsumeTimes returns the number of failed deliveries so far.
func (v View) ReconsumeTimes() int32 { return v.int32At(v.atReconsume()) }

// PreparedTransactionOffset returns the position of the half message that a
// committed transactional message came from, else 0.
func (v View) PreparedTransactionOffset() int64 { return v.int64At(v.atReconsume() + 4) }

// Body returns the body as stored: compressed if SysFlag says so.
func (v View) Body() []byte {
	at := v.atBody() + 4
	end := at + v.bodyLen()
	return v[at:end:end]
}

// Topic returns the topic the record lies in.
func (v View) Topic() []byte {
	at := v.atTopic()
	end := at + v.topicLen()
	return v[at:end:end]
}

// Properties returns the properties text.
func (v View) Properties() []byte { return v[v.atTopic()+v.topicLen()+2:] }

// CheckBody compares the body with its checksum; a mismatch is ErrBadRecord.
func (v View) CheckBody() error {
	if got, want := BodyCRC(v.Body()), v.BodyCRC(); got != want {
		return fmt.Errorf("%w: the body of position %d has CRC %08x, the record says %08x", ErrBadRecord, v.Position(), got, want)
	}
	return nil
}

// TagsCode returns the number that a broker filters by: the hash of the tag,
// 0 without one. Java: MessageExtBrokerInner.tagsString2tagsCode.
func (v View) TagsCode() int64 {
	tag, ok := PropertyBytes(v.Properties(), PropTags)
	if !ok {
		return 0
	}
	return int64(tagHashBytes(tag))
}
