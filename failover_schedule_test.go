package pocketmq_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/history"
	"github.com/pocketmq/pocketmq/protocol"
)

// faultKind is something that can be done to a cluster.
type faultKind string

const (
	faultKill          faultKind = "kill"
	faultKillMaster    faultKind = "kill master"
	faultStop          faultKind = "shut down"
	faultClose         faultKind = "close"
	faultRestart       faultKind = "restart"
	faultPowerSpared   faultKind = "power off one of all in sync"
	faultPower         faultKind = "power off"
	faultPowerMaster   faultKind = "power off master"
	faultController    faultKind = "kill controller"
	faultControllerUp  faultKind = "restart controller"
	faultControllerBad faultKind = "controller cannot write"
	faultControllerOK  faultKind = "controller can write"
	faultElect         faultKind = "elect"
	faultStopControl   faultKind = "pause controller"
	faultGoControl     faultKind = "resume controller"
	faultStopNames     faultKind = "pause name server"
	faultGoNames       faultKind = "resume name server"
	faultCut           faultKind = "cut"
	faultOneWay        faultKind = "cut one way"
	faultDrop          faultKind = "drop"
	faultIsolate       faultKind = "isolate"
	faultIsolateMaster faultKind = "isolate master"
	faultPartMaster    faultKind = "part master"
	faultDelay         faultKind = "delay"
	faultHeal          faultKind = "heal"
	faultPause         faultKind = "pause"
	faultPauseMaster   faultKind = "pause master"
	faultResume        faultKind = "resume"
	faultSlow          faultKind = "slow disk"
	faultFull          faultKind = "full disk"
	faultGoodDisk      faultKind = "good disk"
	faultLie           faultKind = "lie to the master"
)

// Groups of faults; what is named twice comes twice as often.
var (
	killing     = []faultKind{faultKill, faultKillMaster, faultKillMaster, faultStop, faultClose, faultRestart, faultRestart, faultRestart, faultRestart}
	spared      = []faultKind{faultPowerSpared, faultPowerSpared, faultPowerSpared, faultPowerSpared, faultPowerSpared, faultPowerSpared, faultHeal, faultHeal, faultRestart, faultRestart, faultRestart, faultRestart}
	powering    = []faultKind{faultPower, faultPower, faultPowerMaster, faultPowerMaster, faultRestart, faultRestart}
	controlling = []faultKind{faultLie, faultPartMaster, faultPartMaster, faultController, faultControllerUp, faultControllerUp, faultControllerUp, faultControllerBad, faultControllerOK, faultControllerOK, faultElect, faultElect, faultStopControl, faultStopControl, faultGoControl, faultGoControl, faultGoControl}
	networking  = []faultKind{faultCut, faultOneWay, faultOneWay, faultDrop, faultIsolate, faultIsolateMaster, faultDelay, faultHeal, faultHeal, faultHeal}
	stalling    = []faultKind{faultPause, faultPauseMaster, faultResume, faultResume, faultSlow, faultFull, faultGoodDisk, faultGoodDisk, faultStopNames, faultGoNames, faultGoNames}
)

// faultState is what is broken now.
type faultState struct {
	down, paused, badDisk map[int64]bool
	controller, cannot    bool
	control, names        bool // the controller, the name server is paused
}

// fault is one step of a schedule: all is drawn before anything happens.
type scheduled struct {
	after    time.Duration
	kind     faultKind
	a, b     int64 // members; b may be the controller, or everybody
	duration time.Duration
}

func (r *historyRun) schedule() []scheduled {
	list := make([]scheduled, 16+r.rnd.IntN(16))
	for i := range list {
		list[i] = scheduled{
			after: time.Duration(r.rnd.Int64N(int64(time.Second))), kind: r.faults[r.rnd.IntN(len(r.faults))],
			a: int64(r.rnd.IntN(len(r.members))), b: int64(r.rnd.IntN(len(r.members)+3)) - 2,
			duration: time.Duration(1+r.rnd.Int64N(300)) * time.Millisecond,
		}
		if r.rnd.IntN(3) == 0 {
			list[i].after *= 8 // time for elections
		}
	}
	return list
}

