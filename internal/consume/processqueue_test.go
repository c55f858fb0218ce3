package consume

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// check verifies the invariants that processQueue states.
func (p *processQueue) check() error {
	if p.head > p.cursor || p.cursor > p.tail || int(p.tail-p.head) > len(p.slots) {
		return fmt.Errorf("head %d, cursor %d, tail %d, ring of %d", p.head, p.cursor, p.tail, len(p.slots))
	}
	if n := len(p.slots); n&(n-1) != 0 {
		return fmt.Errorf("ring of %d", n)
	}
	again := make(map[uint64]bool)
	for _, seq := range p.again {
		if again[seq] {
			return fmt.Errorf("%d is listed twice", seq)
		}
		again[seq] = true
	}
	count, bytes, last := 0, int64(0), int64(-1)
	for seq := p.head; seq < p.tail; seq++ {
		s := p.at(seq)
		switch {
		case s.state != slotDone && (s.offset <= last || s.offset >= p.end):
			return fmt.Errorf("offset %d after %d, end %d", s.offset, last, p.end)
		case seq == p.head && s.state == slotDone:
			return fmt.Errorf("head %d is done", seq)
		case seq >= p.cursor && s.state != slotReady && s.state != slotDone:
			return fmt.Errorf("%d is in state %d and was never taken", seq, s.state)
		case seq < p.cursor && (s.state == slotReady) != again[seq]:
			return fmt.Errorf("%d is in state %d, listed %v", seq, s.state, again[seq])
		case (s.data == nil) != (s.state == slotDone):
			return fmt.Errorf("%d is in state %d with %d bytes", seq, s.state, len(s.data))
		}
		delete(again, seq)
		if s.state != slotDone {
			last = s.offset
			count++
			bytes += int64(len(s.data))
		}
	}
	if count != p.count || bytes != p.bytes || len(again) > 0 {
		return fmt.Errorf("counted %d messages, %d bytes; has %d, %d; listed outside the window: %v", count, bytes, p.count, p.bytes, again)
	}
	return nil
}

func TestProcessQueueAgreesWithAMapOverRandomHistories(t *testing.T) {
	for round := range 30 {
		seed := uint64(round)
		if round == 0 {
			seed = uint64(time.Now().UnixNano())
		}
		runHistory(t, seed)
	}
}

