package groups

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const expiry = 120 * time.Second

// peer is a way back that is only compared.
type peer struct {
	protocol.Peer
	session uint64
}

func remoteOf(session uint64) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 9, 0, byte(session)}), 1)
}

// bench is a registry with one peer per session.
type bench struct {
	*Registry
	t     *testing.T
	peers map[uint64]*peer
}

func newBench(t *testing.T) *bench {
	return &bench{Registry: New(), t: t, peers: make(map[uint64]*peer)}
}

func (b *bench) peer(session uint64) protocol.Peer {
	if b.peers[session] == nil {
		b.peers[session] = &peer{session: session}
	}
	return b.peers[session]
}

func (b *bench) beat(now time.Time, session uint64, r *protocol.HeartbeatRequest) []Change {
	b.t.Helper()
	c, _, _ := b.Heartbeat(now, session, b.peer(session), remoteOf(session), r)
	checkInvariants(b.t, b.Registry)
	return c
}

// groups names the groups that have members.
func (b *bench) groups() []string { return slices.Sorted(maps.Keys(b.consumers)) }

// notified lists the sessions to notify.
func notified(c Change) (sessions []uint64) {
	for _, p := range c.Notify {
		sessions = append(sessions, p.(*peer).session)
	}
	return sessions
}

func checkInvariants(t *testing.T, g *Registry) {
	t.Helper()
	for name, gr := range g.consumers {
		require.NotEmpty(t, gr.registrations, name)
		clients := make(map[string]int)
		for id, reg := range gr.registrations {
			clients[reg.clientID]++
			require.Contains(t, g.sessions, id)
			require.Contains(t, g.sessions[id].consumers, name)
		}
		require.Equal(t, clients, gr.clients)
		shown := 0
		for _, s := range gr.view.subscriptions {
			shown += subscriptionBytes(&s)
		}
		require.Equal(t, shown, gr.view.bytes, name)
		require.LessOrEqual(t, shown, gr.told, name)
		require.Same(t, gr.view, g.viewOf(name))
	}
	g.views.Range(func(name, _ any) bool {
		require.Contains(t, g.consumers, name)
		return true
	})
	charged, told := 0, make(map[string]int)
	for id, s := range g.sessions {
		require.NotZero(t, len(s.consumers)+len(s.producers), "session %d", id)
		bytes := 0
		for name := range s.consumers {
			require.Contains(t, g.consumers[name].registrations, id)
			reg, subs := g.consumers[name].registrations[id], 0
			for _, s := range reg.subscriptions {
				subs += subscriptionBytes(&s)
			}
			require.Equal(t, subs, reg.bytes)
			bytes += memberBytes(name, reg.clientID) + 2*subs
			told[name] += subs
		}
		for name, client := range s.producers {
			bytes += producerBytes(name, client)
		}
		require.Equal(t, bytes, s.bytes, "session %d", id)
		require.LessOrEqual(t, bytes, g.limits.session)
		charged += max(0, bytes-g.limits.own)
	}
	for name, gr := range g.consumers {
		require.Equal(t, told[name], gr.told, name)
	}
	require.Equal(t, charged, g.charged)
	require.LessOrEqual(t, charged, g.limits.shared)
}

func sub(topic, expression string, version int64) protocol.Subscription {
	return protocol.SubscriptionOf(topic, expression, nil, nil, version)
}

// member is a heartbeat of a clustering consumer of group "g".
func member(clientID string, subs ...protocol.Subscription) *protocol.HeartbeatRequest {
	return &protocol.HeartbeatRequest{ClientID: clientID, Consumers: []protocol.ConsumerData{{Group: "g", Subscriptions: subs}}}
}

func goodbye(clientID string) *protocol.UnregisterClientRequest {
	return &protocol.UnregisterClientRequest{ClientID: clientID, ConsumerGroup: "g"}
}

