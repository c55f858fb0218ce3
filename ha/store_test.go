package ha

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/memnet"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// storeLog makes a log of a store. What a master and a slave need is there already: no
// record is copied on its way.
type storeLog struct {
	cfg     store.Config
	written func(int64)

	mu      sync.Mutex // guards what follows
	s       *store.Store
	goal    int64 // reached is closed when the log ends there
	reached chan struct{}
}

func openStoreLog(t testing.TB, name string, change func(*store.Config)) *storeLog {
	dir, err := os.MkdirTemp("/dev/shm", "ha-test-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	l := &storeLog{}
	l.cfg = store.Config{
		Dir: filepath.Join(dir, name), Cluster: "c", Broker: "broker-a", FileSize: store.MinFileSize,
		Retention: -1, MinFreeBytes: -1, Throwaway: true, Written: l.wrote,
	}
	if change != nil {
		change(&l.cfg)
	}
	l.s, err = store.Open(l.cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.store().Close()) })
	return l
}

func (l *storeLog) store() *store.Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s
}

func (l *storeLog) wrote(position int64) {
	l.mu.Lock()
	written := l.written
	if l.reached != nil && position >= l.goal {
		close(l.reached)
		l.reached = nil
	}
	l.mu.Unlock()
	if written != nil {
		written(position)
	}
}

// await waits until the log ends at a position.
func (l *storeLog) await(t testing.TB, position int64) {
	t.Helper()
	l.mu.Lock()
	reached := make(chan struct{})
	if l.s.Positions().Written >= position {
		close(reached)
	} else {
		l.goal, l.reached = position, reached
	}
	l.mu.Unlock()
	select {
	case <-reached:
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the slave does not get there", "%d, it is at %+v", position, l.store().Positions())
	}
}

func (l *storeLog) Bounds() (first, end int64) {
	p := l.store().Positions()
	return p.Min, p.Written
}

func (l *storeLog) Epochs() []Epoch {
	var list []Epoch
	for _, e := range l.store().Epochs() {
		list = append(list, Epoch(e))
	}
	return list
}

func (l *storeLog) Read(from int64, maxBytes int) (Batch, error) {
	b, err := l.store().ReadLog(from, maxBytes)
	return Batch(b), err
}

func (l *storeLog) Beginning(bool) (int64, []byte, error) {
	b := l.store().Beginning()
	state, err := json.Marshal(b)
	return b.Position, state, err
}

func (l *storeLog) BytesBetween(from, to int64) int64 { return l.store().BytesBetween(from, to) }

func (l *storeLog) Confirmed() int64 {
	if !l.cfg.Confirming {
		return 0
	}
	return l.store().Positions().Dispatched
}

func (l *storeLog) Append(ctx context.Context, b Batch) error {
	return l.store().Replicate(ctx, store.LogBatch(b))
}

func (l *storeLog) Confirm(position int64) error { return l.store().SetConfirmed(position) }

func (l *storeLog) Cut(_ context.Context, last int64) error {
	return l.reopen(func() error {
		_, err := store.CutEnd(l.cfg, last)
		return err
	})
}

func (l *storeLog) Begin(_ context.Context, _ int64, state []byte) error {
	var b store.Beginning
	if err := json.Unmarshal(state, &b); err != nil {
		return err
	}
	return l.reopen(func() error {
		l.cfg.Begin = &b
		return store.Clear(l.cfg)
	})
}

// reopen does something to the folder of the store.
func (l *storeLog) reopen(change func() error) error {
	if err := l.store().Close(); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	s, err := store.Open(l.cfg)
	l.cfg.Begin = nil
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s = s
	return nil
}

func (l *storeLog) put(t testing.TB, n, size int) {
	t.Helper()
	s := l.store()
	b := s.NewBatch()
	for range n {
		require.NoError(t, b.Add(&message.Record{Topic: "T", QueueID: 1, Body: []byte(strings.Repeat("x", size))}))
	}
	_, err := s.Append(context.Background(), b, store.AppendOptions{})
	require.NoError(t, err)
}

