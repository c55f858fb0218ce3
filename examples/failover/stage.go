package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// stage is the cluster with all who act on it.
type stage struct {
	story   *walk.Story
	log     *walk.Log
	cluster *pocketmq.Cluster
	account *account
	roles   *roles

	producers map[string]*pocketmq.Producer
	consumers map[string]*pocketmq.Consumer
	selling   sync.WaitGroup
	closing   context.CancelFunc // ends the senders
	watching  sync.WaitGroup
	blind     context.CancelFunc // ends the look-out

	old     member        // the master that was struck last
	struck  time.Duration // when
	since   int           // events before that
	moments []walk.Moment
}

func senders() []string     { return []string{"anna", "bert", "dora"} }
func accountants() []string { return []string{"ivo", "jana"} }

// stop ends whoever still acts.
func (t *stage) stop() {
	if t.closing != nil {
		t.closing()
		t.selling.Wait()
	}
	if t.blind != nil {
		t.blind()
		t.watching.Wait()
	}
}

// open: two groups of three, senders and consumers.
func (t *stage) open(ctx context.Context) error {
	t.story.Step("Two groups of three")
	t.story.Say(`Each message of a group is kept by a master and two slaves, which follow the master's log. A send is
		answered when all that are in sync have it. A controller keeps who is master, under which epoch, and who is
		in sync; the master renews its lease there every second, and has none when 5 s have passed. %d producers
		send twenty messages a second each, to both groups; two consumers take them.`, len(senders()))
	watch, blind := context.WithCancel(ctx)
	t.blind = blind
	t.watching.Go(func() { t.roles.watch(watch) })
	sell, closing := context.WithCancel(ctx)
	t.closing = closing
	t.consumers, t.producers = make(map[string]*pocketmq.Consumer), make(map[string]*pocketmq.Producer)
	for _, name := range accountants() {
		co, err := t.cluster.StartConsumer(ctx, pocketmq.ConsumerConfig{
			Group: billing, InstanceName: name, Subscriptions: map[string]pocketmq.Filter{orders: {}},
			From: pocketmq.FromFirstOffset, Handler: t.account.handle,
		})
		if err != nil {
			return err
		}
		t.consumers[name] = co
	}
	for _, name := range senders() {
		p, err := t.cluster.StartProducer(ctx, pocketmq.ProducerConfig{
			InstanceName: name,
			SendTimeout:  t.story.Clock.Real(3 * time.Second), // RocketMQ's, in cluster time: three attempts of a second
		})
		if err != nil {
			return err
		}
		t.producers[name] = p
		t.selling.Go(func() { t.account.sell(sell, name, p) })
	}
	if err := t.pass(ctx, 5*time.Second); err != nil {
		return err
	}
	if err := t.inSync(ctx, groupA, 2); err != nil {
		return err
	}
	if err := t.inSync(ctx, groupB, 2); err != nil {
		return err
	}
	t.roles.print(t.story, groupA, groupB)
	b := t.account.balance()
	if b.acknowledged == 0 || b.open > 0 {
		return fmt.Errorf("%d sends were acknowledged, %d were not, though all is well: %w", b.acknowledged, b.open, t.account.failure())
	}
	t.story.Checked("%d sends were acknowledged, and none was not", b.acknowledged)
	return nil
}

// kill: the master of a dies.
func (t *stage) kill(ctx context.Context) error {
	t.story.Step("The master of broker-a dies")
	t.story.Say(`As by kill -9. Its connections break, and the name server takes it out of the routes at once. Who sends
		to it hears of that at once, too, and goes to broker-b: sends go on. But nobody may take its place yet: as far
		as the controller knows it may only be cut off, and serve somebody who can still reach it. So the others wait
		for the end of its lease. Then one that has everything is asked to promise a new epoch, and is elected.`)
	t.story.Line("")
	if err := t.strike(groupA, func(m member) error {
		t.roles.mark(m, true, false)
		return t.cluster.Kill(m.group, m.id)
	}); err != nil {
		return err
	}
	t.moment(t.struck, "kill of %v", t.old)
	t.story.At(t.struck, "%v is killed", t.old)
	first, err := t.elected(ctx, groupA)
	if err != nil {
		return err
	}
	others := t.account.acknowledged(groupB, t.struck, first)
	if others == 0 {
		return fmt.Errorf("no send was acknowledged while broker-a had no master")
	}
	t.story.Checked("meanwhile broker-b acknowledged %d sends", others)
	if err := t.pass(ctx, leaseExpire()); err != nil {
		return err
	}
	t.roles.print(t.story, groupA)
	return nil
}