func TestEveryMemberLearnsOfANewcomerAndItselfToo(t *testing.T) {
	b := newBench(t)
	assert.False(t, b.Known("g"))
	assert.Empty(t, b.Members("g"))

	changes := b.beat(t0, 1, member("c1", sub("orders", "*", 1)))
	require.Len(t, changes, 1)
	assert.Equal(t, []uint64{1}, notified(changes[0]))
	changes = b.beat(t0, 2, member("c0", sub("orders", "*", 1)))
	require.Len(t, changes, 1)
	assert.Equal(t, []string{"c0"}, changes[0].Joined)
	assert.Equal(t, []uint64{1, 2}, notified(changes[0]))
	changes[0].Notify = nil
	assert.Equal(t, Change{Group: "g", Joined: []string{"c0"}}, changes[0])

	assert.Equal(t, []string{"c0", "c1"}, b.Members("g"), "sorted")
	assert.True(t, b.Known("g"))
	assert.Equal(t, []string{"g"}, b.groups())
	assert.Empty(t, b.beat(t0.Add(time.Second), 1, member("c1", sub("orders", "*", 1))), "nothing new")
}

func TestBroadcastingGroupIsNotNotified(t *testing.T) {
	b := newBench(t)
	r := member("c1", sub("orders", "*", 1))
	r.Consumers[0].Model = protocol.Broadcasting
	changes := b.beat(t0, 1, r)
	require.Len(t, changes, 1)
	assert.Equal(t, Change{Group: "g", Joined: []string{"c1"}}, changes[0])
	changes = b.ConnClosed(1)
	assert.Equal(t, []Change{{Group: "g", Left: []string{"c1"}, Reason: ConnectionClosed}}, changes)
}

func TestWaysToLeave(t *testing.T) {
	ways := map[string]func(*bench) []Change{
		Unregistered:     func(b *bench) []Change { return b.Unregister(1, goodbye("c1")) },
		ConnectionClosed: func(b *bench) []Change { return b.ConnClosed(1) },
		Silent: func(b *bench) []Change {
			b.beat(t0.Add(expiry), 2, member("c2", sub("orders", "*", 1)))
			assert.Empty(t, b.Expire(t0.Add(expiry), expiry), "exactly the expiry")
			return b.Expire(t0.Add(expiry+1), expiry)
		},
	}
	for reason, leave := range ways {
		t.Run(reason, func(t *testing.T) {
			b := newBench(t)
			b.beat(t0, 1, member("c1", sub("orders", "*", 1)))
			b.beat(t0, 2, member("c2", sub("orders", "*", 1)))
			changes := leave(b)
			checkInvariants(t, b.Registry)
			require.Len(t, changes, 1)
			assert.Equal(t, []uint64{2}, notified(changes[0]), "who remains")
			changes[0].Notify = nil
			assert.Equal(t, Change{Group: "g", Left: []string{"c1"}, Reason: reason}, changes[0])
			assert.Equal(t, []string{"c2"}, b.Members("g"))
			assert.Empty(t, b.Unregister(1, goodbye("c1")))
			assert.Empty(t, b.ConnClosed(1))

			assert.Len(t, b.ConnClosed(2), 1)
			assert.False(t, b.Known("g"))
			assert.Empty(t, b.groups())
			_, ok := b.Subscription("g", "orders")
			assert.False(t, ok)
			_, ok = b.Snapshot("g")
			assert.False(t, ok)
			assert.Empty(t, b.sessions)
		})
	}
}

func TestUnregisterTouchesOnlyTheNamedGroupOfTheSession(t *testing.T) {
	b := newBench(t)
	r := &protocol.HeartbeatRequest{ClientID: "c", Producers: []string{"p"}, Consumers: []protocol.ConsumerData{{Group: "g"}, {Group: "h"}}}
	assert.Len(t, b.beat(t0, 1, r), 2)
	assert.Equal(t, []string{"c"}, b.Producers("p"))
	assert.Empty(t, b.Unregister(2, goodbye("c")), "another session")
	assert.Empty(t, b.Unregister(1, &protocol.UnregisterClientRequest{ClientID: "c", ProducerGroup: "p"}))
	assert.Empty(t, b.Producers("p"))
	assert.Len(t, b.Unregister(1, goodbye("c")), 1)
	checkInvariants(t, b.Registry)
	assert.Equal(t, []string{"h"}, b.groups())
}

