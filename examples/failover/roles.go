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

// look is how often the members are looked at.
const look = 100 * time.Millisecond

// member is a broker of the cluster.
type member struct {
	group string
	id    int64
}

func (m member) String() string { return fmt.Sprintf("%s/%d", m.group, m.id) }

// everyMember lists the members of all groups.
func everyMember() (list []member) {
	for _, group := range []string{groupA, groupB} {
		for id := range int64(members) {
			list = append(list, member{group, id})
		}
	}
	return list
}

// role is what a member does.
type role struct {
	does  string // "master", "former" (takes itself for it, and may not answer), "slave", "none", "down"
	epoch int64
	cut   bool // it is cut off from the others
}

// span is a role from when till when.
type span struct {
	role
	from, till time.Duration
}

// roles watches who does what. Safe for concurrent use.
type roles struct {
	clock   walk.Clock
	cluster *pocketmq.Cluster

	mu    sync.Mutex // guards the fields below
	down  map[member]bool
	cut   map[member]bool
	spans map[member][]span
	late  time.Duration // most that a look has come late
}

func newRoles(clock walk.Clock, cluster *pocketmq.Cluster) *roles {
	return &roles{clock: clock, cluster: cluster, down: make(map[member]bool), cut: make(map[member]bool), spans: make(map[member][]span)}
}

// watch looks at everybody again and again, until ctx ends.
func (r *roles) watch(ctx context.Context) {
	ticker := time.NewTicker(max(r.clock.Real(look), time.Microsecond))
	defer ticker.Stop()
	for {
		begin := r.clock.Now()
		r.look()
		select {
		case <-ticker.C:
			r.mu.Lock()
			r.late = max(r.late, r.clock.Now()-begin-look)
			r.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

func (r *roles) look() {
	now := r.clock.Now()
	for _, m := range everyMember() {
		is := r.of(m)
		r.mu.Lock()
		list := r.spans[m]
		if n := len(list); n > 0 {
			list[n-1].till = now
			if list[n-1].role == is {
				r.mu.Unlock()
				continue
			}
		}
		r.spans[m] = append(list, span{is, now, now})
		r.mu.Unlock()
	}
}

// of tells what a member does now.
func (r *roles) of(m member) role {
	r.mu.Lock()
	is := role{does: "down", cut: r.cut[m]}
	down := r.down[m]
	r.mu.Unlock()
	if down {
		return is
	}
	st := r.cluster.Broker(m.group, m.id).Status()
	is.epoch = st.Epoch
	switch {
	case st.Role == pocketmq.RoleMaster && st.Writable:
		is.does = "master"
	case st.Role == pocketmq.RoleMaster:
		is.does = "former"
	case st.Role == pocketmq.RoleSlave && st.Master.Connected:
		is.does = "slave"
	default:
		is.does = "none"
	}
	return is
}

// latest is by how much a look has come late, at most.
func (r *roles) latest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// master returns who is master of a group: of two the one under the higher epoch.
func (r *roles) master(group string) (found member, ok bool) {
	var epoch int64
	for _, m := range everyMember() {
		if is := r.of(m); m.group == group && is.does == "master" && is.epoch > epoch {
			found, epoch, ok = m, is.epoch, true
		}
	}
	return found, ok
}

// mark notes what befalls a member.
func (r *roles) mark(m member, down, cut bool) {
	r.mu.Lock()
	r.down[m], r.cut[m] = down, cut
	r.mu.Unlock()
	r.look()
}

// history returns what a member did when.
func (r *roles) history(m member) []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans[m])
}

// print prints what the members of some groups do now.
func (r *roles) print(s *walk.Story, groups ...string) {
	s.Line("")
	s.Line("%-12s %-8s %7s %9s %10s", "", "role", "epoch", "written", "in sync")
	for _, m := range everyMember() {
		if !slices.Contains(groups, m.group) {
			continue
		}
		is := r.of(m)
		if is.does == "down" {
			s.Line("%-12s %-8s", m, is.does)
			continue
		}
		st := r.cluster.Broker(m.group, m.id).Status()
		inSync := ""
		if is.does == "master" {
			inSync = fmt.Sprint(1 + len(followers(st)))
		}
		s.Line("%-12s %-8s %7d %9d %10s", m, is.does, is.epoch, st.WrittenPosition, inSync)
	}
	s.Line("")
}

// followers lists the slaves that are in sync, as their master sees it.
func followers(st pocketmq.BrokerStatus) (ids []int64) {
	for _, s := range st.Slaves {
		if s.InSync {
			ids = append(ids, s.ID)
		}
	}
	return ids
}