// runHistory drives a processQueue and a map of offsets with the same calls.
func runHistory(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	type entry struct {
		state    slotState
		attempts int32
		size     int
	}
	start := rnd.Int64N(100)
	p := newProcessQueue(start)
	model := make(map[int64]*entry) // unfinished
	end := start
	held := make(map[uint64]taken)
	var returning []taken
	var delayed []uint64
	offsetOf := make(map[uint64]int64)

	var clock int64
	for range 250 {
		clock++
		switch op := rnd.IntN(100); {
		case op < 18:
			var batch []record
			at := end - rnd.Int64N(3) // may repeat what was received
			for range rnd.IntN(24) {
				if size := 1 + rnd.IntN(50); at >= 0 {
					batch = append(batch, record{at, make([]byte, size)})
					if at >= end {
						model[at] = &entry{size: size}
						end = at + 1
					}
				}
				at += 1 + rnd.Int64N(3)/2
			}
			next := end + rnd.Int64N(4)
			p.put(batch, next)
			end = next
		case op < 55:
			for _, x := range p.take(nil, 1+rnd.IntN(20), clock) {
				e := model[x.offset]
				require.NotNil(t, e, "seed %d: took %d, which is not unfinished", seed, x.offset)
				require.Equal(t, slotReady, e.state, "seed %d: took %d", seed, x.offset)
				require.Equal(t, e.attempts, x.attempts, "seed %d: attempts of %d", seed, x.offset)
				e.state = slotTaken
				held[x.seq] = x
				offsetOf[x.seq] = x.offset
			}
		case op < 78:
			for _, seq := range slices.Sorted(maps.Keys(held)) {
				x := held[seq]
				if rnd.IntN(3) == 0 {
					continue
				}
				delete(held, seq)
				if rnd.IntN(5) == 0 {
					require.True(t, p.giveBack(x), "seed %d", seed)
					require.False(t, p.giveBack(x), "seed %d: given back twice", seed)
					model[x.offset].state = slotReturning
					returning = append(returning, x)
				} else {
					freed, ok := p.ack(x)
					require.True(t, ok, "seed %d", seed)
					require.EqualValues(t, model[x.offset].size, freed, "seed %d", seed)
					delete(model, x.offset)
				}
				_, again := p.ack(x)
				require.False(t, again, "seed %d: a result counted twice", seed)
			}
		case op < 82:
			limit := clock - rnd.Int64N(100)
			late, _ := p.overdue(limit)
			for _, x := range late {
				require.Equal(t, held[x.seq], x, "seed %d: overdue", seed)
				require.True(t, p.giveBack(x), "seed %d", seed)
				model[x.offset].state = slotReturning
				returning = append(returning, x)
				delete(held, x.seq)
			}
		case op < 90:
			for len(returning) > 0 && rnd.IntN(4) > 0 {
				i := rnd.IntN(len(returning))
				x := returning[i]
				returning = slices.Delete(returning, i, i+1)
				e := model[x.offset]
				require.True(t, p.returning(x), "seed %d", seed)
				if rnd.IntN(2) == 0 {
					freed, ok := p.returned(x)
					require.True(t, ok, "seed %d", seed)
					require.EqualValues(t, e.size, freed, "seed %d", seed)
					delete(model, x.offset)
				} else {
					require.True(t, p.keep(x, make([]byte, e.size)), "seed %d", seed)
					e.attempts++
					e.state = slotDelayed
					delayed = append(delayed, x.seq)
				}
				require.False(t, p.returning(x), "seed %d", seed)
			}
		case op < 88:
			size, before := int64(0), end
			for offset, e := range model {
				if e.state == slotReady && e.attempts == 0 { // never taken
					size += int64(e.size)
					end = min(end, offset)
					delete(model, offset)
				}
			}
			require.Equal(t, size, p.rewind(), "seed %d: rewind from %d", seed, before)
		case op < 89:
			to, size := end-rnd.Int64N(30), int64(0)
			for offset, e := range model {
				if offset >= to {
					size += int64(e.size)
					delete(model, offset)
				}
			}
			require.Equal(t, size, p.unread(to), "seed %d: unread from %d", seed, to)
			for seq, x := range held {
				if x.offset >= to {
					_, ok := p.ack(x)
					require.False(t, ok, "seed %d: %d was acknowledged, which the queue does not have", seed, x.offset)
					delete(held, seq)
				}
			}
			returning = slices.DeleteFunc(returning, func(x taken) bool { return x.offset >= to })
			delayed = slices.DeleteFunc(delayed, func(seq uint64) bool { return offsetOf[seq] >= to })
			end = to
		case op < 98:
			for len(delayed) > 0 && rnd.IntN(4) > 0 {
				i := rnd.IntN(len(delayed))
				seq := delayed[i]
				delayed = slices.Delete(delayed, i, i+1)
				require.True(t, p.due(seq), "seed %d", seed)
				require.False(t, p.due(seq), "seed %d: due twice", seed)
				model[offsetOf[seq]].state = slotReady
			}
		default:
			end = rnd.Int64N(1000)
			p.reset(end)
			clear(model)
			for _, x := range held {
				_, ok := p.ack(x)
				require.False(t, ok, "seed %d: a reset message was acknowledged", seed)
			}
			for _, x := range returning {
				_, ok := p.returned(x)
				require.False(t, ok || p.keep(x, nil), "seed %d: a reset message was given back", seed)
			}
			clear(held)
			delayed, returning = nil, nil
		}
		require.NoError(t, p.check(), "seed %d", seed)

		commit, bytes, ready := end, int64(0), 0
		for offset, e := range model {
			commit = min(commit, offset)
			bytes += int64(e.size)
			if e.state == slotReady {
				ready++
			}
		}
		require.Equal(t, commit, p.commit(), "seed %d: commit offset", seed)
		require.Equal(t, end, p.end, "seed %d: next pull", seed)
		require.Equal(t, len(model), p.count, "seed %d", seed)
		require.Equal(t, bytes, p.bytes, "seed %d", seed)
		require.Equal(t, ready, p.ready(), "seed %d", seed)
		if len(model) > 0 {
			lowest, highest := slices.Min(slices.Collect(maps.Keys(model))), slices.Max(slices.Collect(maps.Keys(model)))
			require.LessOrEqual(t, highest-lowest, p.span(), "seed %d", seed)
			first, last := p.bounds()
			require.Equal(t, [2]int64{lowest, highest}, [2]int64{first, last}, "seed %d", seed)
		}
	}
	commit := p.commit()
	p.drop()
	for _, x := range held {
		_, ok := p.ack(x)
		require.False(t, ok, "seed %d: acknowledged after the drop", seed)
	}
	require.Zero(t, p.put([]record{{end + 1, []byte{1}}}, end+2))
	require.Equal(t, commit, p.commit(), "seed %d: the commit offset moved after the drop", seed)
	require.Zero(t, p.ready())
}