// node is what a number of a schedule means to the network.
func (r *historyRun) node(n int64) string {
	switch n {
	case -1:
		return "controller/" + historyGroup
	case -2:
		return "ns-0"
	}
	return fmt.Sprintf("%s/%d", historyGroup, n%int64(len(r.members)))
}

// breakThings carries out the schedule.
func (r *historyRun) breakThings(sum *historySum) {
	r.state = faultState{down: make(map[int64]bool), paused: make(map[int64]bool), badDisk: make(map[int64]bool)}
	time.Sleep(r.pace(time.Second))
	for _, s := range r.schedule() {
		time.Sleep(r.pace(s.after))
		at := r.now()
		if done := r.do(s); done != "" {
			if strings.HasPrefix(done, string(s.kind)) { // a lie that nobody believed is none
				sum.did(s.kind)
			}
			r.add(history.Entry{Kind: history.Fault, At: at, Until: r.now(), Text: done})
			if *failoverLog {
				r.t.Logf("%v %s", at, done)
			}
		}
	}
	time.Sleep(r.pace(time.Second))
}

// master is who takes itself for the master, a when nobody does.
func (r *historyRun) master(a int64) int64 {
	for b := range r.cluster.Brokers() {
		if !r.state.down[b.ID()] && b.Role() == pocketmq.RoleMaster {
			return b.ID()
		}
	}
	return a
}

// do carries out a step, and says what it was; "" when there was nothing to do.
func (r *historyRun) do(s scheduled) string {
	c, st, id := r.cluster, &r.state, s.a
	switch s.kind {
	case faultKillMaster, faultPowerMaster, faultIsolateMaster, faultPartMaster, faultPauseMaster:
		id = r.master(s.a)
	}
	var err error
	switch s.kind {
	case faultKill, faultKillMaster, faultStop, faultClose, faultPower, faultPowerMaster, faultPowerSpared:
		if s.kind == faultPowerSpared {
			for n := 0; n < 50 && !r.allInSync(); n++ {
				time.Sleep(r.pace(100 * time.Millisecond))
			}
			if !r.allInSync() {
				return ""
			}
		}
		if st.down[id] {
			return ""
		}
		st.down[id], st.paused[id] = true, false
		if err = r.end(s.kind, id); err != nil && (s.kind == faultStop || s.kind == faultClose) {
			return fmt.Sprintf("%s %d: %v", s.kind, id, err) // the disk is full
		}
	case faultRestart:
		if !st.down[id] {
			return ""
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), r.slack(2*time.Second))
		rerr := c.Restart(ctx, historyGroup, id)
		cancel()
		if rerr != nil { // links are cut, or the disk is full
			return fmt.Sprintf("%s %d: %v", s.kind, id, rerr)
		}
		st.down[id] = false
	case faultController:
		if st.controller {
			return ""
		}
		st.controller, st.control = true, false
		err = c.KillController(historyGroup)
	case faultControllerUp:
		if !st.controller || st.cannot {
			return ""
		}
		st.controller = false
		err = c.RestartController(r.t.Context(), historyGroup)
	case faultControllerBad, faultControllerOK:
		if st.cannot == (s.kind == faultControllerBad) {
			return ""
		}
		st.cannot = !st.cannot
		err = r.controllerWrites(!st.cannot)
	case faultStopControl, faultGoControl:
		if st.controller || st.control == (s.kind == faultStopControl) {
			return ""
		}
		if st.control = !st.control; st.control {
			err = c.PauseController(historyGroup)
		} else {
			err = c.ResumeController(historyGroup)
		}
	case faultStopNames, faultGoNames:
		if st.names == (s.kind == faultStopNames) {
			return ""
		}
		if st.names = !st.names; st.names {
			err = c.PauseNameServer(0)
		} else {
			err = c.ResumeNameServer(0)
		}
	case faultElect:
		if st.controller {
			return ""
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), r.pace(2*time.Second))
		err := c.Elect(ctx, historyGroup, id)
		cancel()
		return fmt.Sprintf("%s %d: %v", s.kind, id, err)
	case faultPause, faultPauseMaster:
		if st.down[id] || st.paused[id] {
			return ""
		}
		st.paused[id] = true
		err = c.Pause(historyGroup, id)
	case faultResume:
		if !st.paused[id] {
			return ""
		}
		st.paused[id] = false
		err = c.Resume(historyGroup, id)
	case faultSlow:
		st.badDisk[id] = true
		err = c.SlowDisk(historyGroup, id, s.duration)
	case faultFull:
		st.badDisk[id] = true
		err = c.FullDisk(historyGroup, id, true)
	case faultLie:
		return r.lie()
	case faultGoodDisk:
		if !st.badDisk[id] {
			return ""
		}
		err = r.goodDisk(id)
	default:
		return r.doLink(s, id)
	}
	require.NoError(r.t, err, "%s: %s %d", r.what(), s.kind, id)
	return fmt.Sprintf("%s %d", s.kind, id)
}

