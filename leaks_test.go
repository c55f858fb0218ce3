package pocketmq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// These tests look at the whole process: none of them is parallel, so while
// they run nobody else does.

// footprint is what a process holds.
type footprint struct {
	goroutines int
	files      []string // what its open descriptors are, sorted; nil where the system does not tell
	temps      []string // entries of the folder for temporary files
}

// ownTemp gives the test a folder of its own for temporary files.
func ownTemp(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, dir)
	}
}

func footprintNow(t testing.TB) footprint {
	t.Helper()
	f := footprint{goroutines: runtime.NumGoroutine()}
	entries, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	for _, e := range entries {
		f.temps = append(f.temps, e.Name())
	}
	const descriptors = "/proc/self/fd"
	entries, err = os.ReadDir(descriptors)
	if err != nil {
		return f // not Linux
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(descriptors, e.Name())); err == nil { // the folder's own is closed again
			f.files = append(f.files, target)
		}
	}
	slices.Sort(f.files)
	return f
}

// more is what now has beyond before. It may have less: a socket may not have been
// closed yet before.
func more(now, before []string) (extra []string) {
	before = slices.Clone(before)
	for _, name := range now {
		if i := slices.Index(before, name); i >= 0 {
			before = slices.Delete(before, i, i+1)
		} else {
			extra = append(extra, name)
		}
	}
	return extra
}

// assertNothingLeft compares with the footprint before. It waits for goroutines that
// have been joined and those of connections that have just been lost, and for files
// that a broker saves its state to.
func assertNothingLeft(t testing.TB, before footprint, what string) {
	t.Helper()
	now := footprintNow(t)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); now = footprintNow(t) {
		if now.goroutines <= before.goroutines && more(now.files, before.files) == nil && slices.Equal(now.temps, before.temps) {
			break
		}
		time.Sleep(time.Millisecond) // nobody tells
	}
	assert.Empty(t, more(now.files, before.files), "%s: open files", what)
	assert.Equal(t, before.temps, now.temps, "%s: temporary files", what)
	if now.goroutines > before.goroutines {
		var stacks bytes.Buffer
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
		t.Errorf("%s: %d goroutines before, %d now:\n%s", what, before.goroutines, now.goroutines, &stacks)
	}
}

// clusterLife is how long the parts of a cluster's life took.
type clusterLife struct{ ready, consumed, closed time.Duration }

// overBoth runs a test over memory and over TCP.
func overBoth(t *testing.T, f func(t *testing.T, transport func() pocketmq.Transport)) {
	t.Run("memory", func(t *testing.T) { f(t, func() pocketmq.Transport { return pocketmq.InMemory() }) })
	t.Run("TCP", func(t *testing.T) { f(t, overTCP) })
}

func overTCP() pocketmq.Transport { return pocketmq.TCP("127.0.0.1") }

// liveOnce starts a cluster of one name server and one broker, sends a message
// through it, consumes it, and closes. dir "" = throwaway, transport nil = in
// memory.
func liveOnce(t testing.TB, dir string, transport pocketmq.Transport) clusterLife {
	t.Helper()
	ctx := context.Background()
	var life clusterLife
	begin := time.Now()
	c, err := startCluster(ctx, t, pocketmq.ClusterConfig{Dir: dir, Transport: transport, Topics: map[string]int{"T": 1}})
	require.NoError(t, err)
	life.ready = time.Since(begin)

	consumed := make(chan time.Duration, 1)
	consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: func(context.Context, []*pocketmq.MessageExt) error {
		consumed <- time.Since(begin)
		return nil
	}})
	p := producer(t, c, pocketmq.ProducerConfig{})
	_, err = p.Send(ctx, text("T", "first"))
	require.NoError(t, err)
	select {
	case life.consumed = <-consumed:
	case <-time.After(10 * time.Second):
		t.Fatal("the first message was not consumed within 10 s")
	}
	check(t, c)

	begin = time.Now()
	require.NoError(t, c.Close())
	life.closed = time.Since(begin)
	return life
}