// comeBack: the dead one is started again.
func (t *stage) comeBack(ctx context.Context) error {
	t.story.Step("It comes back")
	t.story.Say(`With its folder. It asks the controller, hears of the new epoch, and follows the new master: what it
		lacks is sent from where the two logs part. What it may have had beyond that, and nobody else, would be cut
		off. Once it has everything it counts as in sync again, and could be elected.`)
	t.story.Line("")
	t.since = t.log.Len()
	begin := t.story.Clock.Now()
	if err := t.cluster.Restart(ctx, t.old.group, t.old.id); err != nil {
		return err
	}
	t.roles.mark(t.old, false, false)
	t.moment(begin, "%v is back", t.old)
	t.story.At(begin, "%v is started again", t.old)
	if err := t.inSync(ctx, groupA, 2); err != nil {
		return err
	}
	followed, ok := find(t.log.Since(t.since), func(e pocketmq.MasterFollowed) bool { return e.Node == t.old.String() })
	if !ok {
		return fmt.Errorf("%v is in sync and has not followed", t.old)
	}
	t.story.At(t.story.Clock.At(followed.Time), "follows %v under epoch %d, from position %d on", member{groupA, followed.ID}, followed.Epoch, followed.Position+1)
	t.story.At(t.story.Clock.Now(), "has everything")
	if is := t.roles.of(t.old); is.does != "slave" {
		return fmt.Errorf("%v is %s, expected a slave", t.old, is.does)
	}
	t.story.Checked("the former master is a slave, and in sync")
	return t.pass(ctx, 3*time.Second)
}

// cutInTwo: the master of b keeps one customer, and loses everybody else.
func (t *stage) cutInTwo(ctx context.Context) error {
	t.story.Step("The network is cut in two")
	t.story.Say(`On one side the master of broker-b and dora; on the other side everybody else: its slaves, the controller,
		the name server, the other clients. Nothing is reset, everything between the two vanishes (Network().Drop;
		Network().Cut would reset connections, and be noticed at once). Now two brokers take themselves for the
		master of broker-b. That does no harm if only one of them answers. Whoever sends to broker-b meanwhile waits
		for an answer before the next message, so broker-a gets less to do, too.`)
	t.story.Line("")
	if err := t.strike(groupB, func(m member) error {
		t.roles.mark(m, false, true)
		t.split(m)
		return nil
	}); err != nil {
		return err
	}
	cut := t.story.Clock.Now() // one link after the other: what began before may have got through
	t.moment(t.struck, "%v and dora are cut off", t.old)
	t.story.At(t.struck, "%v and dora are cut off from everybody else", t.old)
	if _, err := t.elected(ctx, groupB); err != nil {
		return err
	}
	if err := t.pass(ctx, leaseExpire()); err != nil {
		return err
	}
	t.roles.print(t.story, groupB)
	if is := t.roles.of(t.old); is.does != "former" {
		return fmt.Errorf("%v is %s, expected a master whose lease is over", t.old, is.does)
	}

	hers := t.account.since("dora", cut)
	for _, s := range hers {
		if s.err == nil {
			return fmt.Errorf("%s was acknowledged at %s by %s, on the side of the minority", s.message, walk.Seconds(s.end), s.group)
		}
	}
	if len(hers) == 0 {
		return fmt.Errorf("dora has not sent anything")
	}
	t.story.Checked("dora sent %d messages, and none was acknowledged; the last time she heard:", len(hers))
	t.story.Say("%v", hers[len(hers)-1].err)
	t.story.Line("")
	others := t.account.acknowledged(groupB, t.struck, t.story.Clock.Now())
	t.story.Checked("the others had %d sends acknowledged by broker-b", others)

	// What the old master wrote and nobody else has.
	now, ok := t.roles.master(groupB)
	if !ok {
		return fmt.Errorf("broker-b has no master")
	}
	epoch := t.roles.of(now).epoch
	if was := t.roles.of(t.old).epoch; epoch <= was {
		return fmt.Errorf("the new master serves under epoch %d, and the old one had %d", epoch, was)
	}
	t.story.Checked("the new master serves under a higher epoch, %d: by that everybody tells the two apart", epoch)
	return nil
}

// split cuts a broker and dora off from everybody else.
func (t *stage) split(m member) {
	few := []string{m.String(), t.producers["dora"].ClientID()}
	rest := []string{"ns-0", "controller/" + groupA, "controller/" + groupB}
	for _, o := range everyMember() {
		if o != m {
			rest = append(rest, o.String())
		}
	}
	for name, p := range t.producers {
		if name != "dora" {
			rest = append(rest, p.ClientID())
		}
	}
	for _, co := range t.consumers {
		rest = append(rest, co.ClientID())
	}
	for _, a := range few {
		for _, b := range rest {
			t.cluster.Network().Drop(a, b)
		}
	}
}

