package ha

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHA06_OnlyWholeRecordsReachTheSlaveWhateverTheLinkDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		n.set(func(n *testNet) { n.piece, n.delay = 1<<10, 20*time.Millisecond })
		m := startMaster(t, newMemLog(), n, 0, func(c *SlavesConfig) { c.TransferBytes = 1 << 10 })
		s := startSlave(t, newMemLog(), n, 1, nil)
		for i := range 40 {
			m.log.write(0, 700, 10<<10)
			time.Sleep(time.Duration(50+7*i) * time.Millisecond)
			requirePrefix(t, m.log, s.log)
			if i%8 == 7 {
				n.cut() // in the middle of a record
			}
		}
		n.set(func(n *testNet) { n.piece, n.delay = 0, 0 })
		time.Sleep(10 * time.Second)
		requireSame(t, m.log, s.log)
	})
}

// requirePrefix checks that all a log has is what another one has there.
func requirePrefix(t testing.TB, want, got *memLog) {
	t.Helper()
	want.mu.Lock()
	defer want.mu.Unlock()
	got.mu.Lock()
	defer got.mu.Unlock()
	require.LessOrEqual(t, len(got.records), len(want.records))
	for i, rec := range got.records {
		require.Equal(t, want.records[i], rec)
	}
}

func TestHA02_ASlaveBehindTheMastersLogBeginsAnew(t *testing.T) {
	build := func(t *testing.T, n *testNet, change func(*ReceiverConfig)) (*testMaster, *testSlave) {
		l := newMemLog()
		m := startMaster(t, l, n, 0, nil)
		m.log.writeMany(0, 20)
		s := startSlave(t, newMemLog(), n, 1, nil)
		synctest.Wait()
		require.EqualValues(t, 20, s.log.end())
		s.stop()
		m.log.writeMany(0, 40)
		m.log.trim(41)
		s.log.confirmed = 0 // as of one that takes nothing back
		return m, startSlave(t, s.log, n, 1, change)
	}
	bubble(t, "where the master's log begins", func(t *testing.T) {
		m, s := build(t, newTestNet(t), nil)
		synctest.Wait()
		requireSame(t, m.log, s.log)
		assert.Equal(t, "state at 41", s.log.begun)
		restarted := eventsOf[Restarted](&s.rec)
		require.Len(t, restarted, 1)
		assert.ErrorIs(t, restarted[0].Err, ErrTooFarBehind)
		restarted[0].Err = nil
		assert.Equal(t, Restarted{From: 20, Position: 41}, restarted[0])
		assert.True(t, lastOf[SlaveConnected](&m.rec).Anew)
	})
	bubble(t, "unless it is to keep what it has", func(t *testing.T) {
		m, s := build(t, newTestNet(t), func(c *ReceiverConfig) { c.KeepOld = true })
		time.Sleep(time.Minute)
		assert.EqualValues(t, 20, s.log.end())
		for _, err := range []error{s.Status().Err, lastOf[SlaveDisconnected](&m.rec).Err} {
			assert.ErrorIs(t, err, ErrTooFarBehind)
			assert.ErrorContains(t, err, "the slave goes on at 21, the master's oldest is 41")
		}
		assert.Len(t, eventsOf[MasterDisconnected](&s.rec), 1, "told once")
	})
	bubble(t, "or something is confirmed that the master does not have", func(t *testing.T) {
		n := newTestNet(t)
		l := newMemLog()
		l.writeMany(3, 50)
		l.trim(41)
		m := startMaster(t, l, n, 4, nil)
		old := newMemLog()
		old.writeMany(1, 45)
		old.confirmed = 44
		s := startSlave(t, old, n, 1, nil)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 45, old.end())
		assert.ErrorIs(t, s.Status().Err, ErrTooFarBehind)
		for _, one := range m.Status().Slaves {
			assert.False(t, one.Connected)
		}
	})
	bubble(t, "while it is being sent the log", func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, func(c *SlavesConfig) { c.TransferBytes = 100 })
		for range 100 {
			m.log.write(0, 100)
		}
		slow := newMemLog()
		slow.set(time.Second, nil)
		s := startSlave(t, slow, n, 1, nil)
		time.Sleep(2500 * time.Millisecond)
		m.log.trim(91)
		time.Sleep(time.Minute)
		assert.ErrorIs(t, eventsOf[SlaveDisconnected](&m.rec)[0].Err, ErrTooFarBehind)
		requireSame(t, m.log, s.log)
		assert.Equal(t, "state at 91", s.log.begun)
	})
}