// end lets a member end.
func (r *historyRun) end(kind faultKind, id int64) error {
	switch kind {
	case faultKill, faultKillMaster:
		return r.cluster.Kill(historyGroup, id)
	case faultStop:
		ctx, cancel := context.WithTimeout(r.t.Context(), r.pace(2*time.Second))
		defer cancel()
		return r.cluster.Broker(historyGroup, id).Shutdown(ctx)
	case faultClose:
		return r.cluster.Broker(historyGroup, id).Close()
	}
	return r.cluster.PowerOff(historyGroup, id)
}

// allInSync is whether every member has everything that was acknowledged: one of them may
// lose what it has not synced. The newest master knows; a former one may not know that it
// is that.
func (r *historyRun) allInSync() bool {
	var master *pocketmq.Broker
	for b := range r.cluster.Brokers() {
		if !r.state.down[b.ID()] && b.Role() == pocketmq.RoleMaster && (master == nil || b.Epoch() > master.Epoch()) {
			master = b
		}
	}
	if master == nil {
		return false
	}
	n := 0
	for _, s := range master.Status().Slaves {
		if s.InSync && !r.state.down[s.ID] {
			n++
		}
	}
	return n == r.slaves
}

// doLink does something to a link.
func (r *historyRun) doLink(s scheduled, id int64) string {
	n := r.cluster.Network()
	if n == nil {
		return ""
	}
	a, b := r.node(id), r.node(s.b)
	switch s.kind {
	case faultHeal:
		n.HealAll()
		return "heal"
	case faultIsolate, faultIsolateMaster:
		n.Drop(a, "*")
		return fmt.Sprintf("%s: %s", s.kind, a)
	}
	if a == b && s.kind != faultPartMaster {
		return ""
	}
	switch s.kind {
	case faultPartMaster: // from those who elect: clients and name servers reach it
		n.Drop(a, r.node(-1))
		for _, other := range r.members {
			if other != id && s.b%2 == 0 {
				n.Drop(a, r.node(other))
			}
		}
		return fmt.Sprintf("%s: %s", s.kind, a)
	case faultCut:
		n.Cut(a, b)
	case faultOneWay:
		if s.duration%2 == 0 {
			a, b = b, a
		}
		n.CutOneWay(a, b)
	case faultDrop:
		n.Drop(a, b)
	case faultDelay:
		n.Delay(a, b, s.duration)
	}
	return fmt.Sprintf("%s: %s, %s", s.kind, a, b)
}

// lie lets liars take the places of all slaves: they acknowledge to the master whatever
// it has not sent them. Then the master dies.
func (r *historyRun) lie() string {
	n, id := r.cluster.Network(), r.master(-1)
	if n == nil || id < 0 {
		return ""
	}
	at := ""
	for b := range r.cluster.Brokers() {
		if b.ID() != id {
			n.Cut(r.node(id), r.node(b.ID()))
			at = cmp.Or(b.Status().Master.Addr, at)
		}
	}
	told := 0
	for _, slave := range r.members {
		if slave != id && liar(r, slave, at) {
			told++
		}
	}
	time.Sleep(500 * time.Millisecond)
	if !r.state.down[id] {
		r.state.down[id], r.state.paused[id] = true, false
		require.NoError(r.t, r.cluster.Kill(historyGroup, id), r.what())
	}
	n.HealAll()
	if told == 0 {
		return fmt.Sprintf("%s %d: nobody was taken for a slave", faultKillMaster, id)
	}
	return fmt.Sprintf("%s %d: %d were taken for slaves", faultLie, id, told)
}

