package ha

import (
	flags "flag"
	"fmt"
	"runtime/debug"
	"testing"
	"time"
)

var (
	simSeed  = flags.Uint64("ha.seed", 1, "first seed of the simulator")
	simCount = flags.Int("ha.count", 200, "how many seeds the simulator runs")
	simGuard = flags.Int("ha.guard", 0, "the only guard to take away, by number; 0: each")
	simTrace = flags.Bool("ha.trace", false, "print what happens")
)

// simFor is the configuration that a seed chooses.
func simFor(seed uint64, g guard) simConfig {
	return simConfig{
		replicas: 3 + int(seed%3), minInSync: 2, syncAcks: seed/3%2 == 0, leaseless: seed/6%2 == 0, guard: g,
		lease: time.Second, renew: 200 * time.Millisecond, maxLag: 600 * time.Millisecond, maxGone: 100 * time.Millisecond,
	}
}

// runSeed is one random run: trouble for some seconds, then quiet, in which a master
// must come, and everybody in sync.
func runSeed(seed uint64, cfg simConfig) *sim {
	s := newSim(seed, cfg)
	s.at(0, nil, -1, s.senders)
	s.at(600*ms, nil, -1, s.trouble)
	s.runFor(time.Duration(4+s.rng.IntN(6)) * time.Second)
	if s.violated != nil {
		return s
	}
	s.calmDown()
	if s.violated != nil || !s.electable() {
		return s
	}
	// The promise to those who wait: with every link whole and everybody up.
	within := cfg.lease + 2*cfg.renew
	if !s.until(within, func() bool { return s.master() != nil }) && s.electable() {
		s.fail("P: nobody is master %v after the trouble ended", within)
		return s
	}
	from := s.now
	settled := func() bool {
		m := s.master()
		if m == nil || s.lastOK <= from {
			return false
		}
		if set, _ := m.in.Set(); len(set) != len(s.nodes) {
			return false
		}
		return true
	}
	if !s.until(3*cfg.lease, settled) && s.electable() {
		s.fail("P: not everybody is in sync %v after the trouble ended", 3*cfg.lease)
	}
	return s
}

func (s *sim) calmDown() {
	s.trace("quiet")
	s.quiet = true
	clear(s.cut)
	s.ctl.failNext, s.ctl.crashes = false, false
	if !s.ctl.up {
		s.startController()
	}
	s.resume(s.ctl)
	for _, n := range s.nodes {
		n.slow = 0
		if !n.up {
			s.start(n)
		}
		s.resume(n)
	}
}

// senders call whoever says that it is master.
func (s *sim) senders() {
	n := s.nodes[s.rng.IntN(len(s.nodes))]
	for k := 0; n.in == nil && k < len(s.nodes); k++ {
		n = s.nodes[(int(n.id)+1)%len(s.nodes)]
	}
	for range 1 + s.rng.IntN(3) {
		s.write(n, s.rng.IntN(5) > 0)
	}
	s.at(int64(5+s.rng.IntN(40))*ms, nil, -1, s.senders)
}