func medians(lives []clusterLife) clusterLife {
	median := func(part func(clusterLife) time.Duration) time.Duration {
		all := make([]time.Duration, len(lives))
		for i, l := range lives {
			all[i] = part(l)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return clusterLife{
		ready:    median(func(l clusterLife) time.Duration { return l.ready }),
		consumed: median(func(l clusterLife) time.Duration { return l.consumed }),
		closed:   median(func(l clusterLife) time.Duration { return l.closed }),
	}
}

func TestLK01_TwoHundredClustersLeaveNothing(t *testing.T) {
	ownTemp(t)
	liveOnce(t, "", nil) // what a process makes once is no leak
	liveOnce(t, "", overTCP())
	root := t.TempDir()
	before := footprintNow(t)
	kinds := []struct {
		name      string
		real      bool
		transport func() pocketmq.Transport
		n         int
	}{{"throwaway", false, nil, rounds(120)}, {"real folder", true, nil, rounds(40)}, {"throwaway over TCP", false, overTCP, rounds(40)}}
	for _, kind := range kinds {
		lives := make([]clusterLife, kind.n)
		for i := range lives {
			dir := ""
			if kind.real {
				dir = filepath.Join(root, strconv.Itoa(i))
			}
			var transport pocketmq.Transport
			if kind.transport != nil {
				transport = kind.transport()
			}
			lives[i] = liveOnce(t, dir, transport)
			if kind.real {
				require.NoError(t, os.RemoveAll(dir), "nothing holds the folder")
			}
		}
		m := medians(lives)
		t.Logf("%s, medians of %d: ready after %v, first message consumed after %v, Close takes %v", kind.name, kind.n, m.ready, m.consumed, m.closed)
		assertNothingLeft(t, before, kind.name)
	}
}

func BenchmarkClusterLife(b *testing.B) {
	for _, kind := range []string{"throwaway", "dir", "TCP"} {
		b.Run(kind, func(b *testing.B) {
			var lives []clusterLife
			for b.Loop() {
				dir, transport := "", pocketmq.Transport(nil)
				switch kind {
				case "dir":
					dir = b.TempDir()
				case "TCP":
					transport = overTCP()
				}
				lives = append(lives, liveOnce(b, dir, transport))
			}
			m := medians(lives)
			b.ReportMetric(float64(m.ready.Microseconds()), "ready-µs")
			b.ReportMetric(float64(m.consumed.Microseconds()), "consumed-µs")
			b.ReportMetric(float64(m.closed.Microseconds()), "close-µs")
		})
	}
}

// failedStart is a cause for a Start to fail, and the way out.
type failedStart struct {
	start func() error // fails until mend was called; the same object each time
	wants error        // what the error is, nil = anything
	says  string       // what its text names
	mend  func()       // nil: there is no way out
	close func() error // after a failed start, and at the end
}

func TestLK02_FailedStartsLeaveNothing(t *testing.T) {
	ctx := context.Background()
	causes := map[string]func(t *testing.T) failedStart{
		"consumer without a name server": func(t *testing.T) failedStart {
			net := pocketmq.InMemory()
			const addr = "127.1.0.200:9876"
			co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
				Group: "g", Subscriptions: all("T"), NameServers: []string{addr}, Transport: net,
				Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
			})
			require.NoError(t, err)
			return failedStart{
				start: func() error { return co.Start(ctx) }, wants: pocketmq.ErrUnreachable, says: addr, close: co.Close,
				mend: func() {
					run(t, pocketmq.ClusterConfig{Transport: net, NameServerAddrs: []string{addr}, Topics: map[string]int{"T": 1}})
				},
			}
		},
		"name server on an address in use": func(t *testing.T) failedStart {
			other := run(t, pocketmq.ClusterConfig{})
			addr := other.NameServerAddrs()[0]
			s, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Name: "late", Addr: addr, Transport: other.Transport()})
			require.NoError(t, err)
			return failedStart{start: func() error { return s.Start(ctx) }, says: addr, close: s.Close, mend: func() { require.NoError(t, other.Close()) }}
		},
		"name server on a port in use": func(t *testing.T) failedStart {
			other := run(t, pocketmq.ClusterConfig{Transport: overTCP()})
			addr := other.NameServerAddrs()[0]
			s, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Name: "late", Addr: addr, Transport: overTCP()})
			require.NoError(t, err)
			return failedStart{start: func() error { return s.Start(ctx) }, says: addr, close: s.Close, mend: func() { require.NoError(t, other.Close()) }}
		},
		"broker on a port in use": func(t *testing.T) failedStart {
			other := run(t, pocketmq.ClusterConfig{Transport: overTCP()})
			addr := other.Broker("broker-a", 0).Addr()
			b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
				Name: "late", Addr: addr, Dir: filepath.Join(t.TempDir(), "late"), NameServers: other.NameServerAddrs(), Transport: overTCP(),
			})
			require.NoError(t, err)
			return failedStart{
				start: func() error { return b.Start(ctx) }, says: addr, close: b.Close,
				mend: func() { require.NoError(t, other.Kill("broker-a", 0)) },
			}
		},
		"consumer without a name server over TCP": func(t *testing.T) failedStart {
			gone := run(t, pocketmq.ClusterConfig{Transport: overTCP()})
			addr := gone.NameServerAddrs()[0]
			require.NoError(t, gone.Close())
			co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
				Group: "g", Subscriptions: all("T"), NameServers: []string{addr}, Transport: overTCP(),
				Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
			})
			require.NoError(t, err)
			return failedStart{
				start: func() error { return co.Start(ctx) }, wants: pocketmq.ErrUnreachable, says: addr, close: co.Close,
				mend: func() {
					run(t, pocketmq.ClusterConfig{Transport: overTCP(), NameServerAddrs: []string{addr}, Topics: map[string]int{"T": 1}})
				},
			}
		},
		"cluster without TLS that it could do": func(t *testing.T) failedStart {
			return clusterStart(t, pocketmq.ClusterConfig{Transport: pocketmq.TCPWith(pocketmq.TCPConfig{Host: "127.0.0.1", TLS: 9})}, "TLSMode(9)", nil)
		},
		"broker on an address in use": func(t *testing.T) failedStart {
			other := run(t, pocketmq.ClusterConfig{})
			addr := other.Broker("broker-a", 0).Addr()
			b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
				Name: "late", Addr: addr, Dir: filepath.Join(t.TempDir(), "late"), NameServers: other.NameServerAddrs(), Transport: other.Transport(),
			})
			require.NoError(t, err)
			return failedStart{
				start: func() error { return b.Start(ctx) }, says: addr, close: b.Close,
				mend: func() { require.NoError(t, other.Kill("broker-a", 0)) },
			}
		},
		"broker on a folder in use": func(t *testing.T) failedStart {
			other := run(t, pocketmq.ClusterConfig{Dir: t.TempDir()})
			dir := other.Broker("broker-a", 0).Dir()
			b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
				Name: "broker-a", Dir: dir, NameServers: other.NameServerAddrs(), Transport: other.Transport(),
			})
			require.NoError(t, err)
			return failedStart{
				start: func() error { return b.Start(ctx) }, says: dir, close: b.Close,
				mend: func() { require.NoError(t, other.Kill("broker-a", 0)) },
			}
		},
		"broker whose folder is a file": func(t *testing.T) failedStart {
			c := run(t, pocketmq.ClusterConfig{})
			dir := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(dir, []byte("x"), 0o600))
			b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{Name: "late", Dir: dir, NameServers: c.NameServerAddrs(), Transport: c.Transport()})
			require.NoError(t, err)
			return failedStart{
				start: func() error { return b.Start(ctx) }, says: dir, close: b.Close,
				mend: func() { require.NoError(t, os.Remove(dir)) },
			}
		},
		"broker with broken state files": func(t *testing.T) failedStart {
			dir := t.TempDir()
			c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}})
			require.NoError(t, c.Close())
			config := filepath.Join(dir, "broker-a-0", "config")
			kept := filepath.Join(t.TempDir(), "config")
			require.NoError(t, os.CopyFS(kept, os.DirFS(config)))
			files, err := filepath.Glob(filepath.Join(config, "topics.json*"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, f := range append(files, filepath.Join(config, "topics.json.bak")) {
				require.NoError(t, os.WriteFile(f, []byte(`{"dataVersion":`), 0o600))
			}
			ns := run(t, pocketmq.ClusterConfig{})
			b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
				Name: "broker-a", Dir: filepath.Join(dir, "broker-a-0"), NameServers: ns.NameServerAddrs(), Transport: ns.Transport(),
			})
			require.NoError(t, err)
			return failedStart{
				start: func() error { return b.Start(ctx) }, says: "topics.json", close: b.Close,
				mend: func() {
					require.NoError(t, os.RemoveAll(config))
					require.NoError(t, os.CopyFS(config, os.DirFS(kept)))
				},
			}
		},
		"cluster on a folder that is a file": func(t *testing.T) failedStart {
			dir := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(dir, []byte("x"), 0o600))
			return clusterStart(t, pocketmq.ClusterConfig{NameServers: 2, Groups: groups("a", "b"), Dir: dir}, dir, func() {
				require.NoError(t, os.Remove(dir))
			})
		},
		"cluster of which one folder is in use": func(t *testing.T) failedStart {
			dir := t.TempDir()
			other := run(t, pocketmq.ClusterConfig{Groups: groups("b"), Dir: dir})
			return clusterStart(t, pocketmq.ClusterConfig{Groups: groups("a", "b", "c"), Dir: dir}, filepath.Join(dir, "b-0"), func() { require.NoError(t, other.Close()) })
		},
		"cluster on an address in use": func(t *testing.T) failedStart {
			other := run(t, pocketmq.ClusterConfig{})
			addr := other.NameServerAddrs()[0]
			return clusterStart(t, pocketmq.ClusterConfig{
				NameServers: 2, NameServerAddrs: []string{"127.1.0.201:9876", addr}, Transport: other.Transport(),
			}, addr, func() { require.NoError(t, other.Close()) })
		},
	}
	for _, name := range slices.Sorted(maps.Keys(causes)) {
		t.Run(name, func(t *testing.T) {
			ownTemp(t)
			f := causes[name](t)
			try := func() {
				err := f.start()
				require.Error(t, err)
				assert.ErrorContains(t, err, f.says)
				if f.wants != nil {
					assert.ErrorIs(t, err, f.wants)
				}
			}
			try() // what a process makes once is no leak
			before := footprintNow(t)
			for range 100 {
				try()
			}
			assertNothingLeft(t, before, name)
			if f.mend == nil {
				return
			}
			f.mend()
			require.NoError(t, f.start(), "with the cause gone")
			require.NoError(t, f.close())
			require.NoError(t, f.close(), "once more")
		})
	}
}