// overTCP is a place where a master listens.
func overTCP(t testing.TB) (net.Listener, func(ctx context.Context) (net.Conn, error)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

// lead makes a store the log of a master.
func (l *storeLog) lead(t testing.TB, epoch int64, listener net.Listener) (*Slaves, func()) {
	if epoch > 0 {
		require.NoError(t, l.store().BeginEpoch(context.Background(), epoch))
	}
	s, err := NewSlaves(SlavesConfig{
		Log:    l,
		InSync: InSyncConfig{ID: l.cfg.ID, Epoch: epoch, End: l.store().Positions().Written, MaxLag: time.Minute, Acks: AckAll, MinInSync: 1},
	})
	require.NoError(t, err)
	l.mu.Lock()
	l.written = s.Written
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	var once sync.Once
	stop := func() { once.Do(func() { cancel(); assert.NoError(t, <-served) }) }
	t.Cleanup(stop)
	return s, stop
}

// follow makes a store the log of a slave.
func (l *storeLog) follow(t testing.TB, dial func(ctx context.Context) (net.Conn, error)) (rec *recorder, stop func()) {
	rec = &recorder{}
	r, err := NewReceiver(ReceiverConfig{ID: l.cfg.ID, Log: l, Promises: &memPromises{}, Dial: dial, OnEvent: rec.add, Redial: 10 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { r.Run(ctx); close(ran) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-ran }) }
	t.Cleanup(stop)
	return rec, stop
}

// requireSameStore compares two logs from the later beginning on, and checks both.
func requireSameStore(t testing.TB, want, got *storeLog) {
	t.Helper()
	w, g := want.store().Positions(), got.store().Positions()
	require.Equal(t, w.Written, g.Written)
	for at := max(w.Min, g.Min); at <= w.Written; {
		a, err := want.Read(at, 1<<20)
		require.NoError(t, err)
		b, err := got.Read(at, 1<<20)
		require.NoError(t, err)
		n := min(len(a.Records), len(b.Records))
		require.Equal(t, a.Epoch, b.Epoch, "at %d", at)
		require.Equal(t, a.Records[:n], b.Records[:n], "at %d", at)
		at += int64(n)
	}
	require.NoError(t, want.store().Check(context.Background()))
	require.NoError(t, got.store().Check(context.Background()))
}

func TestStoresReplicateOverTCP(t *testing.T) {
	master := openStoreLog(t, "0", func(c *store.Config) { c.Confirming = true })
	slave := openStoreLog(t, "1", func(c *store.Config) { c.ID, c.Confirming = 1, true })
	master.put(t, 500, 100)
	listener, dial := overTCP(t)
	s, stopMaster := master.lead(t, 1, listener)
	master.put(t, 500, 100)
	_, stopSlave := slave.follow(t, dial)
	slave.await(t, 1000)
	for range 50 {
		master.put(t, 3, 300)
	}
	require.NoError(t, s.Wait(t.Context(), 1150))
	slave.await(t, 1150) // the wait may have been for the master alone, before the slave joined
	requireSameStore(t, master, slave)

	// The slave is elected; the old master comes back with records that nobody has.
	stopSlave()
	stopMaster()
	master.put(t, 7, 10)
	listener, dial = overTCP(t)
	slave.lead(t, 2, listener)
	slave.put(t, 5, 20)
	rec, _ := master.follow(t, dial)
	master.await(t, 1155)
	slave.put(t, 5, 20)
	master.await(t, 1160)
	requireSameStore(t, slave, master)
	assert.Equal(t, []Truncated{{From: 1157, To: 1150, Epoch: 2}}, eventsOf[Truncated](rec))
}

func TestAStoreThatIsTooFarBehindBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNet(t)
		master := openStoreLog(t, "0", func(c *store.Config) { c.RetentionBytes = 8 << 10 })
		slave := openStoreLog(t, "1", func(c *store.Config) { c.ID = 1 })
		master.put(t, 5, 100)
		s, _ := master.lead(t, 0, n.listen())
		_, stop := slave.follow(t, n.dial)
		slave.await(t, 5)
		stop()
		for range 100 {
			master.put(t, 5, 200)
		}
		time.Sleep(store.DefaultFlushInterval + time.Minute) // the janitor comes
		require.Greater(t, master.store().Positions().Min, int64(6))
		rec, _ := slave.follow(t, n.dial)
		slave.await(t, 505)
		require.NoError(t, s.Wait(t.Context(), 505))
		requireSameStore(t, master, slave)
		assert.Len(t, eventsOf[Restarted](rec), 1)
		for range 20 {
			master.put(t, 5, 200)
		}
		slave.await(t, 605)
		synctest.Wait() // the master's janitor has come
		requireSameStore(t, master, slave)
	})
}

