package mqtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/pprof"
	"testing"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/store"
)

// clusterLabel is the pprof label that a cluster puts on its goroutines. It
// takes over the value that it finds in StartCluster's ctx.
const clusterLabel = "pocketmq-cluster"

// Run starts a cluster for t, which ends with it. A cluster that does not start
// ends the test.
//
// When the test and its other clean-ups have ended, Run
//
//   - verifies the store of every broker. One that was killed or closed is
//     opened again for that, unless its folder is gone. A test that damages a
//     store on purpose starts its cluster with pocketmq.StartCluster;
//   - closes the cluster, if the test has not done so;
//   - looks for goroutines of the cluster that still run. They are told by a
//     pprof label and by having been started in this module, so neither other
//     clusters nor goroutines of the test or of other libraries count.
//
// Whatever goes wrong in there fails the test; so does an error of Close,
// ErrHandlersRunning too. A failed test shows the last 1,000 lines of the
// cluster's log, debug level included.
//
// Without cfg.Timings it uses Fast(), in a testing/synctest bubble RocketMQ's
// defaults. cfg.Logger, if set, gets the log as well. Run may be called several
// times, by parallel tests, and by benchmarks; in a bubble, with the bubble's
// own t.
func Run(t testing.TB, cfg pocketmq.ClusterConfig) *pocketmq.Cluster {
	t.Helper()
	if reflect.ValueOf(cfg.Timings).IsZero() && !inBubble() {
		cfg.Timings = Fast()
	}
	log := &logTail{}
	cfg.Logger = log.logger(cfg.Logger)
	r := &run{cfg: cfg, log: log, label: rand.Text()}

	var err error
	// Around StartCluster, not only in its ctx: afterwards the test's own
	// goroutine is without the label again.
	pprof.Do(t.Context(), pprof.Labels(clusterLabel, r.label), func(ctx context.Context) {
		r.cluster, err = pocketmq.StartCluster(ctx, cfg)
	})
	if err != nil {
		t.Errorf("mqtest: %v", err)
		r.checkGoroutines(t)
		r.showLog(t)
		t.FailNow()
	}
	t.Cleanup(func() {
		t.Helper()
		r.finish(t)
	})
	return r.cluster
}

// run is one call of Run.
type run struct {
	cfg     pocketmq.ClusterConfig
	cluster *pocketmq.Cluster
	log     *logTail
	label   string // value of clusterLabel
}

func (r *run) finish(t testing.TB) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it has ended: this is a clean-up
	for b := range r.cluster.Brokers() {
		if err := r.checkStore(ctx, b); err != nil {
			t.Errorf("mqtest: store of broker %s, folder %s: %v", b.Name(), b.Dir(), err)
		}
	}
	if err := r.cluster.Close(); err != nil {
		t.Errorf("mqtest: close: %v", err)
	}
	r.checkGoroutines(t)
	r.showLog(t)
}

// checkStore verifies a broker's store, through the broker when it runs.
func (r *run) checkStore(ctx context.Context, b *pocketmq.Broker) error {
	err := b.Check(ctx)
	if !errors.Is(err, pocketmq.ErrClosed) {
		return err
	}
	if _, err := os.Stat(b.Dir()); errors.Is(err, os.ErrNotExist) {
		return nil // a throwaway folder that the test's own Close removed
	}
	name := r.cfg.Name
	if name == "" {
		name = "DefaultCluster"
	}
	s, err := store.Open(store.Config{
		Dir: b.Dir(), Cluster: name, Broker: b.Name(), ID: b.ID(), Throwaway: r.cfg.Dir == "", Logger: r.cfg.Logger,
		Retention: -1, MinFreeBytes: -1, // a check deletes nothing
	})
	if err != nil {
		return fmt.Errorf("open after the broker's end: %w", err)
	}
	// Kill, because the test has not asked for a clean shutdown: recovery may
	// have something to do again when the folder is used once more.
	return errors.Join(s.Check(ctx), s.Kill())
}

func (r *run) checkGoroutines(t testing.TB) {
	t.Helper()
	if left := goroutinesLeft(r.label); len(left) > 0 {
		n, text := 0, ""
		for _, g := range left {
			n += g.count
			text += fmt.Sprintf("\n%d of:\n%s", g.count, g.stack)
		}
		t.Errorf("mqtest: %d goroutines of the cluster are left after Close:%s", n, text)
	}
}

func (r *run) showLog(t testing.TB) {
	t.Helper()
	if !t.Failed() {
		return
	}
	text, kept, total := r.log.last()
	t.Logf("mqtest: the last %d of %d log lines of the cluster:\n%s", kept, total, text)
}
