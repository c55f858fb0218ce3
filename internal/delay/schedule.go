package delay

import (
	"math"
	"time"
)

// never is the time of a look at a level that holds nothing.
const never = math.MaxInt64

// How long a level waits after an error: the first time, and at most. Java:
// DELAY_FOR_A_WHILE, DELAY_FOR_A_PERIOD.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
)

// Schedule says which level has to be looked at next, and when. It is a value
// without a clock: times are milliseconds since 1970. Levels count from 0, as
// their queues do. Not safe for concurrent use.
type Schedule struct {
	levels []level
}

// level is the queue of one level. Invariants: every message below next is
// delivered; look is not later than the first message from next on is due, and
// never only when there is none.
type level struct {
	delay int64 // of its messages
	next  int64 // offset of the first message that is not delivered
	end   int64 // offset behind the last message that is known of
	look  int64 // when to look at it next

	pause time.Duration // after the last error; 0 without one
	// ahead: messages claim to be due later than any of this level can be, because
	// the clock went back. They wait until then at most.
	ahead int64
}

// NewSchedule returns a schedule that looks at all levels at once. delays are
// those of the levels, next where each goes on.
func NewSchedule(delays []time.Duration, next []int64) *Schedule {
	s := &Schedule{levels: make([]level, len(delays))}
	for i, d := range delays {
		s.levels[i] = level{delay: millis(d), next: next[i], ahead: never}
	}
	return s
}

// millis rounds up: a delay is never shorter than asked.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Next returns the level to be looked at next, and when; false when there is none.
func (s *Schedule) Next() (level int, at int64, any bool) {
	level, at = -1, never
	for i := range s.levels {
		if s.levels[i].look < at {
			level, at = i, s.levels[i].look
		}
	}
	return level, at, level >= 0
}

// Offset is where a level goes on.
func (s *Schedule) Offset(level int) int64 { return s.levels[level].next }

// Clamp moves a level into the bounds of its queue, and reports whether it was
// outside.
func (s *Schedule) Clamp(level int, first, end int64) (moved bool) {
	l := &s.levels[level]
	next := max(first, min(l.next, end))
	moved = next != l.next
	l.next, l.end = next, max(l.end, end)
	return moved
}

// Arrived notes a message that is due at due, and reports whether Next has become
// earlier.
func (s *Schedule) Arrived(level int, offset, due, now int64) (earlier bool) {
	l := &s.levels[level]
	l.end = max(l.end, offset+1)
	if l.look != never {
		return false // it is behind the one that is waited for
	}
	l.look = l.due(due, now)
	return true
}

// due is when to deliver a message that says when it is due. Clocks go back:
// nothing waits longer than its level, counted from the first look at it.
//
// Differs: the reference delivers such a message at once. There a store time is
// that of the clock; here it does not go back, so that a clock which is set back a
// little would cut short a delay of hours.
func (l *level) due(due, now int64) int64 {
	if due <= now+l.delay {
		l.ahead = never
		return due
	}
	l.ahead = min(l.ahead, now+l.delay)
	return l.ahead
}

// Ready returns how many of the first messages of a level are due, and when the
// one behind them will be, if it is among those given. due are the messages from
// Offset on, as they lie in the queue.
func (s *Schedule) Ready(level int, due []int64, now int64) (n int, then int64) {
	l := &s.levels[level]
	for i, d := range due {
		if at := l.due(d, now); at > now {
			return i, at
		}
	}
	return len(due), now
}

// Delivered notes that everything before an offset is delivered.
func (s *Schedule) Delivered(level int, next int64) {
	l := &s.levels[level]
	l.next, l.end, l.pause = next, max(l.end, next), 0
}

// Settle ends a look at a level: the next one is at then, as Ready has said, if
// there is anything to look at.
func (s *Schedule) Settle(level int, then int64) {
	l := &s.levels[level]
	if l.look = then; l.next >= l.end {
		l.look, l.ahead = never, never
	}
}

// Failed notes that the message at Offset could not be delivered: the level
// rests for a while, longer each time, and goes on with that message.
func (s *Schedule) Failed(level int, now int64) {
	l := &s.levels[level]
	l.pause = min(max(2*l.pause, firstPause), maxPause)
	l.look = now + millis(l.pause)
}

// Hurry ends all rests after errors.
func (s *Schedule) Hurry(now int64) {
	for i := range s.levels {
		if l := &s.levels[i]; l.pause > 0 {
			l.look = min(l.look, now)
		}
	}
}
