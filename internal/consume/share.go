package consume

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

// errStrategy marks what a strategy did wrong.
var errStrategy = errors.New("allocation strategy")

// allocate asks the strategy for this member's share of a topic's queues. A
// share that is not part of the queues, or names one twice, is refused, and a
// panic is an error. A strategy that is not of package rebalance is then asked
// for the other members' shares too, when they have changed; see verify.
//
// Differs: Java takes whatever a strategy answers. With
// AllocateMessageQueueByConfig it takes the whole list for each topic, and
// nobody consumes %RETRY% queues that no list names; see listed.
func (r *run) allocate(queues []message.Queue, members []string) (share []message.Queue, err error) {
	strategy := r.cfg.Strategy
	if !r.enter() {
		return nil, protocol.ErrClosed
	}
	defer r.exit()
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("allocation strategy panicked", "strategy", fmt.Sprintf("%T", strategy), "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w %T panicked: %v", errStrategy, strategy, v)
		}
	}()
	// Clones: a strategy that reorders its arguments must not reorder the route.
	share, err = strategy.Allocate(r.cfg.Group, r.cfg.ClientID, slices.Clone(queues), slices.Clone(members))
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", errStrategy, strategy.Name(), err)
	}
	builtIn := rebalance.BuiltIn(strategy)
	if builtIn && strategy.Name() == rebalance.ByConfig().Name() {
		return r.listed(share, queues, members)
	}
	known := setOf(queues)
	for _, q := range share {
		if !known[q] {
			return nil, fmt.Errorf("%w %s: its share has %v twice, or it is no queue of the topic", errStrategy, strategy.Name(), q)
		}
		delete(known, q)
	}
	if !builtIn {
		r.verify(share, queues, members)
	}
	return share, nil
}

// listed returns what counts of a ByConfig's list: the queues of the topic in
// question that the route shows, each once. Queues that it does not show may
// come back with their broker, so they are only warned of. A %RETRY% topic of
// which the list names no queue is shared averagely, so that failed messages
// come again.
func (r *run) listed(list, queues []message.Queue, members []string) ([]message.Queue, error) {
	topic := queues[0].Topic
	known := setOf(queues)
	var share, absent []message.Queue
	for _, q := range list {
		switch {
		case q.Topic != topic:
		case known[q]:
			share = append(share, q)
			delete(known, q)
		default:
			absent = append(absent, q)
		}
	}
	if len(share)+len(absent) == 0 && strings.HasPrefix(topic, message.RetryPrefix) {
		return rebalance.Averagely.Allocate(r.cfg.Group, r.cfg.ClientID, queues, members)
	}
	found := ""
	if len(absent) > 0 {
		found = fmt.Sprintf("the list has queues twice, or queues that the topic does not have now: %v", absent)
	}
	r.found(topic, checkedShares{found: found})
	return share, nil
}

// checkedShares is a look at the shares of all members of a topic, or at a
// ByConfig's list.
type checkedShares struct {
	queues  []message.Queue
	members []string
	found   string // what is wrong; "" = nothing
}

// verify asks a strategy of the user's for every other member's share, unless
// it has been asked with these queues and members, and warns of queues that
// nobody gets, or more than one member. That is no reason to refuse the share: a
// strategy may leave queues out on purpose. Everything is said once, until it
// changes.
func (r *run) verify(share, queues []message.Queue, members []string) {
	topic := queues[0].Topic
	before := r.checked[topic]
	if slices.Equal(before.queues, queues) && slices.Equal(before.members, members) {
		return
	}
	now := checkedShares{queues: queues, members: slices.Clone(members), found: before.found}
	r.checked[topic] = now // before it is asked, lest one that ends its goroutine is asked for ever
	now.found = r.findings(share, queues, members)
	r.found(topic, now)
}

// findings verifies the strategy. Its answer for this member is known already.
func (r *run) findings(share, queues []message.Queue, members []string) (found string) {
	defer func() {
		if v := recover(); v != nil {
			found = fmt.Sprintf("it panics when asked for another member's share: %v", v)
		}
	}()
	s := askedOnce{r.cfg.Strategy, r.cfg.ClientID, share}
	if err := rebalance.Verify(s, r.cfg.Group, queues, members); err != nil {
		return err.Error()
	}
	return ""
}

// found keeps a look at shares, and says what it found if that is new.
func (r *run) found(topic string, now checkedShares) {
	before := r.checked[topic].found
	r.checked[topic] = now
	switch {
	case now.found == before:
	case now.found == "":
		r.log.Info("the allocation strategy shares out queues well again", "strategy", r.cfg.Strategy.Name(), "topic", topic)
	default:
		r.log.Warn("the allocation strategy shares out queues oddly, going on with it",
			"strategy", r.cfg.Strategy.Name(), "topic", topic, "found", now.found)
	}
}

// askedOnce is a strategy of which one answer is known.
type askedOnce struct {
	rebalance.Strategy
	self  string
	share []message.Queue
}

func (s askedOnce) Allocate(group, self string, queues []message.Queue, members []string) ([]message.Queue, error) {
	if self == s.self {
		return s.share, nil
	}
	return s.Strategy.Allocate(group, self, queues, members)
}

func setOf(queues []message.Queue) map[message.Queue]bool {
	set := make(map[message.Queue]bool, len(queues))
	for _, q := range queues {
		set[q] = true
	}
	return set
}
