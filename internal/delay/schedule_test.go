package delay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newSchedule(delays ...time.Duration) *Schedule {
	return NewSchedule(delays, make([]int64, len(delays)))
}

// settled is a schedule that has looked at all its empty levels.
func settled(delays ...time.Duration) *Schedule {
	s := newSchedule(delays...)
	for i := range delays {
		s.Settle(i, 0)
	}
	return s
}

func next(t *testing.T, s *Schedule) (level int, at int64) {
	t.Helper()
	level, at, any := s.Next()
	require.True(t, any)
	return level, at
}

func TestAllLevelsAreLookedAtFirst(t *testing.T) {
	s := newSchedule(time.Second, time.Minute)
	for want := range 2 {
		level, at := next(t, s)
		assert.Equal(t, want, level)
		assert.Zero(t, at)
		s.Settle(level, at)
	}
	_, _, any := s.Next()
	assert.False(t, any)
}

func TestTheEarliestMessageIsWaitedFor(t *testing.T) {
	s := settled(time.Second, time.Minute)
	assert.True(t, s.Arrived(1, 0, 60_000, 0))
	assert.True(t, s.Arrived(0, 0, 3_000, 2_000))
	assert.False(t, s.Arrived(0, 1, 3_500, 2_500), "behind the first")
	level, at := next(t, s)
	assert.Equal(t, []int64{0, 3_000}, []int64{int64(level), at})

	n, then := s.Ready(0, []int64{3_000, 3_500}, 3_000)
	assert.Equal(t, 1, n)
	s.Delivered(0, 1)
	s.Settle(0, then)
	level, at = next(t, s)
	assert.Equal(t, []int64{0, 3_500}, []int64{int64(level), at})
	n, then = s.Ready(0, []int64{3_500}, 3_500)
	assert.Equal(t, 1, n)
	s.Delivered(0, 2)
	s.Settle(0, then)
	level, at = next(t, s)
	assert.Equal(t, []int64{1, 60_000}, []int64{int64(level), at})
}

// A message that arrives while its level is being looked at is not forgotten.
func TestAnArrivalDuringALook(t *testing.T) {
	s := settled(time.Second)
	s.Arrived(0, 0, 1_000, 0)
	n, then := s.Ready(0, []int64{1_000}, 1_000)
	require.Equal(t, 1, n)
	assert.False(t, s.Arrived(0, 1, 2_000, 1_000), "the look ends first")
	s.Delivered(0, 1)
	s.Settle(0, then)
	_, at := next(t, s)
	assert.Equal(t, int64(1_000), at, "looked at again at once")
}

func TestAnErrorRestsLongerEachTimeAndKeepsThePlace(t *testing.T) {
	s := settled(time.Second)
	s.Arrived(0, 0, 1_000, 0)
	now := int64(1_000)
	for _, pause := range []int64{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		s.Failed(0, now)
		_, at := next(t, s)
		assert.Equal(t, now+pause, at)
		assert.Zero(t, s.Offset(0))
		now = at
	}
	s.Hurry(now)
	_, at := next(t, s)
	assert.Equal(t, now, at)
	s.Delivered(0, 1)
	s.Settle(0, now)
	s.Arrived(0, 1, now+1_000, now)
	s.Failed(0, now+1_000)
	_, at = next(t, s)
	assert.Equal(t, now+1_100, at, "a success ends it")
}

func TestALevelIsMovedIntoItsQueue(t *testing.T) {
	for _, row := range []struct{ was, first, end, is int64 }{
		{-5, 0, 3, 0}, {1000, 0, 3, 3}, {2, 0, 3, 2}, {2, 3, 9, 3}, {0, 0, 0, 0}, {7, 0, 0, 0},
	} {
		s := NewSchedule([]time.Duration{time.Second}, []int64{row.was})
		assert.Equal(t, row.was != row.is, s.Clamp(0, row.first, row.end), "%+v", row)
		assert.Equal(t, row.is, s.Offset(0), "%+v", row)
	}
}

// The clock was at 100 s when the messages were stored, and is at 50 s now.
func TestAClockThatGoesBackDelaysNobodyLongerThanTheLevel(t *testing.T) {
	s := settled(10 * time.Second)
	s.Arrived(0, 0, 110_000, 50_000)
	_, at := next(t, s)
	assert.Equal(t, int64(60_000), at)
	n, then := s.Ready(0, []int64{110_000, 110_000, 110_001}, 60_000)
	assert.Equal(t, 3, n, "those that came with it do not wait once more each")
	s.Delivered(0, 3)
	s.Settle(0, then)
	s.Arrived(0, 3, 110_001, 80_000)
	_, at = next(t, s)
	assert.Equal(t, int64(90_000), at, "a later one waits its own time")
	n, then = s.Ready(0, []int64{110_001, 105_000}, 95_000)
	assert.Equal(t, 1, n)
	assert.Equal(t, int64(105_000), then, "the clock has caught up")
}

func TestADelayIsNeverRoundedDown(t *testing.T) {
	assert.Equal(t, int64(1), millis(time.Nanosecond))
	assert.Equal(t, int64(1000), millis(time.Second))
}

// Whatever happens in whatever order, every message is delivered once, in the
// order of its level, not before it is due, and at once when it is.
func TestRandomSchedules(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		const levels = 3
		delays := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}
		s := newSchedule(delays...)
		var queues [levels][]int64 // when each message is due
		var delivered [levels]int
		now := int64(1_000_000)
		failed := make(map[int]bool)
		for step := 0; step < 200 || !done(queues, delivered); step++ {
			if step < 200 && rnd.IntN(2) == 0 {
				l := rnd.IntN(levels)
				due := now + delays[l].Milliseconds()
				queues[l] = append(queues[l], due)
				s.Arrived(l, int64(len(queues[l])-1), due, now)
				continue
			}
			l, at, any := s.Next()
			if !any {
				now += int64(rnd.IntN(500))
				continue
			}
			if at > now {
				if now = min(at, now+int64(rnd.IntN(2000))); at > now {
					continue
				}
			}
			due := queues[l][delivered[l]:]
			due = due[:min(len(due), 1+rnd.IntN(4))]
			n, then := s.Ready(l, due, now)
			for i := range n {
				require.LessOrEqual(t, due[i], now, "seed %d", seed)
			}
			if rnd.IntN(10) == 0 && n > 0 {
				n = rnd.IntN(n)
				delivered[l] += n
				s.Delivered(l, int64(delivered[l]))
				s.Failed(l, now)
				failed[l] = true
				continue
			}
			if n > 0 && !failed[l] && n < len(due) {
				require.Greater(t, due[n], now, "seed %d", seed)
			}
			delivered[l] += n
			s.Delivered(l, int64(delivered[l]))
			s.Settle(l, then)
		}
		for l := range levels {
			require.Len(t, queues[l], delivered[l], "seed %d", seed)
		}
	}
}

func done(queues [3][]int64, delivered [3]int) bool {
	for l := range queues {
		if delivered[l] < len(queues[l]) {
			return false
		}
	}
	return true
}