func TestHA02_ASlaveAheadOfItsMasterIsCutToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		master, slave := newMemLog(), newMemLog()
		master.writeMany(0, 20)
		slave.writeMany(0, 30)
		m := startMaster(t, master, n, 0, nil)
		s := startSlave(t, slave, n, 1, nil)
		synctest.Wait()
		assert.EqualValues(t, 20, slave.end())
		assert.Equal(t, []Truncated{{From: 30, To: 20}}, eventsOf[Truncated](&s.rec))
		m.log.writeMany(0, 20)
		synctest.Wait()
		requireSame(t, master, slave)
	})
}

// Without elections nothing but the records tells that a master has lost its tail, and
// has written others since.
func TestAMasterThatHasLostItsTailAndWroteOnIsFollowed(t *testing.T) {
	for _, c := range []struct{ common, lost, anew int }{{100, 1, 1}, {100, 1, 50}, {100, 40, 7}, {100, 40, 200}, {1, 30, 30}, {0, 30, 30}, {0, 1, 1}} {
		bubble(t, fmt.Sprint(c), func(t *testing.T) {
			n := newTestNet(t)
			master, slave := newMemLog(), newMemLog()
			for range c.common {
				master.write(0, 100)
				slave.write(0, 100)
			}
			for range c.lost {
				slave.write(0, 200)
			}
			for range c.anew {
				master.write(0, 300)
			}
			m := startMaster(t, master, n, 0, nil)
			s := startSlave(t, slave, n, 1, nil)
			time.Sleep(time.Minute)
			if c.common == 0 {
				assert.ErrorIs(t, s.Status().Err, ErrDiverged)
				assert.EqualValues(t, c.lost, slave.end())
				return
			}
			requireSame(t, master, slave)
			cut := lastOf[Truncated](&s.rec)
			assert.LessOrEqual(t, cut.To, int64(c.common))
			assert.GreaterOrEqual(t, cut.To, int64(c.common-min(c.lost, c.anew)), "about as much as had to go")
			m.log.writeMany(0, 3)
			synctest.Wait()
			requireSame(t, master, slave)
			s.stop()
			again := startSlave(t, slave, n, 1, nil)
			synctest.Wait()
			requireSame(t, master, slave)
			assert.Empty(t, eventsOf[Truncated](&again.rec))
		})
	}
}

func TestANewSlaveBeginsWithTheOldestFileOrTheLastOne(t *testing.T) {
	for _, last := range []bool{false, true} {
		bubble(t, fmt.Sprintf("last %v", last), func(t *testing.T) {
			n := newTestNet(t)
			l := newMemLog()
			l.writeMany(0, 55)
			l.trim(11)
			startMaster(t, l, n, 0, nil)
			s := startSlave(t, newMemLog(), n, 1, func(c *ReceiverConfig) { c.FromLastFile = last })
			synctest.Wait()
			requireSame(t, l, s.log)
			first, _ := s.log.Bounds()
			want := int64(11)
			if last {
				want = 51
			}
			assert.Equal(t, want, first)
			assert.Equal(t, fmt.Sprintf("state at %d", want), s.log.begun)
			assert.Equal(t, []Restarted{{From: 0, Position: want}}, eventsOf[Restarted](&s.rec))
			s.stop()
			again := startSlave(t, s.log, n, 1, func(c *ReceiverConfig) { c.FromLastFile = last })
			synctest.Wait()
			assert.Empty(t, eventsOf[Restarted](&again.rec), "only the first time")
		})
	}
}

// The old master comes back with a tail that nobody else has.
func TestATailThatNobodyHasIsCutOnJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		elected, old := newMemLog(), newMemLog()
		for _, l := range []*memLog{elected, old} {
			l.writeMany(1, 10)
		}
		old.writeMany(1, 7) // never acknowledged
		old.confirmed = 9
		m := startMaster(t, elected, n, 2, nil)
		m.log.writeMany(2, 3)
		s := startSlave(t, old, n, 1, nil)
		synctest.Wait()
		requireSame(t, elected, old)
		assert.Equal(t, []Truncated{{From: 17, To: 10, Epoch: 2}}, eventsOf[Truncated](&s.rec))
		assert.Equal(t, []Epoch{{1, 1}, {2, 11}}, old.Epochs())
		assert.EqualValues(t, 2, s.promises.Highest())
	})
}