// heal: the network is whole again.
func (t *stage) heal(ctx context.Context) error {
	t.story.Step("The network is whole again")
	t.story.Say(`The old master has written messages of dora's that nobody else has, and has answered none of them. It hears
		of the higher epoch, becomes a slave, compares the histories of both logs, and cuts off its own where they
		part. Then it copies what it lacks.`)
	t.story.Line("")
	t.since = t.log.Len()
	begin := t.story.Clock.Now()
	t.cluster.Network().HealAll()
	t.roles.mark(t.old, false, false)
	t.moment(begin, "healed")
	t.story.At(begin, "the network is whole")
	if err := t.inSync(ctx, groupB, 2); err != nil {
		return err
	}
	cut, ok := find(t.log.Since(t.since), func(e pocketmq.Truncated) bool { return e.Node == t.old.String() })
	if !ok {
		return fmt.Errorf("%v has cut nothing off", t.old)
	}
	t.story.At(t.story.Clock.At(cut.Time), "%s cuts its log off behind position %d; it went to %d", cut.Node, cut.To, cut.From)
	t.story.At(t.story.Clock.Now(), "has everything")
	t.story.Checked("what the minority had written is gone, as nobody was told that it would stay: %d messages", cut.From-cut.To)
	if err := t.await(ctx, "dora's sends are acknowledged again", func() bool {
		return slices.ContainsFunc(t.account.since("dora", begin), func(s send) bool { return s.err == nil })
	}); err != nil {
		return err
	}
	t.story.Checked("dora's sends are acknowledged again")
	return t.pass(ctx, 3*time.Second)
}

// elect: an operator wants the old order back.
func (t *stage) elect(ctx context.Context) error {
	t.story.Step("An operator chooses")
	t.story.Say(`Cluster.Elect makes a member master that has everything, here broker-a/0, which was it at first. The present
		one promises the new epoch, too, and so nobody has to wait for the end of a lease. (Cluster.ElectUnclean
		would take one that lacks something, and acknowledged messages may be lost by that: for the day on which
		those who have them will not come back.)`)
	t.story.Line("")
	begin, since := t.story.Clock.Now(), t.log.Len()
	if err := t.cluster.Elect(ctx, groupA, 0); err != nil {
		return err
	}
	t.moment(begin, "Elect broker-a/0")
	var e pocketmq.Elected
	if err := t.await(ctx, "broker-a/0 is elected", func() (ok bool) {
		e, ok = find(t.log.Since(since), func(e pocketmq.Elected) bool { return e.Node == member{groupA, 0}.String() })
		return ok
	}); err != nil {
		return err
	}
	at := t.story.Clock.At(e.Time)
	var first time.Duration
	if err := t.await(ctx, "a send is acknowledged by broker-a", func() (ok bool) {
		first, ok = t.account.firstAfter(groupA, at)
		return ok
	}); err != nil {
		return err
	}
	t.story.At(at, "%s is master, epoch %d", e.Node, e.Epoch)
	t.story.At(first, "the next send is acknowledged by broker-a")
	if err := t.inSync(ctx, groupA, 2); err != nil {
		return err
	}
	t.roles.print(t.story, groupA, groupB)
	t.story.Checked("broker-a/0 is master again, and the others follow it")
	return t.pass(ctx, 3*time.Second)
}

// proof: everything acknowledged was consumed.
func (t *stage) proof(ctx context.Context) error {
	t.story.Step("The proof")
	t.closing()
	t.selling.Wait()
	if err := t.await(ctx, "everything that was acknowledged is consumed", func() bool { return len(t.account.lost()) == 0 }); err != nil {
		return fmt.Errorf("%w; lost: %v", err, t.account.lost())
	}
	for _, group := range []string{groupA, groupB} {
		if err := t.inSync(ctx, group, 2); err != nil {
			return err
		}
	}
	t.blind()
	t.watching.Wait()
	b := t.account.balance()
	t.story.Line("")
	t.story.Line("sent               %6d", b.sent)
	t.story.Line("acknowledged       %6d", b.acknowledged)
	t.story.Line("not acknowledged   %6d   %d were stored and not copied in time, %d found nobody; %d of them were consumed all the same", b.open, b.timeouts, b.refused, b.survived)
	t.story.Line("consumed           %6d   %d of them more than once", b.consumed, b.twice)
	t.story.Line("lost               %6d", len(t.account.lost()))
	t.story.Line("")
	if b.never > 0 {
		return fmt.Errorf("%d messages were consumed that nobody has sent", b.never)
	}
	if b.consumed != b.acknowledged+b.survived {
		return fmt.Errorf("consumed are %d, acknowledged %d, and %d of the others", b.consumed, b.acknowledged, b.survived)
	}
	t.story.Checked("everything acknowledged was consumed: lost 0")
	for _, group := range []string{groupA, groupB} {
		if err := t.sameLogs(group); err != nil {
			return err
		}
	}
	t.story.Checked("the logs of the members of each group end at the same position, under the same epoch")
	return nil
}