// clusterStart is StartCluster as a Start that may be repeated.
func clusterStart(t *testing.T, cfg pocketmq.ClusterConfig, says string, mend func()) failedStart {
	var c *pocketmq.Cluster
	return failedStart{
		start: func() (err error) {
			c, err = startCluster(context.Background(), t, cfg)
			return err
		},
		says: says, mend: mend,
		close: func() error {
			check(t, c)
			return c.Close()
		},
	}
}

func TestLK02_CloseAfterAFailedStartIsSafe(t *testing.T) {
	cfg := pocketmq.ConsumerConfig{
		Group: "g", Subscriptions: all("T"), NameServers: []string{"127.1.0.200:9876"}, Transport: pocketmq.InMemory(),
		Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
	}
	co, err := pocketmq.NewConsumer(cfg)
	require.NoError(t, err)
	require.Error(t, co.Start(t.Context()))
	assert.NoError(t, co.Close())
	assert.NoError(t, co.Close())
	assert.ErrorIs(t, co.Start(t.Context()), pocketmq.ErrClosed)
}

func TestLK02_AStartWithACancelledContextLeavesNothing(t *testing.T) {
	ownTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := footprintNow(t)
	overBoth(t, func(t *testing.T, transport func() pocketmq.Transport) {
		for range 100 {
			_, err := startCluster(ctx, t, pocketmq.ClusterConfig{NameServers: 2, Groups: groups("a", "b"), Transport: transport()})
			require.ErrorIs(t, err, context.Canceled)
		}
	})
	assertNothingLeft(t, before, "cancelled")
}