func TestConnectionLossLeavesAllGroupsSorted(t *testing.T) {
	b := newBench(t)
	b.beat(t0, 1, &protocol.HeartbeatRequest{ClientID: "c", Producers: []string{"p"}, Consumers: []protocol.ConsumerData{{Group: "z"}, {Group: "a"}}})
	changes := b.ConnClosed(1)
	require.Len(t, changes, 2)
	assert.Equal(t, []string{"a", "z"}, []string{changes[0].Group, changes[1].Group})
	assert.Empty(t, b.sessions)
}

func TestReconnectedClientStaysOneMember(t *testing.T) {
	b := newBench(t)
	b.beat(t0, 1, member("c1", sub("orders", "*", 1)))
	b.beat(t0, 2, member("other", sub("orders", "*", 1)))
	changes := b.beat(t0, 3, member("c1", sub("orders", "*", 1)))
	require.Len(t, changes, 1)
	assert.Equal(t, []uint64{1, 2, 3}, notified(changes[0]))
	changes[0].Notify = nil
	assert.Equal(t, Change{Group: "g", Replaced: []string{"c1"}}, changes[0])
	assert.Equal(t, []string{"c1", "other"}, b.Members("g"))
	snap, _ := b.Snapshot("g")
	assert.EqualValues(t, 3, snap.Members[0].Session, "the newest speaks for it")

	// An old session that beats once more is still the older one.
	assert.Empty(t, b.beat(t0.Add(time.Second), 1, member("c1", sub("orders", "*", 1))))
	snap, _ = b.Snapshot("g")
	assert.EqualValues(t, 3, snap.Members[0].Session)
	assert.Equal(t, t0, snap.Members[0].LastHeartbeat)

	assert.Empty(t, b.ConnClosed(1), "the old session's late end")
	checkInvariants(t, b.Registry)
	assert.Equal(t, []string{"c1", "other"}, b.Members("g"))
	changes = b.ConnClosed(3)
	require.Len(t, changes, 1)
	assert.Equal(t, []string{"c1"}, changes[0].Left)
}

func TestOlderSessionThatLivesKeepsTheMember(t *testing.T) {
	b := newBench(t)
	b.beat(t0, 1, member("c1"))
	b.beat(t0, 2, member("c1"))
	assert.Empty(t, b.ConnClosed(2))
	assert.Equal(t, []string{"c1"}, b.Members("g"))
	snap, _ := b.Snapshot("g")
	assert.EqualValues(t, 1, snap.Members[0].Session)
}

func TestSessionThatSpeaksForAnotherClient(t *testing.T) {
	b := newBench(t)
	b.beat(t0, 1, member("c1"))
	changes := b.beat(t0, 1, member("c2"))
	require.Len(t, changes, 1)
	assert.Equal(t, []string{"c2"}, changes[0].Joined)
	assert.Equal(t, []string{"c1"}, changes[0].Left)
	assert.Equal(t, Unregistered, changes[0].Reason)
	assert.Equal(t, []string{"c2"}, b.Members("g"))
}

func TestSilenceIsPerGroup(t *testing.T) {
	b := newBench(t)
	both := &protocol.HeartbeatRequest{ClientID: "c", Producers: []string{"p"}, Consumers: []protocol.ConsumerData{{Group: "g"}, {Group: "h"}}}
	b.beat(t0, 1, both)
	b.beat(t0.Add(time.Minute), 1, member("c"))
	changes := b.Expire(t0.Add(expiry+1), expiry)
	checkInvariants(t, b.Registry)
	require.Len(t, changes, 1)
	assert.Equal(t, "h", changes[0].Group)
	assert.Equal(t, []string{"g"}, b.groups())
	assert.Equal(t, []string{"c"}, b.Producers("p"), "the session lives")
	changes = b.Expire(t0.Add(time.Minute+expiry+1), expiry)
	require.Len(t, changes, 1)
	assert.Equal(t, "g", changes[0].Group)
	assert.Empty(t, b.Producers("p"))
	assert.Empty(t, b.sessions)
}

