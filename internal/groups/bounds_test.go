package groups

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// subs are n subscriptions to topics of a kind.
func subs(n int, kind string) []protocol.Subscription {
	list := make([]protocol.Subscription, n)
	for i := range list {
		list[i] = sub(fmt.Sprint(kind, i), "*", 1)
	}
	return list
}

func producing(clientID, kind string, n int) *protocol.HeartbeatRequest {
	r := &protocol.HeartbeatRequest{ClientID: clientID}
	for i := range n {
		r.Producers = append(r.Producers, fmt.Sprint(kind, i))
	}
	return r
}

func (b *bench) beatFull(session uint64, r *protocol.HeartbeatRequest) (changes []Change, skipped int) {
	b.t.Helper()
	changes, _, skipped = b.Heartbeat(t0, session, b.peer(session), remoteOf(session), r)
	checkInvariants(b.t, b.Registry)
	return changes, skipped
}

func TestASessionRegistersMoreThanAnybodyNeedsAndNoMore(t *testing.T) {
	b := newBench(t)
	_, skipped := b.beatFull(1, member("c1", subs(1000, strings.Repeat("t", 120))...))
	assert.Zero(t, skipped)
	assert.Len(t, b.Topics("g"), 1000)
	_, skipped = b.beatFull(2, producing("c2", strings.Repeat("p", 250), 1000))
	assert.Zero(t, skipped)

	changes, skipped := b.beatFull(3, member("c3", subs(20_000, "x")...))
	assert.Equal(t, 1, skipped)
	assert.Empty(t, changes)
	assert.False(t, b.IsMember("g", 3))
	changes, skipped = b.beatFull(1, member("c1", subs(20_000, "x")...))
	assert.Equal(t, 1, skipped)
	assert.Empty(t, changes)
	assert.Len(t, b.Topics("g"), 1000, "a member goes on with what it had")
}

// A heartbeat that leaves out a producer group does not take the client out of it, so
// fresh names add up.
func TestFreshNamesWithoutEndAreBounded(t *testing.T) {
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	t.Run("of a session", func(t *testing.T) {
		b := newBench(t)
		before := live()
		skipped := 0
		for i := range 2 {
			_, _, n := b.Heartbeat(t0, 1, b.peer(1), remoteOf(1), producing("c", fmt.Sprintf("p%d_", i), 35_000))
			skipped += n
		}
		checkInvariants(t, b.Registry)
		assert.Greater(t, skipped, 40_000)
		assert.Less(t, live()-before, int64(SessionBytes*3/2))
		runtime.KeepAlive(b)
	})
	t.Run("of all sessions", func(t *testing.T) {
		b := newBench(t)
		b.limits.shared = 4 << 20
		before := live()
		for i := range uint64(50) {
			r := producing(fmt.Sprint("c", i), "p", 5_000)
			r.Consumers = member("", subs(100, "t")...).Consumers
			b.Heartbeat(t0, i, b.peer(i), remoteOf(i), r)
			r = member(fmt.Sprint("c", i), subs(3000, fmt.Sprintf("own%d_", i))...)
			r.Consumers[0].Group = fmt.Sprint("g", i)
			b.Heartbeat(t0, i, b.peer(i), remoteOf(i), r)
		}
		checkInvariants(t, b.Registry)
		assert.Less(t, live()-before, int64(4<<20+50*OwnBytes))
		_, skipped := b.beatFull(1000, member("late", subs(20, "t")...))
		assert.Zero(t, skipped, "each session has some of its own")
		for i := range uint64(50) {
			b.ConnClosed(i)
		}
		checkInvariants(t, b.Registry)
		_, skipped = b.beatFull(1001, member("later", subs(2000, "t")...))
		assert.Zero(t, skipped, "what is left is free again")
		runtime.KeepAlive(b)
	})
}