func TestLK03_UseWhileItCloses(t *testing.T) {
	ownTemp(t)
	before := footprintNow(t)
	closers := map[string]func(c *pocketmq.Cluster, p *pocketmq.Producer, co *pocketmq.Consumer) error{
		"producer closes": func(_ *pocketmq.Cluster, p *pocketmq.Producer, _ *pocketmq.Consumer) error { return p.Close() },
		"producer shuts down": func(_ *pocketmq.Cluster, p *pocketmq.Producer, _ *pocketmq.Consumer) error {
			return p.Shutdown(context.Background())
		},
		"consumer closes": func(_ *pocketmq.Cluster, p *pocketmq.Producer, co *pocketmq.Consumer) error {
			return errors.Join(co.Close(), p.Close()) // the producer too, or its users would not end
		},
		"cluster closes": func(c *pocketmq.Cluster, _ *pocketmq.Producer, _ *pocketmq.Consumer) error { return c.Close() },
	}
	for _, name := range slices.Sorted(maps.Keys(closers)) {
		t.Run(name, func(t *testing.T) {
			for i := range rounds(25) {
				over := pocketmq.Transport(pocketmq.InMemory())
				if i%5 >= 3 {
					over = overTCP()
				}
				useWhileItCloses(t, over, closers[name])
			}
		})
	}
	assertNothingLeft(t, before, "100 rounds")
}