func TestSilentProducerIsForgotten(t *testing.T) {
	b := newBench(t)
	for id, client := range map[uint64]string{4: "c2", 2: "c1", 3: "c1"} {
		b.beat(t0, id, &protocol.HeartbeatRequest{ClientID: client, Producers: []string{"p"}})
	}
	assert.Equal(t, []string{"c1", "c2"}, b.Producers("p"), "each once")
	assert.Empty(t, b.Expire(t0.Add(expiry), expiry))
	assert.Empty(t, b.Expire(t0.Add(expiry+1), expiry))
	assert.Empty(t, b.Producers("p"))
}

func TestHeartbeatOfNoGroupKeepsNothing(t *testing.T) {
	b := newBench(t)
	assert.Empty(t, b.beat(t0, 1, &protocol.HeartbeatRequest{ClientID: "c"}))
	assert.Empty(t, b.sessions)
	b.beat(t0, 1, &protocol.HeartbeatRequest{ClientID: "c", Producers: []string{"p"}})
	b.beat(t0.Add(expiry), 1, &protocol.HeartbeatRequest{ClientID: "c"})
	assert.Empty(t, b.Expire(t0.Add(expiry+1), expiry))
}

func TestGroupSubscriptionsFollowTheHeartbeats(t *testing.T) {
	b := newBench(t)
	b.beat(t0, 1, member("c1", sub("orders", "A", 5)))
	get := func(topic string) string {
		s, ok := b.Subscription("g", topic)
		if !ok {
			return "none"
		}
		return s.Expression
	}
	assert.Equal(t, "A", get("orders"))
	resubscribed := []Change{{Group: "g", Resubscribed: []string{"c1"}}}
	assert.Equal(t, resubscribed, b.beat(t0, 1, member("c1", sub("orders", "B", 5))), "same version: the member differs, nobody is notified")
	assert.Equal(t, "A", get("orders"))
	assert.Equal(t, resubscribed, b.beat(t0, 1, member("c1", sub("orders", "C", 4))), "older version")
	assert.Equal(t, "A", get("orders"))
	assert.Equal(t, resubscribed, b.beat(t0, 1, member("c1", sub("orders", "D", 6))), "a newer version is no change of members")
	assert.Empty(t, b.beat(t0, 1, member("c1", sub("orders", "D", 7))), "and with the same filter none at all")
	assert.Equal(t, "D", get("orders"))

	changes := b.beat(t0, 1, member("c1", sub("orders", "D", 7), sub("payments", "*", 1)))
	require.Len(t, changes, 1, "a topic more")
	assert.Equal(t, []string{"c1"}, changes[0].Resubscribed)
	assert.Equal(t, []uint64{1}, notified(changes[0]))
	assert.Empty(t, changes[0].Joined)
	assert.Equal(t, "*", get("payments"))
	changes = b.beat(t0, 1, member("c1", sub("payments", "*", 1)))
	require.Len(t, changes, 1, "a topic less")
	assert.Equal(t, "none", get("orders"))
	assert.Equal(t, "none", get("unknown"))
	_, ok := b.Subscription("unknown", "orders")
	assert.False(t, ok)
}

func TestNothingOfARequestIsKept(t *testing.T) {
	b := newBench(t)
	s := protocol.SubscriptionOf("orders", "A", []string{"A"}, []int32{65}, 1)
	r := member("c1", s)
	b.beat(t0, 1, r)
	r.Consumers[0].Subscriptions[0].Tags[0] = "X"
	r.Consumers[0].Subscriptions[0].Codes[0] = 0
	r.Consumers[0].Subscriptions[0].Topic = "elsewhere"
	got, ok := b.Subscription("g", "orders")
	require.True(t, ok)
	assert.Equal(t, protocol.SubscriptionOf("orders", "A", []string{"A"}, []int32{65}, 1), got)
	snap, _ := b.Snapshot("g")
	assert.Equal(t, got, snap.Members[0].Subscriptions[0])
}