func TestASlaveKeepsWhatCannotBeTakenBack(t *testing.T) {
	type logs struct{ master, slave *memLog }
	for name, c := range map[string]struct {
		build func(l logs)
		epoch int64
		err   error
	}{
		"confirmed records behind the cut": {func(l logs) {
			l.master.writeMany(1, 5)
			l.slave.writeMany(1, 9)
			l.slave.confirmed = 6
		}, 2, ErrConfirmedMissing},
		"confirmed records, and nothing in common": {func(l logs) {
			l.slave.writeMany(1, 9)
			l.slave.confirmed = 1
		}, 2, ErrConfirmedMissing},
		"without elections, a master that lost all": {func(l logs) {
			l.slave.writeMany(0, 9)
		}, 0, ErrDiverged},
		"no epoch in common": {func(l logs) {
			l.master.writeMany(1, 9)
			l.slave.writeMany(2, 9)
		}, 3, nil}, // both begin at 1: nothing of it is confirmed
		"records that differ under one name": {func(l logs) {
			l.master.write(1, 100, 100, 100)
			l.slave.write(1, 200, 200)
		}, 2, ErrDiverged},
	} {
		bubble(t, name, func(t *testing.T) {
			n := newTestNet(t)
			l := logs{newMemLog(), newMemLog()}
			c.build(l)
			_, before := l.slave.Bounds()
			m := startMaster(t, l.master, n, c.epoch, nil)
			m.log.write(c.epoch, 50)
			s := startSlave(t, l.slave, n, 1, nil)
			time.Sleep(time.Minute)
			assert.ErrorIs(t, s.Status().Err, c.err)
			if c.err == nil {
				requireSame(t, l.master, l.slave)
				return
			}
			assert.Equal(t, before, l.slave.end())
			assert.ErrorIs(t, lastOf[SlaveDisconnected](&m.rec).Err, c.err)
			assert.Empty(t, eventsOf[SlaveConnected](&m.rec))
		})
	}
}

func TestAnEpochIsPromisedBeforeTheFirstAckUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 5, nil)
		m.log.writeMany(5, 3)
		failing := &memPromises{fail: assert.AnError}
		s := startSlave(t, newMemLog(), n, 1, func(c *ReceiverConfig) { c.Promises = failing })
		time.Sleep(time.Minute)
		assert.ErrorIs(t, s.Status().Err, assert.AnError)
		assert.Zero(t, s.log.end())
		assert.Empty(t, eventsOf[SlaveConnected](&m.rec), "no ack without a promise")
		failing.mu.Lock()
		failing.fail = nil
		failing.mu.Unlock()
		time.Sleep(10 * time.Second)
		requireSame(t, m.log, s.log)
		assert.EqualValues(t, 5, failing.Highest())
	})
}

// A promise of a later epoch ends what was acknowledged under the former one, whoever
// makes it, and whenever.
func TestNothingIsAcknowledgedAfterALaterPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 5, nil)
		s := startSlave(t, newMemLog(), n, 1, nil)
		m.log.writeMany(5, 3)
		synctest.Wait()
		s.log.set(time.Second, nil)
		m.log.writeMany(5, 1)
		time.Sleep(time.Millisecond) // it is being written
		require.NoError(t, s.promises.Promise(context.Background(), 6))
		synctest.Wait()
		time.Sleep(2 * time.Second)
		assert.EqualValues(t, 4, s.log.end(), "written it was")
		assert.ErrorIs(t, s.Status().Err, ErrOldEpoch)
		for _, f := range m.Status().Slaves {
			assert.EqualValues(t, 3, f.Acked)
		}
		m.log.writeMany(5, 1)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 4, s.log.end())
		assert.Equal(t, HigherEpoch{Epoch: 6, ID: 1}, lastOf[HigherEpoch](&m.rec))
		m.stop()

		next := startMaster(t, m.log, n, 6, nil)
		s.log.set(0, nil)
		time.Sleep(10 * time.Second)
		requireSame(t, next.log, s.log)
	})
}

