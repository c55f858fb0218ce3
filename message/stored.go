package message

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/netip"
	"slices"
)

// The layout of a record up to its born host, which takes 8 or 20 bytes.
// Everything after it moves with the two hosts. All numbers are big endian.
const (
	atMagic       = 4
	atBodyCRC     = 8
	atQueueID     = 12
	atFlag        = 16
	atQueueOffset = 20
	atPosition    = 28
	atSysFlag     = 36
	atBornTime    = 40
	atBornHost    = 48

	hostV4 = 4 + 4 // address, port
	hostV6 = 16 + 4

	// fixedSize is what a record takes besides hosts, topic length, topic,
	// body and properties.
	fixedSize = atBornHost + 8 + 4 + 8 + 4 + 2
)

// MinRecordSize is the size of the smallest record: IPv4 hosts, nothing else.
const MinRecordSize = fixedSize + 2*hostV4 + 1

// What marks a record, and its version: V2 holds the topic's length in two
// bytes, V1 in one. Java: MessageDecoder.MESSAGE_MAGIC_CODE and _V2.
const (
	MagicV1 uint32 = 0xDAA320A7
	MagicV2 uint32 = 0xDAA320AB
)

// Record is what AppendRecord encodes: one message as the broker stores it.
// Times are milliseconds since 1970. Body and Properties are taken as they
// are; nothing is kept. Java: MessageExtBrokerInner.
type Record struct {
	QueueID     int32
	Flag        int32 // the application's own, passed through
	QueueOffset int64
	Position    int64 // PHYSICALOFFSET: the record's place in the commit log
	SysFlag     int32 // Flag constants; the IPv6 bits are set by the hosts
	BornTime    int64 // ms
	StoreTime   int64 // ms

	// BornHost and StoreHost: an IPv4-mapped IPv6 address counts as IPv4, the
	// zero value as 0.0.0.0:0; a zone is dropped.
	BornHost, StoreHost netip.AddrPort

	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	Body                      []byte // as it is stored: compressed if SysFlag says so
	Topic                     string // at most MaxPrefixedTopicLength bytes
	Properties                string // encoded text, at most MaxPropertiesLength bytes

	// Accepted marks a copy of a message that was accepted before: Properties may
	// take MaxStoredPropertiesLength bytes then, to have room for what brokers add
	// on the way. Differs: Java reads the length with its sign, so there such a
	// message can be neither delayed nor tried again.
	Accepted bool
}

// RecordSize returns the number of bytes that AppendRecord adds for r.
// Java: MessageExtEncoder.calMsgLength.
func RecordSize(r *Record) int { return recordSize(r, len(r.Topic) > MaxTopicLength) }

func recordSize(r *Record, v2 bool) int {
	n := fixedSize + hostSize(r.BornHost.Addr()) + hostSize(r.StoreHost.Addr()) +
		1 + len(r.Topic) + len(r.Body) + len(r.Properties)
	if v2 {
		n++
	}
	return n
}

// AppendRecord appends r in RocketMQ's stored format: version 1, and version
// 2 exactly when the topic is longer than MaxTopicLength. It fails with
// ErrIllegalMessage when the topic or the properties are too long, and then
// returns dst unchanged. Java: MessageExtEncoder.encode.
func AppendRecord(dst []byte, r *Record) ([]byte, error) {
	return appendRecord(dst, r, len(r.Topic) > MaxTopicLength)
}

