package pocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pocketmq/pocketmq/internal/groups"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// GroupConfig are the settings of a consumer group for CreateGroup. Java:
// SubscriptionGroupConfig.
type GroupConfig struct {
	Name              string
	ConsumeDisabled   bool // pulls of the group are refused (consumeEnable = false)
	BroadcastDisabled bool // pulls of a broadcasting group are refused (consumeBroadcastEnable = false)
	RetryQueues       int  // queues of its %RETRY% topic on each broker [1]; -1 = none: failed messages are dropped (retryQueueNums)
	MaxReconsume      int  // attempts after the first, before a message becomes a dead letter [16]; NoRetries = none (retryMaxTimes)
}

// Member is a live member of a consumer group.
type Member struct{ ClientID, Addr string }

// CreateGroup creates the consumer group, or replaces its settings, on every
// master. A group that nobody creates comes into being with default settings when
// it is first used. Consumers may say their own number of attempts, which then
// counts.
//
// Errors: ErrIllegalName, ErrInvalidConfig for numbers out of range,
// ErrUnreachable; brokers that took it before another failed keep it. Java:
// updateAndCreateSubscriptionGroupConfig.
func (a *Admin) CreateGroup(ctx context.Context, g GroupConfig) error {
	if err := a.life.use(); err != nil {
		return err
	}
	p := problems{what: "GroupConfig"}
	p.check("Name", message.ValidateGroup(g.Name))
	for _, n := range []struct {
		field string
		value *int
		def   int
		most  int
	}{{"RetryQueues", &g.RetryQueues, 1, groups.MaxRetryQueues}, {"MaxReconsume", &g.MaxReconsume, 16, 1<<31 - 1}} {
		switch {
		case *n.value == 0:
			*n.value = n.def
		case *n.value == -1:
			*n.value = 0
		case *n.value < 0 || *n.value > n.most:
			p.add("%s is %d, must be 1 to %d (0 = %d, -1 = none)", n.field, *n.value, n.most, n.def)
		}
	}
	if err := p.err(); err != nil {
		return err
	}
	c := protocol.DefaultGroupConfig(g.Name)
	c.ConsumeEnable, c.ConsumeBroadcastEnable = !g.ConsumeDisabled, !g.BroadcastDisabled
	c.RetryQueues, c.RetryMaxTimes = g.RetryQueues, g.MaxReconsume
	return a.bounded(ctx, "create group "+g.Name, func(ctx context.Context) error {
		_, err := askAll(ctx, a, func(ctx context.Context, m master) (*protocol.UpdateGroupResponse, error) {
			return change(ctx, a, m, protocol.BrokerConn.UpdateGroup, &protocol.UpdateGroupRequest{Config: c})
		})
		return err
	})
}

// DeleteGroup deletes a consumer group from every master: its settings, all its
// committed offsets, and its %RETRY% topic with what waits there or is delayed for it. Its dead letters
// stay until the topic %DLQ%<group> is deleted. A group that is unknown is no error.
//
// Stop its members first: a group that is used comes into being again.
//
// Errors: as DeleteTopic's. Java: deleteSubscriptionGroup with removeOffset.
//
// Differs: mqadmin deletes the dead letters too.
func (a *Admin) DeleteGroup(ctx context.Context, group string) error {
	if err := a.checkGroup(group); err != nil {
		return err
	}
	return a.bounded(ctx, "delete group "+group, func(ctx context.Context) error {
		_, err := askAll(ctx, a, func(ctx context.Context, m master) (*protocol.DeleteGroupResponse, error) {
			return change(ctx, a, m, protocol.BrokerConn.DeleteGroup, &protocol.DeleteGroupRequest{Group: group, CleanOffsets: true})
		})
		if err != nil {
			return err
		}
		return a.deleteTopic(ctx, message.RetryTopic(group))
	})
}

// checkGroup refuses a call about a name that no group may have, or on an Admin
// that cannot be used.
func (a *Admin) checkGroup(group string) error {
	if err := a.life.use(); err != nil {
		return err
	}
	return message.ValidateGroup(group)
}