// liar connects to a master as one of its slaves, with an empty log, and acknowledges
// more than there is. It is false when the master does not speak with it.
func liar(r *historyRun, id int64, at string) bool {
	ctx, cancel := context.WithTimeout(r.t.Context(), 100*time.Millisecond)
	defer cancel()
	conn, err := r.cluster.Transport().DialStream(ctx, protocol.Dial{Node: "liar", Addr: at})
	if err != nil {
		return false
	}
	be := binary.BigEndian
	frame := func(kind byte, body []byte) []byte {
		table := crc32.MakeTable(crc32.Castagnoli)
		f := be.AppendUint32([]byte{0x70, 0x48, 1, kind}, uint32(len(body)))
		f = be.AppendUint32(f, crc32.Checksum(f, table))
		return append(be.AppendUint32(f, crc32.Checksum(body, table)), body...)
	}
	hello := append(be.AppendUint16(nil, uint16(len("DefaultCluster"))), "DefaultCluster"...)
	hello = append(be.AppendUint16(hello, uint16(len(historyGroup))), historyGroup...)
	for _, v := range []int64{id, 1, 0, 1, 0} { // its life, the highest epoch that it knows of, the bounds of its log
		hello = be.AppendUint64(hello, uint64(v))
	}
	hello = append(hello, 0, 0, 0, 0, 0) // no wishes, no epochs
	answer := make([]byte, 16+16)
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := conn.Write(frame(1, hello)); err != nil {
		return false
	}
	if _, err := io.ReadFull(conn, answer); err != nil || answer[3] != 2 {
		_ = conn.Close()
		return false
	}
	epoch := answer[24:32]
	ack := func(position uint64) error {
		_, err := conn.Write(frame(5, append(be.AppendUint64(nil, position), epoch...)))
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	r.senders.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	r.senders.Go(func() {
		defer conn.Close()
		if ack(0) != nil {
			return
		}
		for range 4 {
			if ack(1<<40) != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
	})
	return true
}

func (r *historyRun) goodDisk(id int64) error {
	r.state.badDisk[id] = false
	if err := r.cluster.SlowDisk(historyGroup, id, 0); err != nil {
		return err
	}
	return r.cluster.FullDisk(historyGroup, id, false)
}

// controllerWrites makes the controller's writes fail, by a folder that is where it
// writes to, or succeed again.
func (r *historyRun) controllerWrites(can bool) error {
	in := filepath.Join(filepath.Dir(r.dirs[0]), "controller", historyGroup+".json.tmp")
	if can {
		return os.RemoveAll(in)
	}
	return os.MkdirAll(filepath.Join(in, "full"), 0o755)
}

// mend ends all faults.
func (r *historyRun) mend() {
	if n := r.cluster.Network(); n != nil {
		n.HealAll()
	}
	st := &r.state
	for _, id := range r.members {
		if st.badDisk[id] {
			require.NoError(r.t, r.goodDisk(id), r.what())
		}
		if st.paused[id] {
			require.NoError(r.t, r.cluster.Resume(historyGroup, id), r.what())
		}
	}
	if st.cannot {
		require.NoError(r.t, r.controllerWrites(true), r.what())
	}
	if st.control {
		require.NoError(r.t, r.cluster.ResumeController(historyGroup), r.what())
	}
	if st.names {
		require.NoError(r.t, r.cluster.ResumeNameServer(0), r.what())
	}
	if st.controller {
		require.NoError(r.t, r.cluster.RestartController(r.t.Context(), historyGroup), r.what())
	}
	for _, id := range r.members {
		if st.down[id] {
			err := r.cluster.Restart(r.t.Context(), historyGroup, id)
			for again := 0; again < 10 && errors.Is(err, pocketmq.ErrUnreachable); again++ { // a machine may be too busy to register in time
				err = r.cluster.Restart(r.t.Context(), historyGroup, id)
			}
			require.NoError(r.t, err, r.what())
		}
	}
	*st = faultState{}
}

// testLogger shows what is logged, with the time since begin.
func testLogger(t *testing.T, begin time.Time) *slog.Logger {
	return slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Duration("at", a.Value.Time().Sub(begin))
			}
			return a
		},
	}))
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(b []byte) (int, error) {
	w.t.Log(string(b[:len(b)-1]))
	return len(b), nil
}
