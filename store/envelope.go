package store

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Every entry of a commit-log file is an envelope around one record:
//
//	u32      CRC-32C of all that follows, plus the low 32 bits of the position
//	uvarint  position minus the synced position known when it was written
//	record   starts with TOTALSIZE and MAGIC
//
// The position itself is not stored: the sum gives it back, so an entry that
// is whole but lies in the wrong place does not verify. The distance is the
// proof of recovery: whoever reads a valid entry knows that everything up to
// position - distance had been synced before.
//
// The wal puts a uvarint length in front of each entry. All fixed-size
// integers of the store are big-endian, like those of the record.

const (
	crcSize = 4
	// headroom is what must be free in front of an encoded record so that its
	// envelope can be written in place.
	headroom = crcSize + binary.MaxVarintLen64

	// Magic numbers of records. All share their first three bytes, which is
	// what the search after a damaged entry looks for.
	magicV1     = 0xDAA320A7
	magicV2     = 0xDAA320AB
	magicHeader = 0xDAA320F1

	// minRecord is the size of the smallest record or header accepted, and
	// minStored what the smallest record, a lost one, takes in a segment.
	minRecord = headerSize
	minStored = 1 + crcSize + 1 + lostFixed
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func magicPrefix() []byte { return []byte{0xDA, 0xA3, 0x20} }

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// sealEntry writes the envelope of the record buf[at:at+size] right in front
// of it and returns the whole entry, which aliases buf. At least headroom bytes
// must be free before at.
func sealEntry(buf []byte, at, size int, pos, synced int64) []byte {
	distance := uint64(pos - synced)
	start := at - uvarintLen(distance)
	binary.PutUvarint(buf[start:at], distance)
	crc := crc32.Checksum(buf[start:at+size], castagnoli) + uint32(pos)
	start -= crcSize
	binary.BigEndian.PutUint32(buf[start:], crc)
	return buf[start : at+size]
}

// canonicalUvarint reads a uvarint that is encoded in the shortest way; n is 0
// otherwise. Only those are ever written.
func canonicalUvarint(b []byte) (v uint64, n int) {
	if len(b) >= 2 { // what nearly all lengths and distances take
		if b[0] < 0x80 {
			return uint64(b[0]), 1
		}
		if b[1] < 0x80 && b[1] != 0 {
			return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
		}
	}
	v, n = binary.Uvarint(b)
	if n <= 0 || (n > 1 && b[n-1] == 0) {
		return 0, 0
	}
	return v, n
}

// recordOf strips the envelope without verifying it. It is for entries that
// come from the memory of the wal. The result is nil for a malformed entry.
func recordOf(entry []byte) []byte {
	if len(entry) < crcSize+1 {
		return nil
	}
	if entry[crcSize] < 0x80 {
		return entry[crcSize+1:]
	}
	_, n := binary.Uvarint(entry[crcSize:])
	if n <= 0 {
		return nil
	}
	return entry[crcSize+n:]
}

// plausible reports whether b has the outer shape of exactly one record:
// TOTALSIZE is its length and MAGIC is known.
func plausible(b []byte) bool {
	if len(b) < minRecord || uint64(binary.BigEndian.Uint32(b)) != uint64(len(b)) {
		return false
	}
	switch binary.BigEndian.Uint32(b[4:]) {
	case magicV1, magicV2, magicHeader, magicLost, magicDrop:
		return true
	}
	return false
}

func isHeader(rec []byte) bool { return binary.BigEndian.Uint32(rec[4:]) == magicHeader }

// openEntry verifies an entry against its position and returns the record and
// the distance. The shape is looked at before the CRC is computed.
func openEntry(entry []byte, pos int64) (rec []byte, distance int64, ok bool) {
	if len(entry) < crcSize+1+minRecord {
		return nil, 0, false
	}
	d, n := canonicalUvarint(entry[crcSize:])
	if n == 0 || d > uint64(pos) || !plausible(entry[crcSize+n:]) {
		return nil, 0, false
	}
	crc := crc32.Checksum(entry[crcSize:], castagnoli)
	if binary.BigEndian.Uint32(entry) != crc+uint32(pos) {
		return nil, 0, false
	}
	return entry[crcSize+n:], int64(d), true
}

// cutEntry returns the entry at the start of b, a piece of a wal segment, and
// the number of bytes it takes there. ok is false when b does not start with a
// whole entry.
func cutEntry(b []byte) (entry []byte, n int, ok bool) {
	size, k := canonicalUvarint(b)
	if k == 0 || size > uint64(len(b)-k) {
		return nil, 0, false
	}
	n = k + int(size)
	return b[k:n:n], n, true
}

// storedSize is what an entry of the given length takes in a segment.
func storedSize(entry int) int64 { return int64(uvarintLen(uint64(entry)) + entry) }

// hit is a valid entry found by searchEntries.
type hit struct {
	position int64
	distance int64
	from, to int    // its bytes, the wal's length included
	record   []byte // aliases the data
}

// synced is the position that the hit proves to have been synced.
func (h hit) synced() int64 { return h.position - h.distance }

// searchEntries looks in data, from byte offset from on, for valid entries at
// any byte. It calls yield for each, in the order of their bytes, until yield
// returns false. The entry at byte 0, whatever is left of it, has the position
// first: an entry further on has a position between that and first plus what
// fits into the bytes in between; and not first itself when from > 0, because
// that is then the position of what lies before from. That bound is what keeps
// an accidental match of 32 bits from counting.
//
// The search goes from magic number to magic number and computes a CRC only
// where both lengths in front of it fit, so zeros, 0xFF and random bytes cost
// no more than reading them; and that CRC costs the same for a long range, so
// lengths that a hostile record holds in its body do not either.
func searchEntries(data []byte, from int, first int64, yield func(hit) bool) {
	prefix := magicPrefix()
	sums := rangeCRC{data: data}
	for i := from; i < len(data); {
		j := bytes.Index(data[i:], prefix)
		if j < 0 {
			return
		}
		at := i + j - 4 // where the record would start
		i += j + 1
		if at < from || at+8 > len(data) {
			continue
		}
		total := uint64(binary.BigEndian.Uint32(data[at:]))
		if total > uint64(len(data)-at) || !plausible(data[at:at+int(total)]) {
			continue
		}
		for k := 1; k <= binary.MaxVarintLen64; k++ {
			size := crcSize + k + int(total)
			start := at - k - crcSize
			begin := start - uvarintLen(uint64(size))
			if begin < from {
				break
			}
			if v, n := canonicalUvarint(data[begin:start]); n != start-begin || v != uint64(size) {
				continue
			}
			d, n := canonicalUvarint(data[at-k : at])
			if n != k {
				continue
			}
			low := binary.BigEndian.Uint32(data[start:]) - sums.sum(start+crcSize, start+size)
			ahead := int64(low - uint32(first)) // modulo 2^32
			pos := first + ahead
			if ahead > int64(begin/minStored) || ahead == 0 && from > 0 || d > uint64(pos) {
				continue
			}
			if !yield(hit{position: pos, distance: int64(d), from: begin, to: start + size, record: data[at : start+size]}) {
				return
			}
			i = max(i, start+size)
			break
		}
	}
}

// headerSize is the size of a file header record.
const headerSize = 44

// fileHeader is the first entry of each commit-log file. Its position, for the
// envelope, is base - 1.
type fileHeader struct {
	format  uint32
	base    int64 // position of the first record of the file, from 1
	bytes   int64 // size of all files before this one
	epoch   int64
	created int64 // milliseconds
}

// appendTo appends the header as a record of headerSize bytes.
func (h fileHeader) appendTo(dst []byte) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, headerSize)
	dst = be.AppendUint32(dst, magicHeader)
	dst = be.AppendUint32(dst, h.format)
	dst = be.AppendUint64(dst, uint64(h.base))
	dst = be.AppendUint64(dst, uint64(h.bytes))
	dst = be.AppendUint64(dst, uint64(h.epoch))
	return be.AppendUint64(dst, uint64(h.created))
}