func TestProcessQueueTakesFailedMessagesFirst(t *testing.T) {
	p := newProcessQueue(5)
	assert.Equal(t, 4, p.put([]record{{5, []byte("a")}, {6, []byte("b")}, {8, []byte("c")}, {9, []byte("d")}}, 10))
	got := p.take(nil, 2, 0)
	require.Len(t, got, 2)
	for _, x := range []taken{got[1], got[0]} {
		require.True(t, p.giveBack(x))
		require.True(t, p.keep(x, x.data))
	}
	assert.True(t, p.due(got[1].seq))
	assert.True(t, p.due(got[0].seq))
	var offsets []int64
	for _, x := range p.take(nil, 3, 0) {
		offsets = append(offsets, x.offset)
	}
	assert.Equal(t, []int64{6, 5, 8}, offsets)
	assert.Equal(t, int64(5), p.commit())
	assert.Equal(t, int64(4), p.span())
}

func TestProcessQueueCommitPassesWhatNeedsNoDelivery(t *testing.T) {
	p := newProcessQueue(0)
	p.put([]record{{3, []byte("a")}}, 10)
	assert.Equal(t, int64(3), p.commit())
	x := p.take(nil, 1, 0)[0]
	p.put(nil, 20)
	assert.Equal(t, int64(3), p.commit())
	_, _ = p.ack(x)
	assert.Equal(t, int64(20), p.commit())
	p.put(nil, 4)
	assert.Equal(t, int64(20), p.commit(), "never backwards without a reset")
}

func TestProcessQueueCountsOnlyTheResultOfTheLatestDelivery(t *testing.T) {
	p := newProcessQueue(0)
	p.put([]record{{0, []byte("a")}, {1, []byte("b")}}, 2)
	first := p.take(nil, 2, 100)
	late, next := p.overdue(99)
	assert.Empty(t, late)
	assert.Equal(t, int64(100), next)
	late, next = p.overdue(100)
	assert.Equal(t, first, late)
	assert.Zero(t, next)
	require.True(t, p.giveBack(late[0]))
	_, ok := p.ack(first[0])
	assert.False(t, ok, "its handler comes too late")
	require.True(t, p.keep(late[0], late[0].data))
	require.True(t, p.due(late[0].seq))
	again := p.take(nil, 1, 200)
	require.Len(t, again, 1)
	assert.Equal(t, int32(1), again[0].attempts)
	_, ok = p.ack(first[0])
	assert.False(t, ok, "the handler of the first delivery does not finish the second")
	assert.False(t, p.giveBack(first[0]))
	assert.Equal(t, int64(0), p.commit())
	_, ok = p.ack(again[0])
	assert.True(t, ok)
	_, ok = p.ack(first[1])
	assert.True(t, ok)
	assert.Equal(t, int64(2), p.commit())
}