// sameLogs checks that nobody lacks anything.
func (t *stage) sameLogs(group string) error {
	master, ok := t.roles.master(group)
	if !ok {
		return fmt.Errorf("%s has no master", group)
	}
	want := t.cluster.Broker(master.group, master.id).Status()
	for _, m := range everyMember() {
		if m.group != group {
			continue
		}
		if st := t.cluster.Broker(m.group, m.id).Status(); st.WrittenPosition != want.WrittenPosition || st.Epoch != want.Epoch {
			return fmt.Errorf("%v ends at %d under epoch %d, its master at %d under %d", m, st.WrittenPosition, st.Epoch, want.WrittenPosition, want.Epoch)
		}
	}
	return nil
}

// strike does something to the master of a group.
func (t *stage) strike(group string, act func(member) error) error {
	m, ok := t.roles.master(group)
	if !ok {
		return fmt.Errorf("%s has no master", group)
	}
	t.old, t.since, t.struck = m, t.log.Len(), t.story.Clock.Now()
	return act(m)
}

// elected waits until a group has elected another master and acknowledged a send that
// began after the blow, and returns when.
func (t *stage) elected(ctx context.Context, group string) (first time.Duration, err error) {
	var e pocketmq.Elected
	if err := t.await(ctx, "another master is elected", func() (ok bool) {
		e, ok = find(t.log.Since(t.since), func(e pocketmq.Elected) bool { return e.Node != t.old.String() })
		return ok
	}); err != nil {
		return 0, err
	}
	at := t.story.Clock.At(e.Time)
	t.moment(at, "%s is master", e.Node)
	t.story.At(at, "%s is elected: epoch %d", e.Node, e.Epoch)
	if err := t.await(ctx, "a send is acknowledged by "+group, func() (ok bool) {
		first, ok = t.account.firstAfter(group, at)
		return ok
	}); err != nil {
		return 0, err
	}
	t.story.At(first, "the next send is acknowledged by %s", group)
	limit := leaseExpire() + 2*leaseRenew() // and some calls, whose time does not shrink with the intervals
	if took := at - t.struck; took > limit+t.story.Clock.Slack() {
		return 0, fmt.Errorf("the election took %s, expected: %s at most", walk.Seconds(took), walk.Seconds(limit))
	}
	t.story.Checked("%s had another master after %s; LeaseExpire and twice LeaseRenew are %s", group, walk.Seconds(at-t.struck), walk.Seconds(limit))
	return first, nil
}

// inSync waits until a group has a master with so many slaves in sync, that have
// everything.
func (t *stage) inSync(ctx context.Context, group string, slaves int) error {
	return t.await(ctx, fmt.Sprintf("%d slaves of %s are in sync", slaves, group), func() bool {
		m, ok := t.roles.master(group)
		return ok && len(followers(t.cluster.Broker(m.group, m.id).Status())) == slaves
	})
}

// await waits for something that the account, an event or a look at the members will
// tell: senders send, so there is news all the time. It allows a minute of cluster time.
func (t *stage) await(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, t.story.Clock.Real(time.Minute)+10*time.Second)
	defer cancel()
	for !done() {
		if err := t.story.Clock.Until(ctx, t.story.Clock.Now()+look); err != nil {
			return fmt.Errorf("%s: did not happen: %w", what, err)
		}
	}
	return nil
}

// pass lets time pass.
func (t *stage) pass(ctx context.Context, d time.Duration) error {
	return t.story.Clock.Until(ctx, t.story.Clock.Now()+d)
}

func (t *stage) moment(at time.Duration, format string, args ...any) {
	t.moments = append(t.moments, walk.Moment{At: at, Text: fmt.Sprintf(format, args...)})
}

// find returns the first event of a kind of which match is true.
func find[E pocketmq.Event](events []pocketmq.Event, match func(E) bool) (found E, ok bool) {
	for _, e := range events {
		if e, is := e.(E); is && match(e) {
			return e, true
		}
	}
	return found, false
}
