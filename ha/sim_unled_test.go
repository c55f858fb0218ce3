package ha

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"testing"
	"time"
)

// A world may begin with a group that has replicated without elections: node 0 was its
// master over some lives, answered alone, lost power now and then, and slaves copied what
// they could. In it the controller may also lose its state.

// unled makes the disks of such a group.
func (s *sim) unled() {
	master := s.nodes[0]
	d := &master.disk
	lives := 1 + s.rng.IntN(4)
	for life := range lives {
		if epoch := d.lastEpoch(); epoch > 0 || s.rng.IntN(2) == 0 {
			d.epochs = append(d.epochs, Epoch{max(epoch, d.unelected) + 1, d.end() + 1})
			d.unelected = d.lastEpoch()
		}
		for _, n := range s.nodes[1:] {
			if d.lastEpoch() > 0 && s.rng.IntN(3) > 0 {
				n.copyFrom(d, -1) // what it has beyond is cut
			}
		}
		for range s.rng.IntN(20) {
			s.nextRecord++
			d.log = append(d.log, &simRecord{id: s.nextRecord, epoch: d.lastEpoch()})
		}
		for _, n := range s.nodes[1:] {
			if n.disk.unelected == d.unelected && d.unelected > 0 {
				n.copyFrom(d, s.rng.IntN(20))
			}
		}
		if s.rng.IntN(3) > 0 {
			continue
		}
		// The master loses power, and the end of its log.
		had := d.log
		d.cut(max(d.end()-int64(s.rng.IntN(8)), d.epochFirst()-1), false)
		if life == lives-1 || s.rng.IntN(2) == 0 {
			s.noteAhead(had)
			break // it does not come back before the group elects
		}
	}
	for k, rec := range d.log {
		s.answered[int64(k)+1] = rec
	}
	for _, n := range s.nodes {
		n.disk.synced = len(n.disk.log)
		n.markDurable(0)
	}
}

// epochFirst is where the last epoch of a disk begins.
func (d *simDisk) epochFirst() int64 {
	if len(d.epochs) == 0 {
		return 1
	}
	return d.epochs[len(d.epochs)-1].First
}

// copyFrom makes a slave follow a master, and copy so many records.
func (n *simNode) copyFrom(master *simDisk, count int) {
	d := &n.disk
	d.unelected = max(d.unelected, master.unelected)
	keep, err := Diverge(master.history(), 1, master.end(), d.history(), d.end())
	if err != nil {
		n.s.fail("node %d does not follow: %v", n.id, err)
		return
	}
	d.cut(keep, true)
	for ; count > 0 && d.end() < master.end(); count-- {
		rec := master.log[d.end()]
		if rec.epoch != d.lastEpoch() {
			d.epochs = append(d.epochs, Epoch{rec.epoch, d.end() + 1})
		}
		d.log = append(d.log, rec)
	}
}

// noteAhead notes that slaves have answered records that the master has lost: they count.
func (s *sim) noteAhead(had []*simRecord) {
	for _, n := range s.nodes[1:] {
		if n.disk.lastEpoch() != s.nodes[0].disk.lastEpoch() || n.disk.end() <= s.nodes[0].disk.end() {
			continue
		}
		s.ahead = true
		for k := s.nodes[0].disk.end(); k < n.disk.end(); k++ {
			s.answered[k+1] = had[k]
		}
	}
}

// loseState takes the controller's file away.
func (s *sim) loseState() {
	if s.quiet {
		return
	}
	s.trace("the controller loses its state")
	s.kill(s.ctl)
	s.ctl.stored = nil
	s.startController()
	s.at(int64(s.rng.IntN(3000))*ms, nil, -1, s.operate)
}

// operate is an operator who sees what there is, and has somebody elected.
func (s *sim) operate() {
	if s.quiet || !s.ctl.up || s.ctl.c.Stuck() == "" || s.cfg.leaseless {
		return
	}
	s.designate(s.longest(), true)
}

// longest is who has the longest log.
func (s *sim) longest() (id int64) {
	best := &s.nodes[0].disk
	for _, n := range s.nodes {
		if cmp.Or(cmp.Compare(n.disk.lastEpoch(), best.lastEpoch()), cmp.Compare(n.disk.end(), best.end())) > 0 {
			id, best = n.id, &n.disk
		}
	}
	return id
}

// runUnled is as runSeed, with a group that has replicated before, and a controller that
// may lose its state.
func runUnled(seed uint64, cfg simConfig) *sim {
	cfg.unled = true
	s := newSim(seed, cfg)
	s.at(0, nil, -1, s.senders)
	s.at(int64(s.rng.IntN(900))*ms, nil, -1, s.trouble)
	for range s.rng.IntN(3) {
		if !cfg.leaseless { // else nobody could end that
			s.at(int64(s.rng.IntN(6000))*ms, nil, -1, s.loseState)
		}
	}
	s.runFor(time.Duration(4+s.rng.IntN(6)) * time.Second)
	if s.violated != nil {
		return s
	}
	s.calmDown()
	within := cfg.lease + 2*cfg.renew
	known := func() bool { return s.ctl.c.Stuck() != "" || s.ctl.c.Lost() == 0 && s.ctl.c.State().Epoch > 0 }
	if !s.until(within, known) {
		s.fail("P: the roll call has not ended %v after the trouble", within)
		return s
	}
	if s.ctl.c.Stuck() == RefusedBehind && !s.ahead {
		s.fail("P: node 0 has all that the others have, and does not begin")
		return s
	}
	if s.ctl.c.Stuck() != "" || !s.electable() {
		if cfg.leaseless {
			return s
		}
		s.designate(s.longest(), true)
	}
	if !s.until(within+cfg.lease/5, func() bool { return s.master() != nil }) && s.electable() {
		s.fail("P: nobody is master %v after the trouble ended", within)
		return s
	}
	from := s.now
	settled := func() bool {
		m := s.master()
		if m == nil || s.lastOK <= from {
			return false
		}
		set, _ := m.in.Set()
		return len(set) == len(s.nodes)
	}
	if !s.until(3*cfg.lease, settled) && s.electable() {
		s.fail("P: not everybody is in sync %v after the trouble ended", 3*cfg.lease)
	}
	return s
}

func TestSimulatorOfGroupsThatBeginFindsNothing(t *testing.T) {
	if mutating {
		t.Skip("guards are taken away in this build")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // small worlds, soon gone
	var oks, elections, unclean, behind int
	for seed := *simSeed; seed < *simSeed+uint64(*simCount); seed++ {
		cfg := simFor(seed, guardNone)
		if *simTrace {
			cfg.trace = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
		}
		s := runUnled(seed, cfg)
		if s.violated != nil {
			t.Fatalf("seed %d: %v\nrepeat with: go test ./ha -run TestSimulatorOfGroups -ha.seed %d -ha.count 1 -ha.trace", seed, s.violated, seed)
		}
		oks, elections, unclean = oks+s.oks+s.oksAsync, elections+s.elections, unclean+len(s.lossEpochs)
		if s.ahead {
			behind++
		}
	}
	t.Logf("%d seeds: %d answered, %d elections, %d of them unclean; %d began with a slave that had more than its master", *simCount, oks, elections, unclean, behind)
}