func TestASlaveDialsAgainAtLongerAndLongerIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		n.refuse = true
		var mu sync.Mutex
		var tries []time.Duration
		begun := time.Now()
		s := startSlave(t, newMemLog(), n, 1, func(c *ReceiverConfig) {
			c.Dial = func(ctx context.Context) (net.Conn, error) {
				mu.Lock()
				tries = append(tries, time.Since(begun).Round(time.Millisecond))
				mu.Unlock()
				return n.dial(ctx)
			}
		})
		time.Sleep(17 * time.Second)
		mu.Lock()
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 6300 * ms, 11300 * ms, 16300 * ms}, tries)
		mu.Unlock()
		assert.ErrorIs(t, s.Status().Err, errNobody)
		assert.Equal(t, []MasterDisconnected{{Err: s.Status().Err, Retry: 100 * ms}}, eventsOf[MasterDisconnected](&s.rec))
		n.set(func(n *testNet) { n.refuse = false })
		m := startMaster(t, newMemLog(), n, 0, nil)
		time.Sleep(10 * time.Second)
		mu.Lock()
		tries = nil
		mu.Unlock()
		begun = time.Now()
		n.cut()
		m.log.writeMany(0, 3)
		time.Sleep(100 * ms)
		synctest.Wait()
		requireSame(t, m.log, s.log)
		assert.Len(t, eventsOf[MasterDisconnected](&s.rec), 2)
	})
}

func TestASlaveWhoseLogFailsTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, nil)
		s := startSlave(t, newMemLog(), n, 1, nil)
		synctest.Wait()
		s.log.set(0, errors.New("disk full"))
		m.log.writeMany(0, 3)
		time.Sleep(time.Minute)
		assert.ErrorContains(t, s.Status().Err, "ha: writing 1..3 to the log: disk full")
		s.log.set(0, nil)
		time.Sleep(10 * time.Second)
		requireSame(t, m.log, s.log)
	})
}

// A slave that takes long for its disk is behind, alive, and shares each write among
// all that came meanwhile.
func TestASlowSlaveWritesAllThatCameAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, nil)
		s := startSlave(t, newMemLog(), n, 1, nil)
		s.log.set(time.Second, nil)
		for range 1000 {
			m.log.write(0, 100)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		requireSame(t, m.log, s.log)
		assert.Less(t, s.log.batches, 30)
		assert.Empty(t, eventsOf[SlaveDisconnected](&m.rec))
	})
}

func TestALineThatSpoilsBytesLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 0, nil)
		s := startSlave(t, newMemLog(), n, 1, nil)
		for i := range 20 {
			m.log.write(0, 500, 500, 500)
			if i%2 == 0 {
				n.set(func(n *testNet) {
					n.spoil = func(b []byte) {
						b[i*len(b)/20] ^= 1
						n.spoil = nil // once
					}
				})
			}
			time.Sleep(time.Second)
			requirePrefix(t, m.log, s.log)
		}
		time.Sleep(30 * time.Second)
		requireSame(t, m.log, s.log)
		assert.NotEmpty(t, eventsOf[SlaveDisconnected](&m.rec))
	})
}

// tooLarge begins a frame that never ends.
func tooLarge() []byte {
	b := beginFrame(nil, kindData)
	binary.BigEndian.PutUint32(b[4:], math.MaxUint32)
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
	return b
}

// rawMaster answers one slave by hand.
func rawMaster(t testing.TB, l net.Listener) *rawPeer {
	conn, err := l.Accept()
	require.NoError(t, err)
	p := &rawPeer{t, newWire(conn, readBytes, time.Hour, anyFrame)}
	p.read(kindSlaveHello)
	return p
}