// useWhileItCloses lets 16 goroutines use a producer, a consumer and a cluster
// until they are told that these are closed.
func useWhileItCloses(t *testing.T, over pocketmq.Transport, closeIt func(*pocketmq.Cluster, *pocketmq.Producer, *pocketmq.Consumer) error) {
	t.Helper()
	c, err := startCluster(context.Background(), t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 4}})
	require.NoError(t, err)
	p := producer(t, c, pocketmq.ProducerConfig{MaxInFlight: 8})
	co := consumer(t, c, pocketmq.ConsumerConfig{
		Group: "g", Subscriptions: all("T"), Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
	})
	var accepted, called, sent atomic.Int64
	ctx := context.Background()
	done := func(*pocketmq.SendResult, error) { called.Add(1) }
	uses := []func() error{
		func() error { _, err := p.Send(ctx, text("T", "send")); return err },
		func() error {
			err := p.SendAsync(ctx, text("T", "async"), done)
			if err == nil {
				accepted.Add(1)
			}
			return err
		},
		func() error { return p.SendOneway(ctx, text("T", "oneway")) },
		func() error {
			_, err := p.SendBatch(ctx, []*pocketmq.Message{text("T", "batch"), text("T", "batch")})
			return err
		},
		func() error { _, err := p.SendTo(ctx, queue("T", "broker-a", 1), text("T", "to")); return err },
		func() error { _, err := p.Queues(ctx, "T"); return err },
		func() error {
			co.Assignment()
			co.Status()
			p.Status()
			_, err := p.Send(ctx, &pocketmq.Message{Topic: "T", ShardingKey: "k", Body: []byte("key")})
			return err
		},
		func() error {
			_, err := c.Admin().Topics(ctx)
			if errors.Is(err, pocketmq.ErrClosed) {
				return err
			}
			_, err = p.Send(ctx, text("T", "send"))
			return err
		},
	}
	var users sync.WaitGroup
	halfWay := make(chan struct{})
	for i := range 16 {
		use := uses[i%len(uses)]
		users.Go(func() {
			for {
				switch err := use(); {
				case err == nil:
					if sent.Add(1) == 200 {
						close(halfWay)
					}
				case errors.Is(err, pocketmq.ErrClosed):
					return
				case errors.Is(err, pocketmq.ErrUnknownOutcome), errors.Is(err, pocketmq.ErrUnreachable), errors.Is(err, pocketmq.ErrNoRoute),
					errors.Is(err, pocketmq.ErrTimeout), errors.Is(err, context.Canceled):
					// What a call gets whose answer the end has overtaken.
				default:
					t.Errorf("use while it closes: %v", err)
					return
				}
			}
		})
	}
	<-halfWay
	require.NoError(t, closeIt(c, p, co))
	closed := time.Now()
	users.Wait()
	assert.Less(t, time.Since(closed), 5*time.Second, "users end with what they use")
	require.NoError(t, c.Close())
	assert.Equal(t, accepted.Load(), called.Load(), "each accepted asynchronous send is called back once")
}

// childEnv makes the test binary play the host of TestLK05.
const childEnv = "POCKETMQ_TEST_CHILD"

func TestLK05_SignalsOutputAndTheProcessBelongToTheHost(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process can't send itself an interrupt on Windows")
	}
	overBoth(t, func(t *testing.T, _ func() pocketmq.Transport) { theHostIsLeftAlone(t, filepath.Base(t.Name())) })
}

// theHostIsLeftAlone runs a host whose cluster is in memory, or over TCP.
func theHostIsLeftAlone(t *testing.T, over string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLK05_Host$")
	cmd.Env = append(os.Environ(), childEnv+"="+t.TempDir(), childEnv+"_OVER="+over)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(t, err, "stdout:\n%s\nstderr:\n%s", &stdout, &stderr)
	var host []string
	for line := range strings.Lines(stdout.String()) {
		if line = strings.TrimSpace(line); line != "PASS" {
			host = append(host, line)
		}
	}
	assert.Equal(t, []string{
		"host: the cluster runs",
		"host: the address is in use",
		"host: the store is damaged, the broker reads on",
		"host: interrupt",
		"host: the last line",
	}, host, "the library prints nothing, and the host's own handler runs to its end")
	assert.Empty(t, stderr.String())
}

