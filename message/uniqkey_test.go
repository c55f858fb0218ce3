package message

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var testIP = netip.MustParseAddr("10.1.2.3")

func TestAKeyTellsItsProducerAndItsTime(t *testing.T) {
	zone := time.FixedZone("east", 3*3600)
	now := time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, zone)
	for _, ip := range []netip.Addr{testIP, netip.MustParseAddr("2001:db8::1")} {
		id := NewUniqKeys(ip, 4711, 0xABCD1234).Next(now)
		key, err := ParseUniqKey(id)
		require.NoError(t, err)
		sinceMonthStart := now.Sub(time.Date(2026, 3, 1, 0, 0, 0, 0, zone))
		assert.Equal(t, UniqKey{IP: ip, PID: 4711, Loader: 0xABCD1234, Millis: uint32(sinceMonthStart.Milliseconds())}, key)
		at, err := UniqKeyTime(id, now.Add(time.Second))
		require.NoError(t, err)
		assert.True(t, at.Equal(now))
	}
}

func TestKeysOfAFrozenClockCountUp(t *testing.T) {
	u := NewUniqKeys(testIP, 1, 2)
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	last := ""
	for range 70_000 { // more than the 16-bit counter holds
		id := u.Next(now)
		if id <= last {
			t.Fatalf("%s follows %s", id, last)
		}
		last = id
	}
	key, err := ParseUniqKey(last)
	require.NoError(t, err)
	first := uint32(now.Sub(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)).Milliseconds())
	assert.Equal(t, first+1, key.Millis, "the counter ran over into the milliseconds")
	assert.Equal(t, uint16(70_000-65_536-1), key.Counter)
}

func TestKeysNeverRepeatWhateverTheClockDoes(t *testing.T) {
	u := NewUniqKeys(testIP, 1, 2)
	start := time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC)
	seen := map[string]bool{}
	for _, step := range []time.Duration{
		0, time.Millisecond, -time.Hour, 2 * time.Hour, // past the end of a month
		0, 28 * 24 * time.Hour, -40 * 24 * time.Hour, 365 * 24 * time.Hour, -time.Nanosecond,
	} {
		start = start.Add(step)
		for range 10 {
			id := u.Next(start)
			require.False(t, seen[id], "%s repeats at %v", id, start)
			seen[id] = true
		}
	}
}

func TestKeysFollowTheClockWithinAMonth(t *testing.T) {
	u := NewUniqKeys(testIP, 1, 2)
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range 5 {
		now := start.Add(time.Duration(i+1) * time.Millisecond)
		key, err := ParseUniqKey(u.Next(now))
		require.NoError(t, err)
		assert.Equal(t, UniqKey{IP: testIP, PID: 1, Loader: 2, Millis: uint32(i + 1)}, key)
	}
}

func TestConcurrentKeysDiffer(t *testing.T) {
	const workers, each = 8, 2000
	u := NewUniqKeys(testIP, 1, 2)
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	var wg sync.WaitGroup
	ids := make([][]string, workers)
	for i := range workers {
		wg.Go(func() {
			for j := range each {
				ids[i] = append(ids[i], u.Next(now.Add(time.Duration(j)*time.Millisecond)))
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, list := range ids {
		for _, id := range list {
			seen[id] = true
		}
	}
	assert.Len(t, seen, workers*each)
}

func TestNextAllocatesTheKeyOnly(t *testing.T) {
	u := NewUniqKeys(testIP, 1, 2)
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local)
	var key string
	assert.Equal(t, 1.0, testing.AllocsPerRun(100, func() { key = u.Next(now) }))
	buf := make([]byte, 0, len(key))
	assert.Zero(t, testing.AllocsPerRun(100, func() { buf = u.AppendNext(buf[:0], now) }))
	assert.Len(t, buf, len(key))
}

func TestAForeignUniqKeyIsNamed(t *testing.T) {
	_, err := ParseUniqKey("order-1")
	assert.EqualError(t, err, `bad message id: "order-1" has 7 characters, a unique key has 32, or 56 with an IPv6 address`)
	_, err = UniqKeyTime("ZA010203123418B4AAC20123456789AB", time.Unix(0, 0))
	assert.EqualError(t, err, `bad message id: "ZA010203123418B4AAC20123456789AB" is not all hex digits`)
	assert.ErrorIs(t, err, ErrBadID)
}

func TestAKeyWithoutAnAddressHasZeros(t *testing.T) {
	id := string(AppendUniqKey(nil, netip.Addr{}, 0, 0, 0, 0))
	assert.Equal(t, "00000000000000000000000000000000", id)
}