func TestSnapshot(t *testing.T) {
	b := newBench(t)
	b.beat(t0, 2, member("c2", sub("orders", "*", 1)))
	b.beat(t0.Add(time.Second), 1, member("c1", sub("payments", "P", 1), sub("orders", "*", 1)))
	snap, ok := b.Snapshot("g")
	require.True(t, ok)
	for i := range snap.Members {
		snap.Members[i].kind = kind{}
	}
	assert.Equal(t, Group{
		Name: "g",
		Members: []Member{
			{ClientID: "c1", Session: 1, Remote: remoteOf(1), LastHeartbeat: t0.Add(time.Second), Subscriptions: []protocol.Subscription{sub("orders", "*", 1), sub("payments", "P", 1)}},
			{ClientID: "c2", Session: 2, Remote: remoteOf(2), LastHeartbeat: t0, Subscriptions: []protocol.Subscription{sub("orders", "*", 1)}},
		},
		Subscriptions: []protocol.Subscription{sub("orders", "*", 1), sub("payments", "P", 1)},
	}, snap)
	snap.Members[0].ClientID, snap.Subscriptions[0].Topic = "elsewhere", "elsewhere"
	again, _ := b.Snapshot("g")
	assert.Equal(t, "c1", again.Members[0].ClientID)
	assert.Equal(t, "orders", again.Subscriptions[0].Topic)
}

// Random lives of a few clients against a plain model: a client is a member
// while one of its sessions is registered.
func TestRandomLivesAgainstAModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	type place struct {
		session uint64
		group   string
	}
	for range 12 {
		b, now := newBench(t), t0
		model := make(map[place]string) // -> client id
		last := make(map[place]time.Time)
		members := func(group string) []string {
			set := make(map[string]struct{})
			for at, id := range model {
				if at.group == group {
					set[id] = struct{}{}
				}
			}
			return slices.Sorted(maps.Keys(set))
		}
		next := uint64(0)
		for range 120 {
			now = now.Add(time.Duration(rng.IntN(15)) * time.Second)
			before := map[string][]string{"g0": members("g0"), "g1": members("g1")}
			var changes []Change
			session := next - min(next, uint64(rng.IntN(5)))
			switch rng.IntN(8) {
			case 0:
				next++
			case 1:
				changes = b.ConnClosed(session)
				maps.DeleteFunc(model, func(at place, _ string) bool { return at.session == session })
			case 2:
				group := fmt.Sprintf("g%d", rng.IntN(2))
				changes = b.Unregister(session, &protocol.UnregisterClientRequest{ConsumerGroup: group})
				delete(model, place{session, group})
			case 3:
				changes = b.Expire(now, expiry)
				maps.DeleteFunc(model, func(at place, _ string) bool { return now.Sub(last[at]) > expiry })
			default:
				at := place{session, fmt.Sprintf("g%d", rng.IntN(2))}
				id := fmt.Sprintf("c%d", session%3)
				changes, _, _ = b.Heartbeat(now, session, b.peer(session), remoteOf(session), &protocol.HeartbeatRequest{
					ClientID: id, Consumers: []protocol.ConsumerData{{Group: at.group}},
				})
				model[at], last[at] = id, now
			}
			checkInvariants(t, b.Registry)
			for group, was := range before {
				is := members(group)
				require.Equal(t, is, b.Members(group))
				// What was announced leads from the old members to the new.
				for _, c := range changes {
					if c.Group != group {
						continue
					}
					was = slices.DeleteFunc(was, func(id string) bool { return slices.Contains(c.Left, id) })
					was = append(was, c.Joined...)
					sessions := notified(c)
					require.Len(t, sessions, len(slices.Compact(slices.Sorted(slices.Values(sessions)))))
					for _, s := range sessions {
						require.Contains(t, model, place{s, group})
					}
				}
				slices.Sort(was)
				require.ElementsMatch(t, is, was)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	g := New()
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			id, p := uint64(n), &peer{session: uint64(n)}
			for i := range 200 {
				g.Heartbeat(t0, id, p, remoteOf(id), member(fmt.Sprintf("c%d", n%2), sub("orders", "*", int64(i))))
				g.Members("g")
				g.Producers("g")
				g.Subscription("g", "orders")
				g.Known("g")
				g.Snapshot("g")
				g.Differ("g")
				switch i % 3 {
				case 0:
					g.Unregister(id, goodbye(""))
				case 1:
					g.ConnClosed(id)
				}
				g.Expire(t0, expiry)
			}
		})
	}
	wg.Wait()
	checkInvariants(t, g)
}