// Members lists the live members of a consumer group, sorted by client id, from
// every master; none for an unknown group. When only some masters fail, it returns
// what the others said, beside the error that names those. Java:
// examineConsumerConnectionInfo.
func (a *Admin) Members(ctx context.Context, group string) ([]Member, error) {
	if err := a.checkGroup(group); err != nil {
		return nil, err
	}
	var members []Member
	err := a.bounded(ctx, "members of group "+group, func(ctx context.Context) error {
		found, err := a.connections(ctx, group)
		for _, m := range found.members {
			members = append(members, Member{m.ClientID, m.Addr})
		}
		return err
	})
	return members, err
}

// connected is a consumer group as the brokers see who is in it.
type connected struct {
	model         MessageModel
	members       []connectedMember       // sorted by client id
	subscriptions []protocol.Subscription // sorted by topic
}

type connectedMember struct {
	protocol.Connection
	via string // address of a broker that knows it
}

// connections asks every master who is in a group.
func (a *Admin) connections(ctx context.Context, group string) (connected, error) {
	answers, err := askAll(ctx, a, func(ctx context.Context, m master) (*protocol.GetConsumerConnectionResponse, error) {
		resp, err := ask(ctx, a, m.addr, protocol.BrokerConn.GetConsumerConnection, &protocol.GetConsumerConnectionRequest{Group: group})
		var answered *protocol.Error
		if errors.As(err, &answered) && answered.Code == protocol.ConsumerNotOnline {
			return nil, nil
		}
		return resp, err
	})
	var found connected
	for _, answer := range answers {
		if answer.value == nil {
			continue
		}
		found.model = answer.value.Model
		for _, m := range answer.value.Members {
			if !slices.ContainsFunc(found.members, func(o connectedMember) bool { return o.ClientID == m.ClientID }) {
				found.members = append(found.members, connectedMember{m, answer.from.addr})
			}
		}
		for _, sub := range answer.value.Subscriptions {
			if !slices.ContainsFunc(found.subscriptions, func(o protocol.Subscription) bool { return o.Topic == sub.Topic }) {
				found.subscriptions = append(found.subscriptions, sub)
			}
		}
	}
	slices.SortFunc(found.members, func(a, b connectedMember) int { return cmp.Compare(a.ClientID, b.ClientID) })
	slices.SortFunc(found.subscriptions, func(a, b protocol.Subscription) int { return cmp.Compare(a.Topic, b.Topic) })
	return found, err
}

// Group describes a consumer group as all masters and its members see it: who is
// in it, which queues each member has, how far it has come everywhere, and who
// holds which lock. Differ says what the members themselves subscribe to; members
// of different models are told apart by Broker.Group only, and so is LastHeartbeat,
// which no answer carries. An unknown group has neither members nor queues, and is
// no error.
//
// When a master or a member does not answer, the rest is returned beside the error
// that names it. Java: examineConsumerConnectionInfo, examineConsumeStats,
// getConsumerRunningInfo.
func (a *Admin) Group(ctx context.Context, group string) (GroupStatus, error) {
	if err := a.checkGroup(group); err != nil {
		return GroupStatus{}, err
	}
	st := GroupStatus{Name: group}
	err := a.bounded(ctx, "group "+group, func(ctx context.Context) error {
		found, err := a.connections(ctx, group)
		errs := []error{err}
		st.Model = found.model
		infos, err := a.runningInfo(ctx, group, found.members)
		errs = append(errs, err)
		var told []groups.Member // what the members said they subscribe to
		for i, m := range found.members {
			st.Members = append(st.Members, memberOf(group, m, infos[i]))
			if infos[i] == nil {
				continue
			}
			told = append(told, groups.Member{ClientID: m.ClientID, Model: found.model, Subscriptions: infos[i].Subscriptions})
			st.Orderly = st.Orderly || infos[i].Orderly
		}
		st.Differ = groups.Differ(group, told)
		st.Locks = locksOf(group, found.members, infos)
		st.Queues, err = a.lag(ctx, group, found.subscriptions)
		return errors.Join(append(errs, err)...)
	})
	return st, err
}