// trouble makes one thing go wrong, and the next one soon after.
func (s *sim) trouble() {
	if s.quiet {
		return
	}
	n := s.nodes[s.rng.IntN(len(s.nodes))]
	if m := s.master(); m != nil && s.rng.IntN(3) == 0 {
		n = m
	}
	later := func(limit int, do func()) { s.at(int64(s.rng.IntN(limit))*ms, nil, -1, do) }
	restart := func(limit int) {
		later(limit, func() {
			if !n.up {
				s.start(n)
			}
		})
	}
	kind := s.rng.IntN(27)
	if kind == 7 && s.cfg.unled && len(s.served) == 0 {
		kind = 0 // what only one has is lost with its disk, elections or not
	}
	switch kind {
	case 0, 1, 2:
		s.kill(n)
		restart(1500)
	case 3, 4:
		s.powerOff(n)
		restart(1500)
	case 5:
		s.kill(n)
		restart(20)
	case 6:
		s.powerOff(n)
		restart(20)
	case 7:
		s.wipe(n)
		restart(500)
	case 8, 9:
		s.pause(n)
		later(2500, func() { s.resume(n) })
	case 10, 11, 12, 13:
		s.cutRandomly(n, later)
	case 14:
		s.kill(s.ctl)
		later(800, func() {
			if !s.ctl.up {
				s.startController()
			}
		})
	case 15:
		s.kill(s.ctl)
		s.startController()
	case 16:
		s.ctl.failNext = true
	case 17:
		s.ctl.crashes = true
		later(1500, func() {
			if !s.ctl.up {
				s.startController()
			}
		})
	case 18:
		n.slow = int64(s.rng.IntN(400)) * ms
		later(2000, func() { n.slow = 0 })
	case 19:
		s.pause(s.ctl)
		later(1500, func() { s.resume(s.ctl) })
	case 20:
		s.designate(n.id, false)
	case 25, 26:
		// Answers that look at no lease are not what an unclean election can end.
		if !s.cfg.leaseless {
			if epoch := s.designate(n.id, true); epoch > 0 && s.rng.IntN(2) == 0 {
				later(600, func() { s.withdraw(n.id, epoch) })
			}
		}
	case 22, 23:
		// The master cannot hear the controller, and an operator wants another one.
		if m := s.master(); m != nil {
			s.cut[[2]int64{NoReplica, m.id}] = true
			s.trace("cut %v", [2]int64{NoReplica, m.id})
			later(2500, func() { delete(s.cut, [2]int64{NoReplica, m.id}) })
			later(300, func() {
				s.designate(n.id, false)
			})
		}
	case 24:
		// A slave that lies.
		if m := s.master(); m != nil && m.out[n.id] != nil {
			lie := m.disk.end() + int64(s.rng.IntN(40)) - 5
			s.trace("node %d claims to have %d of %d", n.id, lie, m.disk.end())
			if lie > m.disk.end() {
				m.acked(n.id, m.out[n.id].conn, m.epoch, lie)
			}
		}
	case 21:
		if n.up && !n.paused {
			s.trace("node %d resigns", n.id)
			n.ready(n.r.Resign(n.clock()))
		}
	}
	s.at(int64(20+s.rng.IntN(700))*ms, nil, -1, s.trouble)
}

// cutRandomly cuts links of a node, in one direction or both, for a while.
func (s *sim) cutRandomly(n *simNode, later func(int, func())) {
	kind := s.rng.IntN(4)
	var gone [][2]int64
	cut := func(from, to int64) {
		if from != to {
			gone = append(gone, [2]int64{from, to})
			s.cut[[2]int64{from, to}] = true
		}
	}
	other := s.nodes[s.rng.IntN(len(s.nodes))].id
	switch kind {
	case 0:
		cut(n.id, other)
	case 1:
		cut(n.id, NoReplica)
		cut(NoReplica, n.id)
	case 2:
		if s.rng.IntN(2) == 0 {
			cut(n.id, NoReplica)
		} else {
			cut(NoReplica, n.id)
		}
	case 3:
		for _, m := range s.nodes {
			cut(n.id, m.id)
			cut(m.id, n.id)
		}
	}
	s.trace("cut %v", gone)
	later(3000, func() {
		for _, l := range gone {
			delete(s.cut, l)
		}
		s.trace("healed %v", gone)
	})
}

func TestSimulatorFindsNothing(t *testing.T) {
	if mutating {
		t.Skip("guards are taken away in this build")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // small worlds, soon gone
	var oks, alone, unknown, elections, unclean, stuck int
	for seed := *simSeed; seed < *simSeed+uint64(*simCount); seed++ {
		cfg := simFor(seed, guardNone)
		if *simTrace {
			cfg.trace = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
		}
		s := runSeed(seed, cfg)
		if s.violated != nil {
			t.Fatalf("seed %d: %v\nrepeat with: go test ./ha -run TestSimulatorFindsNothing -ha.seed %d -ha.count 1 -ha.trace", seed, s.violated, seed)
		}
		oks, alone, unknown, elections = oks+s.oks, alone+s.oksAsync, unknown+s.unknown, elections+s.elections
		unclean += len(s.lossEpochs)
		if !s.electable() {
			stuck++
		}
	}
	t.Logf("%d seeds: %d answered, %d alone, %d unknown, %d elections, %d of them unclean; %d ended with nobody clean in the set", *simCount, oks, alone, unknown, elections, unclean, stuck)
}
