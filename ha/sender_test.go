package ha

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rawPeer speaks frames by hand.
type rawPeer struct {
	t    testing.TB
	wire *wire
}

func anyFrame(frameKind) int { return 1 << 20 }

func rawSlave(t testing.TB, n *testNet) *rawPeer {
	conn, err := n.dial(context.Background())
	require.NoError(t, err)
	return &rawPeer{t, newWire(conn, readBytes, time.Hour, anyFrame)}
}

func (p *rawPeer) send(b []byte) { require.NoError(p.t, p.wire.write(b, time.Hour)) }

func (p *rawPeer) read(want frameKind) []byte {
	kind, body, err := p.wire.next(time.Time{})
	require.NoError(p.t, err)
	require.Equal(p.t, want, kind)
	return body
}

// goodbye is why the other side ends the connection.
func (p *rawPeer) goodbye() error {
	for {
		kind, body, err := p.wire.next(time.Time{})
		if err != nil {
			return err
		}
		if kind == kindGoodbye {
			g, err := parseGoodbye(body)
			require.NoError(p.t, err)
			require.NoError(p.t, p.wire.conn.Close())
			return refusedBy("peer", g)
		}
	}
}

func helloOf(id int64) *slaveHello {
	return &slaveHello{cluster: "c", group: "g", id: id, first: 1}
}

// follow makes a slave with an empty log that has everything.
func (p *rawPeer) follow(h *slaveHello, epoch int64) {
	p.send(appendSlaveHello(nil, h))
	p.read(kindMasterHello)
	p.send(appendAck(nil, ackBody{0, epoch}))
	p.read(kindData)
}

func TestHA01_FalseAcksCountForNothing(t *testing.T) {
	for name, lie := range map[string]func(end int64) []ackBody{
		"beyond the end":         func(end int64) []ackBody { return []ackBody{{end + 1<<20, 3}} },
		"one beyond the end":     func(end int64) []ackBody { return []ackBody{{end + 1, 3}} },
		"the largest":            func(int64) []ackBody { return []ackBody{{math.MaxInt64, 3}} },
		"below 0":                func(int64) []ackBody { return []ackBody{{-1, 3}} },
		"going back":             func(end int64) []ackBody { return []ackBody{{end, 3}, {end - 1, 3}} },
		"under a former epoch":   func(end int64) []ackBody { return []ackBody{{end, 2}} },
		"under an epoch to come": func(end int64) []ackBody { return []ackBody{{end, 4}} },
	} {
		bubble(t, name, func(t *testing.T) {
			n := newTestNet(t)
			m := startMaster(t, newMemLog(), n, 3, func(c *SlavesConfig) {
				c.InSync.Acks, c.InSync.InSyncReplicas = AckCount, 2
			})
			end := m.log.writeMany(3, 10)
			liar := rawSlave(t, n)
			liar.follow(helloOf(1), 3)
			for _, a := range lie(end) {
				liar.send(appendAck(nil, a))
			}
			err := liar.goodbye()
			if a := lie(end)[0]; a.epoch != 3 {
				assert.ErrorIs(t, err, ErrOldEpoch)
			} else {
				assert.ErrorIs(t, err, ErrImpossibleAck)
			}
			synctest.Wait()
			assert.Equal(t, errors.Is(err, ErrOldEpoch), errors.Is(lastOf[SlaveDisconnected](&m.rec).Err, ErrOldEpoch))

			p := m.log.writeMany(3, 1)
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			assert.Error(t, m.Wait(ctx, p), "nobody has it")
			s := startSlave(t, newMemLog(), n, 1, nil)
			synctest.Wait()
			requireSame(t, m.log, s.log)
			assert.NoError(t, m.Wait(context.Background(), p))
		})
	}
}

func TestHA01_TheFirstAckIsTheEndThatWasAgreed(t *testing.T) {
	for _, first := range []int64{-1, 1, 10, math.MaxInt64} {
		bubble(t, "", func(t *testing.T) {
			n := newTestNet(t)
			m := startMaster(t, newMemLog(), n, 3, nil)
			m.log.writeMany(3, 10)
			liar := rawSlave(t, n)
			liar.send(appendSlaveHello(nil, helloOf(1)))
			liar.read(kindMasterHello)
			liar.send(appendAck(nil, ackBody{first, 3}))
			assert.ErrorIs(t, liar.goodbye(), ErrImpossibleAck)
			assert.Empty(t, eventsOf[SlaveConnected](&m.rec))
		})
	}
}