func appendRecord(dst []byte, r *Record, v2 bool) ([]byte, error) {
	size := recordSize(r, v2)
	limit := MaxPropertiesLength
	if r.Accepted {
		limit = MaxStoredPropertiesLength
	}
	switch {
	case len(r.Properties) > limit:
		return dst, fmt.Errorf("%w: the properties text of a message to topic %q takes %d bytes, maximum %d; send fewer or shorter properties",
			ErrIllegalMessage, r.Topic, len(r.Properties), limit)
	case len(r.Topic) > MaxPrefixedTopicLength:
		return dst, fmt.Errorf("%w: topic %.32q... takes %d bytes, maximum %d; use a shorter name",
			ErrIllegalMessage, r.Topic, len(r.Topic), MaxPrefixedTopicLength)
	case size > math.MaxInt32:
		return dst, fmt.Errorf("%w: a body of %d bytes does not fit a record; split it", ErrIllegalMessage, len(r.Body))
	}

	start := len(dst)
	dst = slices.Grow(dst, size)[:start+size]
	b := dst[start:]
	bornV6, storeV6 := isV6(r.BornHost.Addr()), isV6(r.StoreHost.Addr())
	sysFlag := r.SysFlag &^ (FlagBornHostV6 | FlagStoreHostV6)
	if bornV6 {
		sysFlag |= FlagBornHostV6
	}
	if storeV6 {
		sysFlag |= FlagStoreHostV6
	}
	magic := MagicV1
	if v2 {
		magic = MagicV2
	}
	be := binary.BigEndian
	be.PutUint64(b, uint64(size)<<32|uint64(magic))
	be.PutUint32(b[atBodyCRC:], BodyCRC(r.Body))
	be.PutUint32(b[atQueueID:], uint32(r.QueueID))
	be.PutUint32(b[atFlag:], uint32(r.Flag))
	be.PutUint64(b[atQueueOffset:], uint64(r.QueueOffset))
	be.PutUint64(b[atPosition:], uint64(r.Position))
	be.PutUint32(b[atSysFlag:], uint32(sysFlag))
	be.PutUint64(b[atBornTime:], uint64(r.BornTime))
	b = b[atBornHost:]
	b = putHost(b, r.BornHost, bornV6)
	be.PutUint64(b, uint64(r.StoreTime))
	b = putHost(b[8:], r.StoreHost, storeV6)
	be.PutUint32(b, uint32(r.ReconsumeTimes))
	be.PutUint64(b[4:], uint64(r.PreparedTransactionOffset))
	be.PutUint32(b[12:], uint32(len(r.Body)))
	b = b[16:]
	b = b[copy(b, r.Body):]
	if v2 {
		be.PutUint16(b, uint16(len(r.Topic)))
		b = b[2:]
	} else {
		b[0] = byte(len(r.Topic))
		b = b[1:]
	}
	b = b[copy(b, r.Topic):]
	be.PutUint16(b, uint16(len(r.Properties)))
	copy(b[2:], r.Properties)
	return dst, nil
}

// PatchRecord writes into an encoded record what is known only when it is
// appended to the log: its place in the queue, its place in the log, and the
// store time in milliseconds. rec must be one record as AppendRecord makes
// it. The body's checksum does not cover these fields.
func PatchRecord(rec []byte, queueOffset, position, storeTimeMs int64) {
	be := binary.BigEndian
	be.PutUint64(rec[atQueueOffset:], uint64(queueOffset))
	be.PutUint64(rec[atPosition:], uint64(position))
	be.PutUint64(rec[View(rec).atStoreTime():], uint64(storeTimeMs))
}

// BodyCRC returns the checksum that a record keeps of its stored body: CRC-32
// (IEEE) with the sign bit cleared. Java: UtilAll.crc32.
func BodyCRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & 0x7FFFFFFF }

// isV6 reports whether a takes 16 bytes in a record. An IPv4-mapped address
// does not, as Java's InetAddress never holds one.
func isV6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

func hostSize(a netip.Addr) int {
	if isV6(a) {
		return hostV6
	}
	return hostV4
}

// putHost writes a host and returns what of b follows it.
func putHost(b []byte, host netip.AddrPort, v6 bool) []byte {
	n := 4
	switch a := host.Addr(); {
	case v6:
		n = 16
		v := a.As16()
		copy(b, v[:])
	case a.IsValid():
		v := a.Unmap().As4()
		copy(b, v[:])
	default:
		copy(b, "\x00\x00\x00\x00")
	}
	binary.BigEndian.PutUint32(b[n:], uint32(host.Port()))
	return b[n+4:]
}