// The texts of a request may be parts of the whole of it.
func TestWhatIsRegisteredHoldsNothingOfItsHeartbeat(t *testing.T) {
	b := newBench(t)
	part := func(text string) (whole, part string) {
		whole = strings.Repeat(text, 1<<20)
		return whole, whole[1<<19 : 1<<19+1]
	}
	kept := make([]string, 0, 10)
	own := func(text string) string {
		whole, p := part(text)
		kept = append(kept, whole)
		return p
	}
	r := member(own("c"), protocol.SubscriptionOf(own("t"), own("A"), []string{own("A")}, nil, 1))
	r.Consumers[0].Group = own("g")
	r.Producers = []string{own("p")}
	r.Consumers[0].Subscriptions[0].ExpressionType = own("X")
	_, skipped := b.beatFull(1, r)
	require.Zero(t, skipped)
	check := func(s string) {
		t.Helper()
		for _, whole := range kept {
			assert.False(t, sharesMemory(whole, s), s)
		}
	}
	for name, gr := range b.consumers {
		check(name)
		for _, reg := range gr.registrations {
			check(reg.clientID)
		}
		for topic, s := range gr.view.subscriptions {
			check(topic)
			check(s.Topic)
			check(s.Expression)
			check(s.ExpressionType)
			check(s.Tags[0])
		}
		for client := range gr.clients {
			check(client)
		}
	}
	for name, client := range b.sessions[1].producers {
		check(name)
		check(client)
	}
	for name := range b.sessions[1].consumers {
		check(name)
	}
}

// What somebody has told and left would stay for as long as others do.
func TestAGroupHoldsNoMoreThanItsMembersHaveTold(t *testing.T) {
	b := newBench(t)
	b.beat(t0, 1, member("small", sub("t", "*", 1)))
	_, skipped := b.beatFull(2, member("large", append(subs(1000, "x"), sub("t", strings.Repeat("A || ", 50_000)+"B", 9))...))
	require.Zero(t, skipped)
	require.Len(t, b.Topics("g"), 1001)
	b.beat(t0, 1, member("small", sub("t", "*", 2)))
	b.ConnClosed(2)
	checkInvariants(t, b.Registry)
	s, ok := b.Subscription("g", "t")
	require.True(t, ok)
	assert.Equal(t, "*", s.Expression)

	// Among members that agree nothing changes: the largest version stays.
	b.beat(t0, 3, member("same", sub("t", "*", 7)))
	b.ConnClosed(3)
	s, _ = b.Subscription("g", "t")
	assert.EqualValues(t, 7, s.Version)
}

// Pulls go on while a heartbeat is taken in, whatever it brings.
func TestPullsTakeNoLockOfHeartbeats(t *testing.T) {
	b := newBench(t)
	b.beat(t0, 1, member("c", sub("t", "*", 1)))
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.True(t, b.Known("g"))
	assert.False(t, b.Broadcasts("g"))
	_, ok := b.Subscription("g", "t")
	assert.True(t, ok)
	assert.Equal(t, []string{"t"}, b.Topics("g"))
	assert.Equal(t, []string{"g"}, b.Subscribers("t"))
	assert.Zero(t, testing.AllocsPerRun(10, func() { b.Subscription("g", "t") }))
}

func TestHowMembersDifferIsSaidInALineThatCanBeRead(t *testing.T) {
	b := newBench(t)
	all := subs(2000, "topic")
	for i := range uint64(10) {
		r := member(fmt.Sprint(strings.Repeat("client", 200), i), append(all, sub(fmt.Sprint("only", i), "*", 1))...)
		b.beat(t0, i, r)
	}
	_, text := b.Differ("g")
	assert.Less(t, len(text), 2<<10)
	assert.Contains(t, text, "CLUSTERING only0(*) and 2000 that all of these have;")
	assert.Contains(t, text, "7 more kinds;")
	members := []Member{{ClientID: "a", Subscriptions: subs(3000, "a")}, {ClientID: "b", Subscriptions: subs(3000, "b")}}
	text = Differ("g", members)
	assert.Less(t, len(text), 2<<10)
	assert.Contains(t, text, "...")
}