// The streams of clusters in memory, under the rules of their links.
func TestSlavesFollowOverStreamsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		listener, err := n.ListenStream(t.Context(), protocol.Listen{Node: "a/0"})
		require.NoError(t, err)
		dial := func(ctx context.Context) (net.Conn, error) {
			return n.DialStream(ctx, protocol.Dial{Node: "a/1", Addr: listener.Addr().String()})
		}
		m := &testMaster{log: newMemLog()}
		m.log.beginEpoch(1)
		m.Slaves, err = NewSlaves(SlavesConfig{Log: m.log, InSync: InSyncConfig{Epoch: 1, MaxLag: time.Minute}, OnEvent: m.rec.add})
		require.NoError(t, err)
		m.log.written = m.Written
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		served := make(chan error, 1)
		go func() { served <- m.Serve(ctx, listener) }()
		own := newMemLog()
		s := startSlave(t, own, newTestNet(t), 1, func(c *ReceiverConfig) { c.Cluster, c.Group, c.Dial = "", "", dial })
		for _, rule := range []func(){
			func() {},
			func() { n.Cut("a/0", "a/1") },
			func() { n.Drop("a/0", "a/1") },
			func() { n.CutOneWay("a/0", "a/1") },
			func() { n.CutOneWay("a/1", "a/0") },
			func() { n.Delay("a/0", "a/1", 30*time.Millisecond) },
		} {
			rule()
			for range 50 {
				m.log.write(1, 700, 5000)
				time.Sleep(time.Second)
			}
			n.HealAll()
			time.Sleep(30 * time.Second)
			requireSame(t, m.log, own)
		}
		assert.ErrorIs(t, eventsOf[MasterDisconnected](&s.rec)[0].Err, syscall.ECONNRESET, "cut")
		silent := 0
		for _, gone := range eventsOf[SlaveDisconnected](&m.rec) {
			if errors.Is(gone.Err, ErrSilent) {
				silent++
			}
		}
		assert.Positive(t, silent)
		cancel()
		assert.NoError(t, <-served)
	})
}

// How fast a new slave gets the log of its master, as a ratio to copying its files.
func BenchmarkNewSlave(b *testing.B) {
	const size = 64 << 20
	master := openStoreLog(b, "0", func(c *store.Config) { c.FileSize = store.DefaultFileSize })
	listener, dial := overTCP(b)
	master.lead(b, 0, listener)
	for n := 0; n < size; n += 100 << 10 {
		master.put(b, 100, 1<<10)
	}
	end := master.store().Positions().Written
	b.SetBytes(size)
	for i := range b.N {
		slave := openStoreLog(b, fmt.Sprint("s", i), func(c *store.Config) { c.ID, c.FileSize = 1, store.DefaultFileSize })
		begun := time.Now()
		_, stop := slave.follow(b, dial)
		slave.await(b, end)
		took := time.Since(begun)
		stop()
		begun = time.Now()
		copyFolder(b, filepath.Join(master.cfg.Dir, "commitlog"), filepath.Join(slave.cfg.Dir, "copy"))
		b.ReportMetric(float64(took)/float64(time.Since(begun)), "x-of-a-file-copy")
	}
}

func copyFolder(b *testing.B, from, to string) {
	require.NoError(b, filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close() //nolint:errcheck // it was only read
		out, err := os.Create(target)
		if err != nil {
			return err
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, 256<<10)); err != nil {
			return err
		}
		return out.Close()
	}))
}