// memberOf describes a member by what it says of itself, if it does.
func memberOf(group string, m connectedMember, info *protocol.GetConsumerRunningInfoResponse) MemberStatus {
	st := MemberStatus{ClientID: m.ClientID, Addr: m.Addr, Subscriptions: map[string]string{}}
	if info == nil {
		return st
	}
	for _, sub := range info.Subscriptions {
		if sub.Topic != message.RetryTopic(group) {
			st.Subscriptions[sub.Topic] = sub.Expression
		}
	}
	for _, q := range info.Queues {
		if !q.Dropped && q.Topic != message.RetryTopic(group) {
			st.Assigned = append(st.Assigned, MessageQueue{Topic: q.Topic, BrokerName: q.BrokerName, QueueID: q.QueueID})
		}
	}
	slices.SortFunc(st.Assigned, MessageQueue.Compare)
	return st
}

// runningInfo asks members what they are doing, in their order; nil for one that
// did not say.
func (a *Admin) runningInfo(ctx context.Context, group string, members []connectedMember) ([]*protocol.GetConsumerRunningInfoResponse, error) {
	infos := make([]*protocol.GetConsumerRunningInfoResponse, len(members))
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			info, err := ask(ctx, a, m.via, protocol.BrokerConn.GetConsumerRunningInfo, &protocol.GetConsumerRunningInfoRequest{Group: group, ClientID: m.ClientID})
			if err != nil {
				errs[i] = fmt.Errorf("member %s: %w", m.ClientID, err)
				return
			}
			infos[i] = info
		})
	}
	wg.Wait()
	return infos, errors.Join(errs...)
}

// Locks tells which member holds which queue of an orderly group, its %RETRY%
// queues too, by what the members say: RocketMQ has no request that asks a broker
// for its locks. A group without members has none, although locks of members that
// died may last until LockExpire; Broker.Group tells of those. A member that does
// not answer is named by the error, beside what the others said.
func (a *Admin) Locks(ctx context.Context, group string) (map[MessageQueue]string, error) {
	if err := a.checkGroup(group); err != nil {
		return nil, err
	}
	var locks map[MessageQueue]string
	err := a.bounded(ctx, "locks of group "+group, func(ctx context.Context) error {
		found, err := a.connections(ctx, group)
		infos, infoErr := a.runningInfo(ctx, group, found.members)
		locks = locksOf(group, found.members, infos)
		return errors.Join(err, infoErr)
	})
	return locks, err
}

// locksOf collects the locks that members say they hold; nil for none.
func locksOf(group string, members []connectedMember, infos []*protocol.GetConsumerRunningInfoResponse) map[MessageQueue]string {
	var locks map[MessageQueue]string
	for i, info := range infos {
		if info == nil {
			continue
		}
		for _, q := range info.Queues {
			if q.Locked && !q.Dropped {
				if locks == nil {
					locks = make(map[MessageQueue]string)
				}
				locks[MessageQueue{Topic: q.Topic, BrokerName: q.BrokerName, QueueID: q.QueueID}] = members[i].ClientID
			}
		}
	}
	return locks
}

// askAll asks every master at the same time; see askMasters.
func askAll[T any](ctx context.Context, a *Admin, question func(context.Context, master) (T, error)) ([]answerFrom[T], error) {
	masters, err := a.masters(ctx, nil)
	if err != nil {
		return nil, err
	}
	return askEach(ctx, masters, question)
}

// askEach asks masters at the same time, and returns what was said, in their
// order, and an error that names those that failed.
func askEach[T any](ctx context.Context, masters []master, question func(context.Context, master) (T, error)) ([]answerFrom[T], error) {
	answers := make([]answerFrom[T], len(masters))
	errs := make([]error, len(masters))
	var wg sync.WaitGroup
	for i, m := range masters {
		wg.Go(func() {
			value, err := question(ctx, m)
			answers[i] = answerFrom[T]{m, value}
			if err != nil && !strings.Contains(err.Error(), m.name) {
				err = fmt.Errorf("%s: %w", m.name, err)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return answers, errors.Join(errs...)
}

// offsetsByQueue names the queues of a broker in what it answered.
func offsetsByQueue(into map[MessageQueue]int64, topic string, from master, offsets map[int]int64) {
	for _, id := range slices.Sorted(maps.Keys(offsets)) {
		into[MessageQueue{Topic: topic, BrokerName: from.name, QueueID: id}] = offsets[id]
	}
}
