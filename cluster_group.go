package pocketmq

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/internal/groups"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// WaitGroup returns when pred holds for a consumer group, as all running brokers of
// the cluster see it together (Broker.Group). pred is called at once and then after
// each change of members, of who pulls what, of offsets, locks and topics, and after
// messages arrived; of changes that come faster than it returns some are passed
// over. It runs on the caller's goroutine, without any lock. An unknown group has
// neither members nor queues. A lock that merely expires is no change.
//
// Errors: that of ctx, with what the group looked like last; ErrClosed when the
// cluster closes; ErrIllegalName; ErrInvalidConfig for a nil pred.
func (c *Cluster) WaitGroup(ctx context.Context, group string, pred func(GroupStatus) bool) error {
	if err := c.life.use(); err != nil {
		return err
	}
	if err := message.ValidateGroup(group); err != nil {
		return err
	}
	if pred == nil {
		return protocol.Tagged(fmt.Sprintf("wait for group %s: pred is nil, say what to wait for", group), ErrInvalidConfig)
	}
	w := c.wire.watch.watch(group)
	defer c.wire.watch.end(w)
	for {
		st := c.group(group)
		if pred(st) {
			return nil
		}
		select {
		case <-w.woken:
		case <-c.ctx.Done():
			return fmt.Errorf("%s: %w", c.life.what, ErrClosed)
		case <-ctx.Done():
			return fmt.Errorf("wait for group %s: %w; last seen: %s", group, ctx.Err(), describeGroup(st))
		}
	}
}

// group merges what the running brokers see of a group.
func (c *Cluster) group(name string) GroupStatus {
	st := GroupStatus{Name: name}
	members := make(map[string]*MemberStatus)
	subscribe := make(map[string]groups.Member)
	for b := range c.Brokers() {
		at, ok := b.Group(name)
		if !ok {
			continue
		}
		for _, m := range b.members(name) { // the latest counts
			if m.LastHeartbeat.After(subscribe[m.ClientID].LastHeartbeat) {
				subscribe[m.ClientID] = m
			}
		}
		if len(at.Members) > 0 {
			st.Model = at.Model
		}
		st.Orderly = st.Orderly || at.Orderly
		st.Queues = append(st.Queues, at.Queues...)
		if len(at.Locks) > 0 && st.Locks == nil {
			st.Locks = make(map[MessageQueue]string)
		}
		maps.Copy(st.Locks, at.Locks)
		for _, m := range at.Members {
			known := members[m.ClientID]
			if known == nil {
				members[m.ClientID] = &m
				continue
			}
			maps.Copy(known.Subscriptions, m.Subscriptions)
			known.Assigned = append(known.Assigned, m.Assigned...)
			if m.LastHeartbeat.After(known.LastHeartbeat) {
				known.LastHeartbeat = m.LastHeartbeat
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		slices.SortFunc(members[id].Assigned, MessageQueue.Compare)
		st.Members = append(st.Members, *members[id])
	}
	slices.SortFunc(st.Queues, compareLags)
	all := make([]groups.Member, 0, len(subscribe))
	for _, id := range slices.Sorted(maps.Keys(subscribe)) {
		all = append(all, subscribe[id])
	}
	st.Differ = groups.Differ(name, all)
	return st
}

// describeGroup says in a line how a group is.
func describeGroup(st GroupStatus) string {
	lag := int64(0)
	for _, q := range st.Queues {
		lag += q.Lag
	}
	texts := make([]string, 0, len(st.Members))
	for _, m := range st.Members {
		texts = append(texts, fmt.Sprintf("%s with %d queues", m.ClientID, len(m.Assigned)))
	}
	if len(texts) == 0 {
		texts = append(texts, "no members")
	}
	return fmt.Sprintf("%s; %d queues, lag %d", strings.Join(texts, ", "), len(st.Queues), lag)
}
