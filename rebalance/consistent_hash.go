package rebalance

import (
	"cmp"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/message"
)

// DefaultVirtualNodes is the number of places on the ring that RocketMQ gives
// each member. Java: AllocateMessageQueueConsistentHash.
const DefaultVirtualNodes = 10

// ConsistentHash puts every member on a ring of hashes in virtualNodes places,
// and gives each queue to the member that follows the queue's own hash. A member
// that joins takes queues from others, one that leaves hands its own over, and
// all other queues stay where they are. The price is that shares are uneven, the
// more so the fewer virtual nodes: with DefaultVirtualNodes a member may well
// hold none.
//
// With 0 virtual nodes everybody gets none; below 0 every Allocate is
// ErrInvalidArguments. Name is "CONSISTENT_HASH". The strategy remembers the
// rings of the last few member lists. Java: AllocateMessageQueueConsistentHash,
// ConsistentHashRouter.
func ConsistentHash(virtualNodes int) Strategy {
	return &consistentHash{virtualNodes: virtualNodes}
}

type consistentHash struct {
	virtualNodes int

	// rings holds the last rings that were made, the newest first: a consumer
	// asks for the same members again and again, with one queue list per topic;
	// under MachineRoomNearby there are two member lists. What is stored is never
	// changed, only replaced; that two callers replace each other's costs one
	// ring made anew.
	rings atomic.Pointer[[keptRings]*ring]
}

// keptRings is how many rings a strategy remembers.
const keptRings = 4

func (*consistentHash) Name() string { return "CONSISTENT_HASH" }

func (s *consistentHash) Allocate(group, self string, queues []message.Queue, members []string) ([]message.Queue, error) {
	if s.virtualNodes < 0 {
		return nil, fmt.Errorf("%w: group %q: ConsistentHash has %d virtual nodes, take DefaultVirtualNodes", ErrInvalidArguments, group, s.virtualNodes)
	}
	if err := check(group, self, queues, members); err != nil {
		return nil, err
	}
	me := slices.Index(members, self)
	if me < 0 || s.virtualNodes == 0 {
		return nil, nil
	}
	r := s.ring(members)
	var share []message.Queue
	key := make([]byte, 0, 128)
	for _, q := range queues {
		key = appendQueueKey(key[:0], q)
		if r.owner(hashOf(key)) == me {
			share = append(share, q)
		}
	}
	return share, nil
}

// ring returns the ring of members, made now or before.
func (s *consistentHash) ring(members []string) *ring {
	var kept [keptRings]*ring
	if p := s.rings.Load(); p != nil {
		kept = *p
	}
	for _, r := range kept {
		if r != nil && slices.Equal(r.members, members) {
			return r
		}
	}
	r := newRing(members, s.virtualNodes)
	copy(kept[1:], kept[:keptRings-1])
	kept[0] = r
	s.rings.Store(&kept)
	return r
}

// ring is a circle of hashes. It is never changed once made.
type ring struct {
	members []string
	hashes  []uint32 // of the virtual nodes, ascending, each once
	owners  []int32  // of each hash: its member's first index
}

// virtualNode is one place of a member on a ring.
type virtualNode struct {
	hash  uint32
	owner int32
}

// newRing puts every member on a ring n times, in the order given. Of two equal
// hashes the later counts. A member that is listed again gets n more places,
// numbered on from those it has.
func newRing(members []string, n int) *ring {
	nodes := make([]virtualNode, 0, len(members)*n)
	first := make(map[string]int32, len(members))
	key := make([]byte, 0, 64)
	for i, m := range members {
		owner, again := first[m]
		replica := 0
		if again {
			nodes = settle(nodes)
			for _, v := range nodes {
				if v.owner == owner {
					replica++
				}
			}
		} else {
			owner = int32(i)
			first[m] = owner
		}
		for range n {
			key = strconv.AppendInt(append(append(key[:0], m...), '-'), int64(replica), 10)
			nodes = append(nodes, virtualNode{hashOf(key), owner})
			replica++
		}
	}
	nodes = settle(nodes)
	r := &ring{members: slices.Clone(members), hashes: make([]uint32, len(nodes)), owners: make([]int32, len(nodes))}
	for i, v := range nodes {
		r.hashes[i], r.owners[i] = v.hash, v.owner
	}
	return r
}

// settle sorts nodes by hash and keeps the last of equal ones.
func settle(nodes []virtualNode) []virtualNode {
	slices.SortStableFunc(nodes, func(a, b virtualNode) int { return cmp.Compare(a.hash, b.hash) })
	kept := nodes[:0]
	for i, v := range nodes {
		if i+1 == len(nodes) || nodes[i+1].hash != v.hash {
			kept = append(kept, v)
		}
	}
	return kept
}

// owner returns the index of the member at the first hash that is not below
// this one, round the circle.
func (r *ring) owner(hash uint32) int {
	i, _ := slices.BinarySearch(r.hashes, hash)
	if i == len(r.hashes) {
		i = 0
	}
	return int(r.owners[i])
}

// hashOf is the place of a key on the ring.
// Java: ConsistentHashRouter.MD5Hash, 4 bytes of the digest.
func hashOf(key []byte) uint32 {
	sum := md5.Sum(key)
	return binary.BigEndian.Uint32(sum[:4])
}

// appendQueueKey appends what Java hashes of a queue: MessageQueue.toString.
func appendQueueKey(key []byte, q message.Queue) []byte {
	key = append(key, "MessageQueue [topic="...)
	key = append(key, q.Topic...)
	key = append(key, ", brokerName="...)
	key = append(key, q.BrokerName...)
	key = append(key, ", queueId="...)
	key = strconv.AppendInt(key, int64(q.QueueID), 10)
	return append(key, ']')
}