// entry returns the header as a sealed entry.
func (h fileHeader) entry(synced int64) []byte {
	buf := h.appendTo(make([]byte, headroom, headroom+headerSize))
	return sealEntry(buf, headroom, headerSize, h.base-1, synced)
}

// parseHeader reads the entry at the start of a segment as the header of the
// file whose first position is base, and returns the bytes it takes. synced is
// the position that the header proves.
func parseHeader(segment []byte, base int64) (h fileHeader, n int, synced int64, ok bool) {
	entry, n, ok := cutEntry(segment)
	if !ok {
		return fileHeader{}, 0, 0, false
	}
	rec, distance, ok := openEntry(entry, base-1)
	if !ok || !isHeader(rec) || len(rec) != headerSize {
		return fileHeader{}, 0, 0, false
	}
	be := binary.BigEndian
	h = fileHeader{
		format:  be.Uint32(rec[8:]),
		base:    int64(be.Uint64(rec[12:])),
		bytes:   int64(be.Uint64(rec[20:])),
		epoch:   int64(be.Uint64(rec[28:])),
		created: int64(be.Uint64(rec[36:])),
	}
	if h.base != base || h.bytes < 0 {
		return fileHeader{}, 0, 0, false
	}
	return h, n, base - 1 - distance, true
}