func TestHA01_ThreeBytesAndSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 3, nil)
		m.log.writeMany(3, 10)
		liar := rawSlave(t, n)
		begun := time.Now()
		liar.send([]byte{0x70, 0x48, 1})
		assert.ErrorIs(t, liar.goodbye(), ErrSilent)
		assert.Equal(t, DefaultHousekeeping, time.Since(begun))
		// However it drips: the hello as a whole has the housekeeping time.
		liar = rawSlave(t, n)
		begun = time.Now()
		hello := appendSlaveHello(nil, helloOf(1))
		for i := range hello {
			if liar.wire.write(hello[i:i+1], time.Second) != nil {
				break
			}
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, time.Since(begun), DefaultHousekeeping+3*time.Second)
		assert.ErrorIs(t, lastOf[SlaveDisconnected](&m.rec).Err, ErrSilent)
		s := startSlave(t, newMemLog(), n, 1, nil)
		synctest.Wait()
		requireSame(t, m.log, s.log)
	})
}

func TestAMasterRefusesSlavesThatAreNotItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*slaveHello)
		err    error
	}{
		"of another group":       {func(h *slaveHello) { h.group = "other" }, ErrWrongGroup},
		"of another cluster":     {func(h *slaveHello) { h.cluster = "other" }, ErrWrongGroup},
		"with the master's id":   {func(h *slaveHello) { h.id = 0 }, ErrWrongGroup},
		"with an id below 0":     {func(h *slaveHello) { h.id = -1 }, ErrWrongGroup},
		"of a later epoch":       {func(h *slaveHello) { h.highest = 4 }, ErrOldEpoch},
		"that begin nowhere":     {func(h *slaveHello) { h.first = 0 }, ErrBadEpochs},
		"that end before":        {func(h *slaveHello) { h.first, h.end = 10, 3 }, ErrBadEpochs},
		"with foreign beginning": {func(h *slaveHello) { h.end, h.epochs = 5, []Epoch{{1, 3}} }, ErrBadEpochs},
		"without epochs":         {func(h *slaveHello) { h.end = 5 }, ErrDiverged},
		"that have diverged":     {func(h *slaveHello) { h.end, h.epochs = 5, []Epoch{{9, 1}} }, ErrDiverged},
		"with a bad history":     {func(h *slaveHello) { h.end, h.epochs = 5, []Epoch{{2, 1}, {1, 3}} }, ErrBadEpochs},
	} {
		bubble(t, name, func(t *testing.T) {
			n := newTestNet(t)
			m := startMaster(t, newMemLog(), n, 3, nil)
			m.log.writeMany(3, 10)
			p := rawSlave(t, n)
			h := helloOf(1)
			c.change(h)
			p.send(appendSlaveHello(nil, h))
			err := p.goodbye()
			assert.ErrorIs(t, err, c.err)
			synctest.Wait()
			assert.ErrorIs(t, lastOf[SlaveDisconnected](&m.rec).Err, c.err)
			if c.err == ErrOldEpoch {
				assert.Equal(t, []HigherEpoch{{Epoch: 4, ID: 1}}, eventsOf[HigherEpoch](&m.rec))
			}
			assert.Empty(t, m.Status().Slaves)
		})
	}
}

func TestAMasterClosesConnectionsOfOtherProtocols(t *testing.T) {
	hello := func(change func([]byte)) []byte {
		b := appendSlaveHello(nil, helloOf(1))
		change(b)
		binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
		return b
	}
	for name, c := range map[string]struct {
		bytes []byte
		err   error
	}{
		"HTTP":              {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ErrBadFrame},
		"a wrong checksum":  {hello(func(b []byte) { b[len(b)-1]++ }), ErrBadFrame},
		"another version":   {hello(func(b []byte) { b[2]++ }), ErrVersion},
		"a hello too large": {hello(func(b []byte) { binary.BigEndian.PutUint32(b[4:], maxHelloBytes+1) }), ErrFrameTooLarge},
		"an ack at once":    {appendAck(nil, ackBody{0, 3}), ErrBadFrame},
		"an empty hello":    {endFrame(beginFrame(nil, kindSlaveHello), 0), ErrBadFrame},
	} {
		bubble(t, name, func(t *testing.T) {
			n := newTestNet(t)
			m := startMaster(t, newMemLog(), n, 3, nil)
			p := rawSlave(t, n)
			p.send(c.bytes)
			assert.ErrorIs(t, p.goodbye(), c.err)
			synctest.Wait()
			gone := lastOf[SlaveDisconnected](&m.rec)
			assert.ErrorIs(t, gone.Err, c.err)
			assert.EqualValues(t, -1, gone.ID)
		})
	}
	bubble(t, "a hello, then another one", func(t *testing.T) {
		n := newTestNet(t)
		startMaster(t, newMemLog(), n, 3, nil)
		p := rawSlave(t, n)
		p.follow(helloOf(1), 3)
		p.send(appendSlaveHello(nil, helloOf(1)))
		assert.ErrorIs(t, p.goodbye(), ErrBadFrame)
	})
	bubble(t, "a slave that says goodbye", func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 3, nil)
		p := rawSlave(t, n)
		p.follow(helloOf(1), 3)
		p.send(appendGoodbye(nil, goodbye{reasonOldEpoch, "I promised 4"}))
		synctest.Wait()
		gone := lastOf[SlaveDisconnected](&m.rec)
		assert.ErrorIs(t, gone.Err, ErrOldEpoch)
		assert.ErrorContains(t, gone.Err, "I promised 4")
	})
}

