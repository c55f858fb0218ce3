package queuelock

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

const expire = 60 * time.Second

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

func queues(ids ...int) []message.Queue {
	out := make([]message.Queue, len(ids))
	for i, id := range ids {
		out[i] = message.Queue{Topic: "T", BrokerName: "b", QueueID: id}
	}
	return out
}

func TestAFreeQueueAndAnOwnOneAreLockedAnotherClientsIsNot(t *testing.T) {
	l := New(expire)
	assert.Equal(t, queues(0, 1), l.Lock("g", "c1", queues(0, 1), at(0)))
	assert.Equal(t, queues(2), l.Lock("g", "c2", queues(1, 2, 0), at(0)))
	assert.Equal(t, queues(1, 0), l.Lock("g", "c1", queues(2, 1, 0), at(time.Second)), "in the order asked for")
	assert.Equal(t, queues(1), l.Lock("other", "c2", queues(1), at(0)), "groups do not know each other")
	assert.NotNil(t, l.Lock("g", "c3", queues(0), at(0)), "nothing locked is an empty list")
	assert.Equal(t, map[message.Queue]string{queues(0)[0]: "c1", queues(1)[0]: "c1", queues(2)[0]: "c2"}, l.Locks("g", at(0)))
}

func TestALockIsStolenOnlyLaterThanItsExpiry(t *testing.T) {
	l := New(expire)
	require.Len(t, l.Lock("g", "c1", queues(0), at(0)), 1)
	require.Len(t, l.Lock("g", "c1", queues(0), at(20*time.Second)), 1, "renewed")
	assert.Empty(t, l.Lock("g", "c2", queues(0), at(20*time.Second+expire)))
	assert.True(t, l.Holds("g", at(20*time.Second+expire)))
	late := at(20*time.Second + expire + 1)
	assert.False(t, l.Holds("g", late))
	assert.Nil(t, l.Locks("g", late))
	assert.Equal(t, queues(0), l.Lock("g", "c2", queues(0), late))
	assert.Empty(t, l.Lock("g", "c1", queues(0), late), "the former holder does not get it back")
}

func TestTheHolderGetsItsExpiredLockAgain(t *testing.T) {
	l := New(expire)
	require.Len(t, l.Lock("g", "c1", queues(0), at(0)), 1)
	assert.Equal(t, queues(0), l.Lock("g", "c1", queues(0), at(time.Hour)))
}

func TestOnlyTheHolderUnlocks(t *testing.T) {
	l := New(expire)
	require.Len(t, l.Lock("g", "c1", queues(0, 1), at(0)), 2)
	l.Unlock("g", "c2", queues(0, 1))
	l.Unlock("other", "c1", queues(0, 1))
	assert.Empty(t, l.Lock("g", "c2", queues(0, 1), at(0)))
	l.Unlock("g", "c1", queues(1, 5))
	assert.Equal(t, queues(1), l.Lock("g", "c2", queues(0, 1), at(0)))
	l.Unlock("g", "c1", queues(0))
	l.Unlock("g", "c2", queues(1))
	assert.False(t, l.Holds("g", at(0)))
	assert.Empty(t, l.groups, "nothing is kept of a group without locks")
}

func TestADroppedTopicHasNoLocks(t *testing.T) {
	l := New(expire)
	keep := message.Queue{Topic: "U", BrokerName: "b"}
	l.Lock("g", "c1", append(queues(0, 1), keep), at(0))
	l.Lock("h", "c1", queues(0), at(0))
	l.DropTopic("T")
	assert.Equal(t, map[message.Queue]string{keep: "c1"}, l.Locks("g", at(0)))
	assert.False(t, l.Holds("h", at(0)))
	assert.Equal(t, 1, l.size)
}

func TestExpiredLocksDoNotPileUp(t *testing.T) {
	l := New(expire)
	now := at(0)
	for i := range 100 * minSweep {
		l.Lock(fmt.Sprint("g", i), "c", queues(0), now)
		now = now.Add(expire / 100) // 100 locks are alive at a time
	}
	assert.LessOrEqual(t, l.size, minSweep+1)
	assert.Equal(t, l.size, len(l.groups))
}

// TestTheTableIsTheModel compares random calls with the rule written down
// plainly.
func TestTheTableIsTheModel(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	l := New(expire)
	model := make(map[message.Queue]lock)
	now := at(0)
	for range 5_000 {
		now = now.Add(time.Duration(rnd.IntN(5)) * time.Second)
		client := fmt.Sprint("c", rnd.IntN(3))
		q := queues(rnd.IntN(4))
		if rnd.IntN(3) == 0 {
			l.Unlock("g", client, q)
			if model[q[0]].client == client {
				delete(model, q[0])
			}
		} else {
			held, ok := model[q[0]]
			granted := !ok || held.client == client || now.Sub(held.updated) > expire
			if granted {
				model[q[0]] = lock{client, now}
			}
			require.Equal(t, granted, len(l.Lock("g", client, q, now)) == 1, "seed %d", seed)
		}
		want := make(map[message.Queue]string)
		for q, held := range model {
			if now.Sub(held.updated) <= expire {
				want[q] = held.client
			}
		}
		got := l.Locks("g", now)
		require.Equal(t, len(want) > 0, l.Holds("g", now), "seed %d", seed)
		require.Equal(t, len(want), len(got), "seed %d", seed)
		for q := range want {
			require.Equal(t, want[q], got[q], "seed %d", seed)
		}
	}
}

func TestConcurrentLocksHaveOneHolder(t *testing.T) {
	l := New(expire)
	var wg sync.WaitGroup
	got := make([]int, 8)
	for i := range got {
		wg.Go(func() {
			for id := range 100 {
				got[i] += len(l.Lock("g", fmt.Sprint("c", i), queues(id), start))
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range got {
		total += n
	}
	assert.Equal(t, 100, total)
}
