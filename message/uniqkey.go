package message

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"
)

// UniqKey is what a unique key tells. Java: MessageClientIDSetter.
type UniqKey struct {
	IP      netip.Addr // of the producer
	PID     uint16     // the low half of its process id
	Loader  uint32     // tells producers of one process apart
	Millis  uint32     // since the start of the month, in the producer's local time
	Counter uint16
}

// Sizes in bytes of the parts of a unique key; the text has two characters a
// byte.
const (
	uniqTail = 2 + 4 + 4 + 2 // everything after the address
	uniqV4   = 4 + uniqTail
	uniqV6   = 16 + uniqTail
)

// AppendUniqKey appends the text of a unique key: upper-case hex, 32
// characters, or 56 with an IPv6 address. The zero address counts as 0.0.0.0.
// Java: MessageClientIDSetter.createUniqID.
func AppendUniqKey(dst []byte, ip netip.Addr, pid uint16, loader uint32, ms uint32, counter uint16) []byte {
	dst = appendUniqPrefix(dst, ip, pid, loader)
	return appendUniqSuffix(dst, uint64(ms)<<16|uint64(counter))
}

func appendUniqPrefix(dst []byte, ip netip.Addr, pid uint16, loader uint32) []byte {
	var raw [16 + 2 + 4]byte
	n := 4
	switch {
	case isV6(ip):
		v := ip.As16()
		n = copy(raw[:], v[:])
	case ip.IsValid():
		v := ip.Unmap().As4()
		copy(raw[:], v[:])
	}
	binary.BigEndian.PutUint16(raw[n:], pid)
	binary.BigEndian.PutUint32(raw[n+2:], loader)
	return appendUpperHex(dst, raw[:n+6])
}

// appendUniqSuffix appends (milliseconds, counter), one 48-bit number.
func appendUniqSuffix(dst []byte, n uint64) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], n)
	return appendUpperHex(dst, raw[2:])
}

// ParseUniqKey takes a unique key apart. Hex digits of either case are
// accepted: the official Go client writes lower-case ones. Another text is
// ErrBadID; a key need not be of this form, so nobody but tools should care.
func ParseUniqKey(id string) (UniqKey, error) {
	var raw [uniqV6]byte
	if len(id) != 2*uniqV4 && len(id) != 2*uniqV6 {
		return UniqKey{}, fmt.Errorf("%w: %.64q has %d characters, a unique key has 32, or 56 with an IPv6 address", ErrBadID, id, len(id))
	}
	n := len(id) / 2
	if _, err := hex.Decode(raw[:n], []byte(id)); err != nil {
		return UniqKey{}, fmt.Errorf("%w: %q is not all hex digits", ErrBadID, id)
	}
	be := binary.BigEndian
	ip, _ := netip.AddrFromSlice(raw[:n-uniqTail]) // 4 or 16 bytes: never fails
	tail := raw[n-uniqTail : n]
	return UniqKey{IP: ip, PID: be.Uint16(tail), Loader: be.Uint32(tail[2:]), Millis: be.Uint32(tail[6:]), Counter: be.Uint16(tail[10:])}, nil
}

// UniqKeyTime returns about when a unique key was made: the key holds only
// the time since the start of a month, so the answer is the latest such
// moment before now, in now's time zone. A key that is older than a month, or
// made by a process that has run for longer, gives a wrong answer. A text
// that is no unique key is ErrBadID.
// Java: MessageClientIDSetter.getNearlyTimeFromID.
func UniqKeyTime(id string, now time.Time) (time.Time, error) {
	key, err := ParseUniqKey(id)
	if err != nil {
		return time.Time{}, err
	}
	since := time.Duration(key.Millis) * time.Millisecond
	start := monthStart(now)
	if !start.Add(since).Before(now) {
		start = start.AddDate(0, -1, 0)
	}
	return start.Add(since), nil
}

func monthStart(t time.Time) time.Time {
	y, m, _ := t.Date()
	return time.Date(y, m, 1, 0, 0, 0, 0, t.Location())
}

// UniqKeys makes the unique keys of one producer. It is lock-free and safe
// for concurrent use.
//
// (milliseconds since the start of the month, 16-bit counter) is taken as one
// 48-bit number, and each key's is larger than the one before: max(previous +
// 1, now << 16). So no key repeats within a producer, not when the clock
// stands still, goes back, or passes the end of a month. Producers of one
// process differ by loader.
//
// Differs: Java restarts the milliseconds each month and has a counter of its
// own, so that keys can repeat from one month to another. Here a process that
// lives past the end of a month goes on counting from the last key; from then
// on the time in its keys is no more than a hint.
type UniqKeys struct {
	prefix string // hex of address, process and loader: the same in every key
	month  atomic.Pointer[month]
	last   atomic.Uint64 // the number in the newest key
}

// month caches the bounds of the month that the last key fell into.
type month struct {
	location   *time.Location
	start, end int64 // ms since 1970; end belongs to the next month
}

// NewUniqKeys returns a maker of keys for a producer at ip in process pid.
// loader should be random: it tells this producer from others of the process.
func NewUniqKeys(ip netip.Addr, pid uint16, loader uint32) *UniqKeys {
	return &UniqKeys{prefix: string(appendUniqPrefix(nil, ip, pid, loader))}
}

// Next returns a key that this UniqKeys never returned before. now counts in
// its own time zone, as Java's does.
func (u *UniqKeys) Next(now time.Time) string {
	var text [2 * uniqV6]byte
	return string(u.AppendNext(text[:0], now))
}

// AppendNext is Next that appends the key to dst.
func (u *UniqKeys) AppendNext(dst []byte, now time.Time) []byte {
	ms := now.UnixMilli()
	m := u.month.Load()
	if m == nil || ms < m.start || ms >= m.end || m.location != now.Location() {
		start := monthStart(now)
		m = &month{location: now.Location(), start: start.UnixMilli(), end: start.AddDate(0, 1, 0).UnixMilli()}
		u.month.Store(m)
	}
	n := u.advance(uint64(ms-m.start) << 16)
	return appendUniqSuffix(append(dst, u.prefix...), n)
}

// advance takes the next number, at least want.
func (u *UniqKeys) advance(want uint64) uint64 {
	for {
		last := u.last.Load()
		next := max(last+1, want)
		if u.last.CompareAndSwap(last, next) {
			return next
		}
	}
}