func TestASlaveBelievesNoMasterThatContradictsItself(t *testing.T) {
	fine := func() *masterHello {
		return &masterHello{id: 0, epoch: 5, first: 1, end: 10, confirmed: 3, keep: 4, epochs: []Epoch{{4, 1}, {5, 9}}}
	}
	data := func(first, epoch, confirmed, end int64, n int) []byte {
		records := make([][]byte, n)
		for i := range records {
			records[i] = []byte("record")
		}
		return appendData(nil, dataHead{first: first, epoch: epoch, confirmed: confirmed, end: end}, records)
	}
	for name, c := range map[string]struct {
		hello func(h *masterHello)
		data  []byte
		err   error
	}{
		"the same id":                   {func(h *masterHello) { h.id = 1 }, nil, ErrWrongGroup},
		"an id below 0":                 {func(h *masterHello) { h.id = -1 }, nil, ErrWrongGroup},
		"a lower epoch":                 {func(h *masterHello) { h.epoch = 4; h.epochs = h.epochs[:1] }, nil, ErrOldEpoch},
		"a log of a later epoch":        {func(h *masterHello) { h.epochs[1].Number = 6 }, nil, ErrBadEpochs},
		"no epochs":                     {func(h *masterHello) { h.epochs = nil }, nil, ErrBadEpochs},
		"a shorter keep":                {func(h *masterHello) { h.keep = 2 }, nil, ErrBadEpochs},
		"a longer keep":                 {func(h *masterHello) { h.keep = 5 }, nil, ErrBadEpochs},
		"to begin anew":                 {func(h *masterHello) { h.keep, h.begin = 0, 5 }, nil, ErrBadEpochs},
		"to begin anew and to keep":     {func(h *masterHello) { h.begin = 5 }, nil, ErrBadEpochs},
		"another record":                {func(h *masterHello) { h.sums = []recordSum{{4, 1}, {2, 1}} }, nil, ErrDiverged},
		"a shorter log":                 {func(h *masterHello) { h.end, h.keep, h.epochs = 2, 2, h.epochs[:1] }, nil, ErrConfirmedMissing},
		"records behind a gap":          {nil, data(6, 4, 3, 10, 1), ErrBadFrame},
		"records once more":             {nil, data(4, 4, 3, 10, 1), ErrBadFrame},
		"records of no epoch":           {nil, data(5, 3, 3, 10, 1), ErrBadFrame},
		"records of the wrong epoch":    {nil, data(5, 5, 3, 10, 1), ErrBadFrame},
		"records over two epochs":       {nil, data(5, 4, 3, 20, 9), ErrBadFrame},
		"confirmed beyond the end":      {nil, data(5, 4, 11, 10, 1), ErrBadFrame},
		"an end that goes back":         {nil, data(5, 4, 3, 9, 1), ErrBadFrame},
		"a heartbeat behind a gap":      {nil, data(6, 5, 3, 10, 0), ErrBadFrame},
		"a heartbeat of another epoch":  {nil, data(5, 4, 3, 10, 0), ErrBadFrame},
		"an ack":                        {nil, appendAck(nil, ackBody{4, 5}), ErrBadFrame},
		"goodbye without a reason":      {nil, appendGoodbye(nil, goodbye{}), ErrStopped},
		"goodbye with one":              {nil, appendGoodbye(nil, goodbye{reason: reasonStopped}), ErrStopped},
		"a frame larger than agreed to": {nil, tooLarge(), ErrFrameTooLarge},
	} {
		bubble(t, name, func(t *testing.T) {
			n := newTestNet(t)
			own := newMemLog()
			own.writeMany(4, 4)
			own.confirmed = 3
			l := n.listen()
			promises := &memPromises{high: 5}
			s := startSlave(t, own, n, 1, func(cfg *ReceiverConfig) { cfg.Promises = promises })
			p := rawMaster(t, l)
			h := fine()
			if c.hello != nil {
				c.hello(h)
			}
			p.send(appendMasterHello(nil, h))
			if c.data != nil {
				assert.Equal(t, ackBody{4, 5}, must(parseAck(p.read(kindAck))))
				p.send(c.data)
			}
			if name != "goodbye with one" && name != "goodbye without a reason" {
				assert.ErrorIs(t, p.goodbye(), c.err)
			} else {
				_, _, err := p.wire.next(time.Time{})
				assert.Error(t, err)
			}
			synctest.Wait()
			assert.ErrorIs(t, s.Status().Err, c.err)
			assert.EqualValues(t, 4, own.end())
			assert.EqualValues(t, 5, promises.Highest())
		})
	}
	bubble(t, "and one that does not", func(t *testing.T) {
		n := newTestNet(t)
		own := newMemLog()
		own.writeMany(4, 4)
		l := n.listen()
		startSlave(t, own, n, 1, nil)
		p := rawMaster(t, l)
		p.send(appendMasterHello(nil, fine()))
		assert.Equal(t, ackBody{4, 5}, must(parseAck(p.read(kindAck))))
		// All at once, over an epoch's end: two writes, one ack.
		p.send(append(append(data(5, 4, 3, 10, 4), data(9, 5, 8, 10, 2)...), data(11, 5, 9, 10, 0)...))
		assert.Equal(t, ackBody{10, 5}, must(parseAck(p.read(kindAck))))
		assert.Equal(t, []Epoch{{4, 1}, {5, 9}}, own.Epochs())
		assert.Equal(t, 2, own.batches)
		synctest.Wait()
		assert.EqualValues(t, 9, own.Confirmed())
		begun := time.Now()
		assert.Equal(t, ackBody{10, 5}, must(parseAck(p.read(kindAck))), "its heartbeat")
		assert.Equal(t, DefaultHeartbeat, time.Since(begun))
		p.wire.stop(net.ErrClosed)
		_ = p.wire.conn.Close()
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Masters come and go, links do what they want, logs lose their beginnings: once all is
// quiet every log is that of the last master, and what was confirmed to a slave was never
// taken back.
func TestLogsAgreeAfterWhateverHappened(t *testing.T) {
	for range 8 {
		seed := rand.Uint64()
		bubble(t, fmt.Sprintf("seed %d", seed), func(t *testing.T) { agree(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func agree(t *testing.T, r *rand.Rand) {
	n := newTestNet(t)
	logs := []*memLog{newMemLog(), newMemLog(), newMemLog()}
	promises := []*memPromises{{}, {}, {}}
	slaves := make([]*testSlave, 3)
	var m *testMaster
	epoch := int64(0)
	stop := func() {
		if m != nil {
			m.stop()
		}
		for i, s := range slaves {
			if s != nil {
				s.stop()
				slaves[i] = nil
			}
		}
	}
	elect := func() {
		stop()
		epoch++
		best := r.IntN(3)
		for i, l := range logs { // who has all that was confirmed
			if pos(l, logs[best]) > 0 {
				best = i
			}
		}
		promises[best].high = epoch
		m = startMaster(t, logs[best], n, epoch, func(c *SlavesConfig) {
			c.InSync.ID, c.InSync.Acks, c.InSync.MinInSync = int64(best), AckAll, 1
			c.InSync.Set = []Member{{ID: 0}, {ID: 1}, {ID: 2}}
			c.InSync.MaxLag, c.InSync.MaxGone = time.Hour, time.Hour
			c.TransferBytes = 200
		})
		for i := range slaves {
			if i != best {
				slaves[i] = startSlave(t, logs[i], n, int64(i), func(c *ReceiverConfig) { c.Promises = promises[i] })
			}
		}
	}
	elect()
	for range 60 {
		switch r.IntN(10) {
		case 0:
			elect()
		case 1:
			n.cut()
		case 2:
			n.freeze(r.IntN(2) == 0)
		case 3:
			n.set(func(n *testNet) { n.delay = time.Duration(r.IntN(30)) * time.Millisecond })
		case 4:
			n.set(func(n *testNet) { n.piece = 1 + r.IntN(300) })
		case 5:
			at := r.Int()
			n.set(func(n *testNet) { n.spoil = func(b []byte) { b[at%len(b)] ^= 1; n.spoil = nil } })
		case 6:
			n.thaw()
		case 7:
			if first, _ := m.log.Bounds(); m.Confirmed() > first { // only what all have is deleted
				m.log.trim(first + r.Int64N(m.Confirmed()-first))
			}
		default:
			sizes := make([]int, r.IntN(20))
			for i := range sizes {
				sizes[i] = r.IntN(400)
			}
			m.log.write(epoch, sizes...)
		}
		time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
	}
	n.set(func(n *testNet) { n.frozen, n.delay, n.piece, n.spoil = [2]bool{}, 0, 0, nil })
	time.Sleep(time.Minute)
	for i, s := range slaves {
		if s == nil {
			continue
		}
		require.NoError(t, s.Status().Err, "replica %d", i)
		sameEnd(t, m.log, s.log)
	}
	assert.Equal(t, m.log.end(), m.Confirmed())
	stop()
}

// pos compares two logs by last epoch and end, as an election does.
func pos(a, b *memLog) int64 {
	ea, eb := a.Epochs(), b.Epochs()
	if d := ea[len(ea)-1].Number - eb[len(eb)-1].Number; d != 0 {
		return d
	}
	return a.end() - b.end()
}

// sameEnd checks that two logs end with the same records, as far as both have them.
func sameEnd(t testing.TB, a, b *memLog) {
	t.Helper()
	require.Equal(t, a.end(), b.end())
	n := min(len(a.records), len(b.records))
	require.Equal(t, a.records[len(a.records)-n:], b.records[len(b.records)-n:])
}