// TestLK05_Host is the child process of the test above.
func TestLK05_Host(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		t.Skip("the host of another test")
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	var over pocketmq.Transport
	if os.Getenv(childEnv+"_OVER") == "TCP" {
		over = overTCP()
	}
	c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Dir: dir, Transport: over, Topics: map[string]int{"T": 1}})
	require.NoError(t, err)
	p := producer(t, c, pocketmq.ProducerConfig{})
	if over != nil { // a stranger's bytes are no reason to say anything
		conn, err := net.Dial("tcp", c.NameServerAddrs()[0])
		require.NoError(t, err)
		_, err = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, conn)
		require.NoError(t, conn.Close())
	}
	for range 10 {
		_, err := p.Send(t.Context(), text("T", "stored"))
		require.NoError(t, err)
	}
	fmt.Println("host: the cluster runs")

	ns, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Addr: c.NameServerAddrs()[0], Transport: c.Transport()})
	require.NoError(t, err)
	require.Error(t, ns.Start(t.Context()))
	fmt.Println("host: the address is in use")

	require.NoError(t, c.Broker("broker-a", 0).Close()) // everything is synced and known to be
	flip(t, c.Broker("broker-a", 0).Dir(), "stored")
	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	require.False(t, c.Broker("broker-a", 0).Status().Writable)
	fmt.Println("host: the store is damaged, the broker reads on")

	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(os.Interrupt))
	select {
	case <-interrupts:
	case <-time.After(10 * time.Second):
		t.Fatal("the host's handler did not run")
	}
	fmt.Println("host: interrupt")
	require.NoError(t, c.Close())
	fmt.Println("host: the last line")
}

func TestLK06_ALostQueueEndsItsLoop(t *testing.T) {
	for name, orderly := range map[string]bool{"concurrent": false, "orderly": true} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, transport func() pocketmq.Transport) { lostQueues(t, transport(), orderly) })
		})
	}
}

// lostQueues lets a consumer lose half of its queues, and get them back, many times.
func lostQueues(t *testing.T, over pocketmq.Transport, orderly bool) {
	ownTemp(t)
	var events = make(chan pocketmq.Rebalanced, 1000)
	var lines lineCounter
	c := run(t, pocketmq.ClusterConfig{
		Transport: over, Topics: map[string]int{"T": 10}, Timings: pocketmq.DefaultTimings(),
		Logger: slog.New(slog.NewTextHandler(&lines, nil)),
		OnEvent: func(e pocketmq.Event) {
			if e, ok := e.(pocketmq.Rebalanced); ok {
				events <- e
			}
		},
	})
	cfg := pocketmq.ConsumerConfig{Group: "g", Orderly: orderly, Subscriptions: all("T"), Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil }}
	a := consumer(t, c, cfg)
	holds := func(n int) {
		t.Helper()
		for timeout := time.After(10 * time.Second); len(a.Assignment()) != n; {
			select {
			case <-events:
			case <-timeout:
				t.Fatalf("consumer A holds %d queues, %d were expected", len(a.Assignment()), n)
			}
		}
	}
	holds(10)
	toggle := func() {
		b := consumer(t, c, cfg)
		holds(5)
		require.NoError(t, b.Close())
		holds(10)
	}
	toggle()
	before := footprintNow(t)
	lines.n.Store(0)
	for range 20 {
		toggle()
	}
	assertNothingLeft(t, before, "20 toggles")
	assert.Less(t, lines.n.Load(), int64(20*50), "log lines")

	runtime.GC() // what earlier tests left behind is not this one's work
	const idle, bound = time.Second, 500 * time.Millisecond
	var busy time.Duration
	for range 3 { // a busy machine may spoil one of them
		before, ok := cpuTime()
		if !ok {
			return // the system does not tell
		}
		<-time.After(idle)
		after, _ := cpuTime()
		busy = after - before
		t.Logf("CPU time of an idle second: %v", busy)
		if busy < bound {
			break
		}
	}
	assert.Less(t, busy, bound, "an idle consumer does nothing")
}

// lineCounter counts what a log handler writes.
type lineCounter struct{ n atomic.Int64 }

func (l *lineCounter) Write(line []byte) (int, error) {
	l.n.Add(1)
	return len(line), nil
}

// cpuTime is the time this process has spent in user code and in the kernel,
// in steps of 10 ms; false where there is no /proc.
func cpuTime() (time.Duration, bool) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold blanks
	fields := strings.Fields(rest)
	const utime, stime, tick = 11, 12, 10 * time.Millisecond
	var sum time.Duration
	for _, i := range []int{utime, stime} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0, false
		}
		sum += time.Duration(n) * tick
	}
	return sum, true
}