func BenchmarkSubscription(b *testing.B) {
	g := New()
	for i := range uint64(100) {
		g.Heartbeat(t0, i, &peer{session: i}, remoteOf(i), member(fmt.Sprintf("c%d", i), sub("orders", "*", 1)))
	}
	b.ReportAllocs()
	for b.Loop() {
		g.Subscription("g", "orders")
	}
}

func TestAHeartbeatWithoutSubscriptionsKeepsWhatWasTold(t *testing.T) {
	b := newBench(t)
	beat := func(session uint64, clientID string, fingerprint int32, subs ...protocol.Subscription) (wanted bool, changes []Change) {
		r := member(clientID, subs...)
		r.Fingerprint, r.WithoutSubscriptions = fingerprint, subs == nil
		changes, wanted, _ = b.Heartbeat(t0, session, b.peer(session), remoteOf(session), r)
		checkInvariants(t, b.Registry)
		return wanted, changes
	}
	orders := sub("orders", "*", 1)
	wanted, changes := beat(1, "c1", 7)
	assert.True(t, wanted, "nothing is known of it")
	require.Len(t, changes, 1)
	assert.Equal(t, []string{"c1"}, changes[0].Joined, "but it is a member")
	_, ok := b.Subscription("g", "orders")
	assert.False(t, ok)
	differs, _ := b.Differ("g")
	assert.False(t, differs)

	wanted, changes = beat(1, "c1", 7, orders)
	assert.False(t, wanted)
	require.Len(t, changes, 1)
	assert.Equal(t, []uint64{1}, notified(changes[0]), "the group has a topic now")
	wanted, changes = beat(1, "c1", 7)
	assert.False(t, wanted)
	assert.Empty(t, changes)
	_, ok = b.Subscription("g", "orders")
	assert.True(t, ok)
	snap, _ := b.Snapshot("g")
	assert.Equal(t, []protocol.Subscription{orders}, snap.Members[0].Subscriptions)

	// Another member has a fingerprint of its own, which is none of the first's business.
	wanted, _ = beat(2, "c2", 8)
	assert.True(t, wanted)
	differs, _ = b.Differ("g")
	assert.False(t, differs, "who has told nothing agrees with everybody")
	wanted, _ = beat(2, "c2", 8, orders)
	assert.False(t, wanted)
	for range 2 {
		wanted, _ = beat(1, "c1", 7)
		assert.False(t, wanted)
		wanted, _ = beat(2, "c2", 8)
		assert.False(t, wanted)
	}
	wanted, _ = beat(1, "c1", 9)
	assert.True(t, wanted, "it subscribes to something else by now")
	wanted, _ = beat(1, "c1", 9, orders, sub("more", "*", 1))
	assert.False(t, wanted)

	// A new session knows nothing.
	b.ConnClosed(1)
	wanted, _ = beat(3, "c1", 9)
	assert.True(t, wanted)
}

func TestMembersSayWhatTheyAreWrittenIn(t *testing.T) {
	b := newBench(t)
	r := member("c1", sub("orders", "*", 1))
	r.Language, r.Version = "JAVA", 479
	b.beat(t0, 1, r)
	snap, _ := b.Snapshot("g")
	assert.Equal(t, []any{"JAVA", 479}, []any{snap.Members[0].Language, snap.Members[0].Version})
	peers := b.Peers("g")
	assert.Equal(t, map[string]protocol.Peer{"c1": b.peer(1)}, peers)
	assert.Empty(t, b.Peers("nobody's"))
}
