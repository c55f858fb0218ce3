// Failover shows how broker groups go on when their master dies or is cut off:
// another one is elected, the old one comes back as a slave, and nothing that was
// acknowledged is lost.
//
//	go run ./examples/failover
//	go run ./examples/failover -step
//	go run ./examples/failover -svg failover.svg
//
// Everything told is checked. It exits with 1 if something did not happen.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

const (
	groupA  = "broker-a"
	groupB  = "broker-b"
	members = 3 // of each group: a master and two slaves
	orders  = "orders"
	billing = "billing"
)

func main() { walk.Main(program()) }

func program() walk.Program {
	return walk.Program{
		Name: "failover",
		About: "Failover shows how broker groups of a master and two slaves go on when the master\n" +
			"dies, or is cut off from the others: who is elected, what becomes of the old one, and\n" +
			"that nothing that was acknowledged is lost.",
		Drawn:   "who was master when, and how many sends were acknowledged",
		Speed:   10,
		Fastest: 50,
		Examples: []string{
			"# a minute and a half of the cluster take some seconds",
			"-step # wait for Enter before each step",
			"-speed 2 -svg failover.svg # slower, and with a chart",
		},
		Run: run,
	}
}

// run tells the story. What a machine that is too busy makes of it is no story:
// then it is told again, more slowly.
func run(ctx context.Context, s *walk.Story, o walk.Options) error {
	for try := 1; ; try++ {
		err := tell(ctx, s, o)
		if !errors.Is(err, errStutter) || try == 3 {
			return err
		}
		s.Say("%v. All of it again from the start, at half the speed: -speed %g.", err, s.Clock.Speed/2)
		s.Again(s.Clock.Speed / 2)
	}
}

// errStutter: this machine was so slow that leases ended, or answers came late, which
// nothing in the story explains. At speed 10 a pause of 50 ms is enough for that.
var errStutter = errors.New("this machine is too busy for this speed")

// tell tells it once. Each of its parts returns an error if something that it claims
// did not happen.
func tell(ctx context.Context, s *walk.Story, o walk.Options) error {
	log := walk.NewLog()
	electing := pocketmq.BrokerConfig{
		Failover:    true,
		Replication: pocketmq.SyncReplication, // a send is answered when all that are in sync have it
	}
	cluster, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{
		Groups: []pocketmq.BrokerGroup{
			{Name: groupA, Slaves: members - 1, Config: electing},
			{Name: groupB, Slaves: members - 1, Config: electing},
		},
		Topics:  map[string]int{orders: 4}, // on each group
		Timings: s.Clock.Timings(),         // LeaseRenew 1 s, LeaseExpire 5 s
		OnEvent: log.Record,
	})
	if err != nil {
		return err
	}
	defer cluster.Close() // a second Close, as after the one below, does nothing

	t := &stage{story: s, log: log, cluster: cluster, account: newAccount(s.Clock, log), roles: newRoles(s.Clock, cluster)}
	defer t.stop()
	for _, part := range []func(context.Context) error{
		t.open, t.kill, t.comeBack, t.cutInTwo, t.heal, t.elect, t.proof,
	} {
		if err := part(ctx); err != nil {
			if late := t.roles.latest(); late > leaseRenew()/2 && ctx.Err() == nil {
				return fmt.Errorf("%w: somebody was %s late (%w)", errStutter, walk.Seconds(late), err)
			}
			return err
		}
	}
	return t.end(o)
}

// end prints the time line, and draws it.
func (t *stage) end(o walk.Options) error {
	until := t.story.Clock.Now()
	t.story.Step("On one time line")
	t.timeline(until)
	if o.SVG != "" {
		if err := t.chart(until).Write(o.SVG); err != nil {
			return err
		}
		t.story.Line("")
		t.story.Line("%s shows it, too.", o.SVG)
	}
	return t.cluster.Close()
}

// leaseExpire and leaseRenew are RocketMQ's intervals, in cluster time.
func leaseExpire() time.Duration { return pocketmq.DefaultTimings().LeaseExpire }
func leaseRenew() time.Duration  { return pocketmq.DefaultTimings().LeaseRenew }
