package groups

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestLookUpsFindMembersAndWhoSubscribes(t *testing.T) {
	g := New()
	beat := func(session uint64, client, group string, model protocol.MessageModel, topics ...string) {
		c := protocol.ConsumerData{Group: group, Model: model, From: protocol.ConsumeFromFirst, Passive: true}
		for _, topic := range topics {
			c.Subscriptions = append(c.Subscriptions, protocol.Subscription{Topic: topic})
		}
		g.Heartbeat(time.Unix(1, 0), session, &noPeer{id: session}, netip.AddrPort{}, &protocol.HeartbeatRequest{ClientID: client, Consumers: []protocol.ConsumerData{c}})
	}
	beat(1, "a", "g", protocol.Clustering, "t", "u")
	beat(2, "b", "f", protocol.Clustering, "t")
	beat(3, "c", "all", protocol.Broadcasting, "t")
	beat(4, "a", "g", protocol.Clustering, "t", "u") // connected anew
	assert.Equal(t, []string{"f", "g"}, g.Subscribers("t"))
	assert.Empty(t, g.Subscribers("x"))
	assert.Equal(t, []string{"t", "u"}, g.Topics("g"))
	assert.Empty(t, g.Topics("x"))
	assert.True(t, g.IsMember("g", 1))
	assert.False(t, g.IsMember("g", 2))
	assert.False(t, g.IsMember("x", 2))
	p, ok := g.Peer("g", "a")
	assert.True(t, ok)
	assert.EqualValues(t, 4, p.(*noPeer).id, "the newest")
	for _, who := range [][2]string{{"g", "b"}, {"x", "a"}} {
		_, ok = g.Peer(who[0], who[1])
		assert.False(t, ok)
	}
	snap, _ := g.Snapshot("g")
	assert.Equal(t, protocol.ConsumeFromFirst, snap.From)
	assert.True(t, snap.Passive)
}

type noPeer struct {
	protocol.Peer
	id uint64
}