// What a slave does not read holds up nobody but itself, and not for ever.
func TestASlaveThatReadsNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 3, nil)
		other := startSlave(t, newMemLog(), n, 2, nil)
		p := rawSlave(t, n)
		p.follow(helloOf(1), 3)
		for range 100 { // much more than the link holds
			m.log.write(3, 10_000)
		}
		synctest.Wait()
		requireSame(t, m.log, other.log)
		begun := time.Now()
		for m.Status().Slaves[0].ID == 1 {
			time.Sleep(time.Second)
			if p.wire.write(appendAck(nil, ackBody{0, 3}), time.Second) != nil { // alive it is
				break
			}
		}
		assert.Equal(t, DefaultHousekeeping, time.Since(begun).Truncate(5*time.Second))
		time.Sleep(2 * time.Second)
		assert.ErrorIs(t, lastOf[SlaveDisconnected](&m.rec).Err, ErrSilent)
	})
}

func TestARecordLargerThanAFrameIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		m := startMaster(t, newMemLog(), n, 3, func(c *SlavesConfig) { c.TransferBytes, c.MaxFrameBytes = 1000, 1000 })
		s := startSlave(t, newMemLog(), n, 1, nil)
		m.log.write(3, 900, 500, 500, 400, 2000)
		synctest.Wait()
		assert.EqualValues(t, 4, s.log.end(), "two at a time are too many, one is not")
		assert.ErrorIs(t, s.Status().Err, ErrFrameTooLarge)
		assert.ErrorContains(t, s.Status().Err, "the record at 5 has 2000 bytes, a frame at most 1000")
	})
}

// A log that fails is the end of a connection, not of the master.
func TestAMasterGoesOnWhenItsLogCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		broken := &brokenLog{memLog: newMemLog()}
		m := startMaster(t, broken.memLog, n, 3, func(c *SlavesConfig) { c.Log = broken })
		s := startSlave(t, newMemLog(), n, 1, nil)
		synctest.Wait()
		broken.mu.Lock()
		broken.err = errNoRecord
		broken.mu.Unlock()
		m.log.writeMany(3, 5)
		synctest.Wait()
		assert.ErrorIs(t, lastOf[SlaveDisconnected](&m.rec).Err, errNoRecord)
		assert.False(t, s.Status().Connected)
		broken.mu.Lock()
		broken.err = nil
		broken.mu.Unlock()
		time.Sleep(5 * time.Second)
		requireSame(t, m.log, s.log)
	})
}

type brokenLog struct {
	*memLog
	err error // guarded by memLog.mu
}

func (l *brokenLog) Read(from int64, maxBytes int) (Batch, error) {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return Batch{}, err
	}
	return l.memLog.Read(from, maxBytes)
}

// Hellos are read before it is known who speaks: so only so many at a time.
func TestThereAreOnlySoManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		startMaster(t, newMemLog(), n, 3, nil)
		for range maxConns {
			rawSlave(t, n)
		}
		synctest.Wait()
		p := rawSlave(t, n)
		_, _, err := p.wire.next(time.Time{})
		assert.Error(t, err)
		assert.NotErrorIs(t, err, ErrSilent, "at once")
		time.Sleep(DefaultHousekeeping + goodbyeTime)
		s := startSlave(t, newMemLog(), n, 1, nil)
		synctest.Wait()
		assert.True(t, s.Status().Connected)
	})
}
