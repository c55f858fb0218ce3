package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
	"github.com/pocketmq/pocketmq/rebalance"
)

// sideBySide compares the strategies. They are plain functions: no cluster is
// needed to ask them.
func sideBySide(s *walk.Story) error {
	s.Step("The strategies side by side")
	s.Say(`16 queues, anna, bert and carla; then dora joins; then bert leaves. One letter is the owner of one queue,
		a0 to a7 and b0 to b7, "-" is nobody. Moves are queues that changed hands, and after the slash those
		between two members who stay: they need not have moved. Shares are the least and the most queues of one member.`)
	rows, err := compare()
	if err != nil {
		return err
	}
	printTable(s, rows)
	return judge(s, rows)
}

// row is what one strategy makes of the same members.
type row struct {
	strategy     strategy
	owners       []string // of each queue, one letter each: at first, after the join, after the leave
	least, most  int      // queues of one member, over all three
	uneven       int      // the greatest difference between two members at a time
	moved, spare []int    // by the join and by the leave: queues that changed hands, and those of them that need not have
}

// compare asks every strategy who gets what of 16 queues: three members, then a
// fourth joins, then one of the first leaves.
func compare() ([]row, error) {
	var rows []row
	for _, s := range strategies() {
		queues := ordersQueues()
		if s.rename {
			for i := range queues {
				queues[i].BrokerName = map[string]string{"broker-a": "north@a", "broker-b": "south@b"}[queues[i].BrokerName]
			}
		}
		r := row{strategy: s, least: len(queues)}
		for _, members := range [][]string{{"anna", "bert", "carla"}, {"anna", "bert", "carla", "dora"}, {"anna", "carla", "dora"}} {
			shares, err := s.shares(queues, members...)
			if err != nil {
				return nil, err
			}
			r.add(queues, members, shares)
			if err := s.verify(queues, members); err != nil {
				return nil, err
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// verify has package rebalance look for queues without an owner, or with two.
// Consumers do the same with strategies that are not built in, and warn. It is
// no help with CONFIG: there every member has another one.
func (s strategy) verify(queues []pocketmq.MessageQueue, members []string) error {
	if s.gaps {
		return nil
	}
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = clientID(m)
	}
	return rebalance.Verify(s.of(members[0]), group, queues, ids)
}

// add adds the shares after another change.
func (r *row) add(queues []pocketmq.MessageQueue, members []string, shares map[string][]pocketmq.MessageQueue) {
	now := letters(queues, shares)
	least, most := len(queues), 0
	for _, m := range members {
		least, most = min(least, len(shares[m])), max(most, len(shares[m]))
	}
	r.least, r.most, r.uneven = min(r.least, least), max(r.most, most), max(r.uneven, most-least)
	if len(r.owners) > 0 {
		before := r.owners[len(r.owners)-1]
		moved, spare := 0, 0
		for i := range now {
			if now[i] == before[i] {
				continue
			}
			moved++
			// Both are there before and after: it would not have had to move.
			if now[i] != '-' && before[i] != '-' && strings.IndexByte(before, now[i]) >= 0 && slices.Contains(members, memberOf(before[i])) {
				spare++
			}
		}
		r.moved, r.spare = append(r.moved, moved), append(r.spare, spare)
	}
	r.owners = append(r.owners, now)
}

// letters tells the owner of each queue by the first letter, "-" for nobody.
func letters(queues []pocketmq.MessageQueue, shares map[string][]pocketmq.MessageQueue) string {
	out := []byte(strings.Repeat("-", len(queues)))
	for member, share := range shares {
		for _, q := range share {
			out[slices.Index(queues, q)] = strings.ToUpper(member)[0]
		}
	}
	return string(out)
}

func memberOf(letter byte) string {
	for _, m := range []string{"anna", "bert", "carla", "dora"} {
		if strings.ToUpper(m)[0] == letter {
			return m
		}
	}
	return ""
}

func printTable(s *walk.Story, rows []row) {
	s.Line("")
	s.Line("%-20s %-17s  %-17s %6s  %-17s %6s  %6s", "", "3 members", "dora joins", "moves", "bert leaves", "moves", "shares")
	half := func(owners string) string { return owners[:8] + " " + owners[8:] }
	for _, r := range rows {
		s.Line("%-20s %s  %s %6s  %s %6s  %6s", r.strategy.name,
			half(r.owners[0]), half(r.owners[1]), r.moves(0), half(r.owners[2]), r.moves(1), fmt.Sprintf("%d-%d", r.least, r.most))
	}
	s.Line("")
	for _, r := range rows {
		s.Line("%-20s %s", r.strategy.name, r.strategy.about)
	}
}

// moves prints what a change has moved: in all, and after a slash in vain.
func (r *row) moves(i int) string { return fmt.Sprintf("%d/%d", r.moved[i], r.spare[i]) }

// judge checks what is said about the strategies below the table.
func judge(s *walk.Story, rows []row) error {
	of := func(name string) row {
		return rows[slices.IndexFunc(rows, func(r row) bool { return r.strategy.name == name })]
	}
	cost := func(r row) int { return r.moved[0] + r.moved[1] }
	avg, circle, hash, nearby := of("AVG"), of("AVG_BY_CIRCLE"), of("CONSISTENT_HASH"), of("MACHINE_ROOM_NEARBY")
	config, stick, can := of("CONFIG"), of("STICKY"), of("CANARY")
	s.Line("")
	for _, claim := range []struct {
		holds bool
		what  string
	}{
		{avg.uneven == 1 && circle.uneven == 1, "AVG and AVG_BY_CIRCLE: nobody has two queues more than another"},
		{avg.spare[0]+avg.spare[1] > 0, "AVG: when one comes or goes, the blocks of the others shift"},
		{hash.spare[0]+hash.spare[1] == 0, "CONSISTENT_HASH: only queues of the one that comes or goes move"},
		{hash.uneven > 1, fmt.Sprintf("CONSISTENT_HASH: and the price: one has up to %d queues more than another", hash.uneven)},
		{strings.Trim(nearby.owners[1][:8], "AC") == "" && strings.Trim(nearby.owners[1][8:], "BD") == "", "MACHINE_ROOM_NEARBY: nobody consumes from the other room while each has its own members"},
		{strings.Count(config.owners[2], "-") == 4, "CONFIG: bert is gone, and nobody has his 4 queues"},
		{cost(stick) < cost(avg) && cost(stick) < cost(circle) && stick.uneven == 1, fmt.Sprintf("STICKY: as even as AVG, with %d moves; AVG has %d, AVG_BY_CIRCLE %d; 8 is the least that is possible", cost(stick), cost(avg), cost(circle))},
		{strings.Count(can.owners[1], "D") == 1 && strings.Count(can.owners[2], "D") == 1, "CANARY: dora has one queue, whoever else is there"},
	} {
		if !claim.holds {
			return fmt.Errorf("not true: %s", claim.what)
		}
		s.Checked("%s", claim.what)
	}
	return nil
}
