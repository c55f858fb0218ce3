package message

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
)

// appendUpperHex appends b as upper-case hex digits. len(b) must be even.
func appendUpperHex(dst, b []byte) []byte {
	for ; len(b) >= 4; b = b[4:] {
		dst = binary.BigEndian.AppendUint64(dst, upperHex(binary.BigEndian.Uint32(b)))
	}
	if len(b) == 2 {
		dst = binary.BigEndian.AppendUint32(dst, uint32(upperHex(uint32(binary.BigEndian.Uint16(b)))))
	}
	return dst
}

// upperHex returns the eight hex digits of n, the first in the highest byte.
// All digits are made at once: it spreads the half bytes and then adds to
// each what makes it a digit or a letter.
func upperHex(n uint32) uint64 {
	x := uint64(n)
	x = (x<<16 | x) & 0x0000FFFF0000FFFF
	x = (x<<8 | x) & 0x00FF00FF00FF00FF
	x = (x<<4 | x) & 0x0F0F0F0F0F0F0F0F
	over9 := (x + 0x0606060606060606) >> 4 & 0x0101010101010101
	return x + 0x3030303030303030 + over9*('A'-'9'-1)
}

// OffsetMsgID returns the id by which tools find a message: upper-case hex of
// the store host and the position, 32 characters, or 56 with an IPv6 host. It
// names a place, so it is unique only as long as the log is.
// Java: MessageDecoder.createMessageId.
func OffsetMsgID(host netip.AddrPort, position int64) string {
	var text [2 * (hostV6 + 8)]byte
	return string(appendOffsetMsgID(text[:0], host, position))
}

func appendOffsetMsgID(dst []byte, host netip.AddrPort, position int64) []byte {
	var raw [hostV6 + 8]byte
	rest := putHost(raw[:], host, isV6(host.Addr()))
	binary.BigEndian.PutUint64(rest, uint64(position))
	return appendUpperHex(dst, raw[:len(raw)-len(rest)+8])
}

// ParseOffsetMsgID returns what OffsetMsgID put in. Lower-case hex is
// accepted. Another text is ErrBadID. Java: MessageDecoder.decodeMessageId.
//
// Differs: Java reads a character that is no hex digit as F and goes on with
// the wrong host.
func ParseOffsetMsgID(id string) (netip.AddrPort, int64, error) {
	var raw [hostV6 + 8]byte
	n := len(id) / 2
	if len(id) != 2*(hostV4+8) && len(id) != 2*(hostV6+8) {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %.64q has %d characters, an offset message id has 32, or 56 with an IPv6 host", ErrBadID, id, len(id))
	}
	if _, err := hex.Decode(raw[:n], []byte(id)); err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %q is not all hex digits", ErrBadID, id)
	}
	port := binary.BigEndian.Uint32(raw[n-12:])
	if port > 0xFFFF {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %q holds port %d", ErrBadID, id, port)
	}
	addr, _ := netip.AddrFromSlice(raw[:n-12]) // 4 or 16 bytes: never fails
	return netip.AddrPortFrom(addr, uint16(port)), int64(binary.BigEndian.Uint64(raw[n-8:])), nil
}
