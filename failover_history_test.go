package pocketmq_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/history"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

var (
	failoverSeed  = flag.Uint64("failover.seed", 0, "first seed of TestFailoverHistories; 0 = a new one")
	failoverCount = flag.Int("failover.count", 2, "seeds of each kind of TestFailoverHistories, a fifth of them with -race")
	failoverKind  = flag.String("failover.kind", "", "only the kinds of TestFailoverHistories whose names begin so")
	failoverFor   = flag.Duration("failover.for", 5*time.Second, "how long TestFailoverInRealTime goes on")
	failoverKeep  = flag.String("failover.keep", "", "folder for the histories of failures [testdata/failover]; with it all of them are kept")
	failoverLog   = flag.Bool("failover.log", false, "show what the brokers log")
	failoverBreak = flag.Int("failover.break", 0, "number of a rule in ha/guard.go to take away, with the build tag mutate")
	historyFile   = flag.String("history.file", "", "judge this history again")
)

const (
	historyTopic  = "T"
	historyQueues = 3
	historyGroup  = "broker-a"
)

// historyKind is a kind of cluster, and what it promises.
type historyKind struct {
	name   string
	slaves int
	dir    bool // a folder of its own: power can be lost
	config pocketmq.BrokerConfig
	faults []faultKind
	// What holds for it.
	promise history.Promise
}

func (k historyKind) failover() bool { return k.config.Failover }

// historyKinds are the clusters. Without failover a master that is lost is missed until
// it is back, which the promises allow.
func historyKinds() []historyKind {
	sync3 := pocketmq.BrokerConfig{Failover: true, Replication: pocketmq.SyncReplication}
	power := sync3
	power.Flush = pocketmq.SyncFlush
	async := pocketmq.BrokerConfig{Failover: true}
	plain := pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}
	cache := sync3
	cache.MinInSyncReplicas = 2
	plainPower := plain
	plainPower.Flush = pocketmq.SyncFlush
	kept := history.Promise{Kept: true, Firm: true}
	lasting := slices.Concat(killing, networking, stalling)
	return []historyKind{
		{name: "failover", slaves: 2, config: sync3, faults: slices.Concat(lasting, controlling), promise: kept},
		{name: "power", slaves: 2, dir: true, config: power, faults: slices.Concat(lasting, controlling, powering), promise: kept},
		// Nothing is synced. Who loses power loses what the others have, as long as they keep it.
		{name: "cache", slaves: 2, dir: true, config: cache, faults: slices.Concat(lasting, controlling, spared), promise: kept},
		{name: "five", slaves: 4, config: sync3, faults: slices.Concat(lasting, controlling), promise: kept},
		// What only the master has may be lost with it: that is what async means.
		{name: "async", slaves: 2, config: async, faults: slices.Concat(lasting, controlling), promise: history.Promise{Firm: true}},
		{name: "plain", slaves: 2, config: plain, faults: lasting, promise: kept},
		{name: "plainpower", slaves: 2, dir: true, config: plainPower, faults: slices.Concat(lasting, powering), promise: history.Promise{Kept: true}},
	}
}

// TestFailoverHistories lets producers and consumers work while members of their broker
// group are killed and links are cut, until all is quiet, and judges what they saw:
//
//	go test . -run TestFailoverHistories -failover.seed 7 -failover.count 100 -failover.kind power
//
// A seed fixes what is sent, what is broken when, and all that is drawn; which of two
// goroutines that are ready comes first it does not. What is wrong with a history, and
// why that is no misunderstanding, is told at history.Check. The history of a failure
// is kept and can be judged again:
//
//	go test . -run TestHistoryFile -history.file testdata/failover/power-7.jsonl
func TestFailoverHistories(t *testing.T) {
	first := *failoverSeed
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	if *failoverBreak != 0 {
		require.NoError(t, breakRule(*failoverBreak))
	}
	var sum historySum
	t.Run("seeds", func(t *testing.T) {
		for _, kind := range historyKinds() {
			if !strings.HasPrefix(kind.name, *failoverKind) {
				continue
			}
			for i := range uint64(rounds(*failoverCount)) {
				seed := first + i
				t.Run(fmt.Sprintf("%s/%d", kind.name, seed), func(t *testing.T) {
					bubble(t, func(t *testing.T) { newHistoryRun(t, kind, seed, true).run(&sum) })
				})
			}
		}
	})
	t.Log(sum.String())
	t.Log("faults: ", fmt.Sprint(sum.kinds)[len("map"):])
	if sum.runs.Load() >= 100 && *failoverKind == "" {
		assert.Empty(t, sum.missing(), "kinds of faults that were not tried")
	}
}

// TestFailoverInRealTime is the same on the real scheduler and over TCP, where links
// are as they are: members are killed, stopped and started, and their disks fail.
func TestFailoverInRealTime(t *testing.T) {
	t.Parallel()
	kinds := historyKinds()
	var sum historySum
	for begin, n := time.Now(), 0; n == 0 || time.Since(begin) < *failoverFor; n++ {
		kind := kinds[n%len(kinds)]
		if !strings.HasPrefix(kind.name, *failoverKind) {
			continue
		}
		seed := *failoverSeed + uint64(n)
		if *failoverSeed == 0 {
			seed = rand.Uint64N(1 << 40)
		}
		if !t.Run(fmt.Sprintf("%s/%d", kind.name, seed), func(t *testing.T) { newHistoryRun(t, kind, seed, false).run(&sum) }) {
			break
		}
	}
	t.Log(sum.String())
}

func TestHistoryFile(t *testing.T) {
	if *historyFile == "" {
		t.Skip("needs -history.file")
	}
	h, err := history.Load(*historyFile)
	require.NoError(t, err)
	assert.Empty(t, history.Check(h))
}

// historySum counts over all runs.
type historySum struct {
	runs, faults, elections, acknowledged, stored, failed, consumed, failures atomic.Int64

	mu    sync.Mutex // guards kinds
	kinds map[faultKind]int
}

func (s *historySum) did(kind faultKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = make(map[faultKind]int)
	}
	s.kinds[kind]++
}

// missing are the kinds of faults that never took effect.
func (s *historySum) missing() (list []faultKind) {
	for _, k := range historyKinds() {
		for _, f := range k.faults {
			if s.kinds[f] == 0 && !slices.Contains(list, f) {
				list = append(list, f)
			}
		}
	}
	return list
}

func (s *historySum) String() string {
	return fmt.Sprintf("%d runs, %d failures: %d faults, %d elections, %d sends acknowledged, %d stored only, %d failed, %d deliveries",
		s.runs.Load(), s.failures.Load(), s.faults.Load(), s.elections.Load(), s.acknowledged.Load(), s.stored.Load(), s.failed.Load(), s.consumed.Load())
}

// historyRun is one run.
type historyRun struct {
	historyKind
	t       *testing.T
	seed    uint64
	virtual bool
	rnd     *rand.Rand // of the schedule
	tm      pocketmq.Timings
	begin   time.Time
	cluster *pocketmq.Cluster
	dirs    map[int64]string
	members []int64
	byAddr  map[netip.AddrPort]int64
	state   faultState
	senders sync.WaitGroup
	stop    context.CancelFunc // of the senders

	mu sync.Mutex // guards h
	h  history.History
}

func newHistoryRun(t *testing.T, kind historyKind, seed uint64, virtual bool) *historyRun {
	r := &historyRun{
		historyKind: kind, t: t, seed: seed, virtual: virtual, rnd: rand.New(rand.NewPCG(seed, 0)),
		dirs: make(map[int64]string), byAddr: make(map[netip.AddrPort]int64), tm: pocketmq.DefaultTimings(),
	}
	for id := range int64(1 + kind.slaves) {
		r.members = append(r.members, id)
	}
	if !virtual {
		r.tm = mqtest.Fast()
		r.tm.LeaseRenew, r.tm.LeaseExpire = 100*time.Millisecond, time.Second
		r.tm.HAHeartbeat, r.tm.HAHousekeeping, r.tm.HARedial = 200*time.Millisecond, time.Second, 200*time.Millisecond
		r.tm.ReplicationTimeout, r.tm.SlaveSync = time.Second, 200*time.Millisecond
		r.tm.LockExpire, r.tm.LockClientLife = 2*time.Second, time.Second
		r.tm.ClientExpire = 2 * time.Second
	}
	return r
}

// pace is d, or as much less as time is shorter outside of bubbles.
func (r *historyRun) pace(d time.Duration) time.Duration {
	if r.virtual {
		return d
	}
	return d / 10
}

func (r *historyRun) run(sum *historySum) {
	r.start()
	closed := false
	defer func() {
		if !closed { // a failed requirement
			_ = r.cluster.Close()
		}
	}()
	r.work()
	r.breakThings(sum)
	r.calm()
	r.settle()
	for _, id := range r.members {
		r.checkStore(id)
	}
	r.endMembers()
	r.read()
	require.NoError(r.t, r.cluster.Close(), r.what())
	closed = true
	r.judge(sum)
}

func (r *historyRun) what() string { return fmt.Sprintf("%s, seed %d", r.name, r.seed) }

func (r *historyRun) now() time.Duration { return time.Since(r.begin) }

func (r *historyRun) add(e history.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h = append(r.h, e)
}

func (r *historyRun) start() {
	r.begin = time.Now()
	promise := r.promise
	promise.Ordered = []string{"ordered"}
	if promise.Firm { // or a place that a consumer has passed may be given out again
		promise.Consumed = []string{"shared", "ordered"}
	}
	if r.failover() && r.virtual {
		promise.Master = r.tm.LeaseExpire + 2*r.tm.LeaseRenew
	}
	r.add(history.Entry{Kind: history.Run, Text: r.what(), Promise: &promise})
	cfg := pocketmq.ClusterConfig{
		Groups: pair(r.slaves, r.config), Topics: map[string]int{historyTopic: historyQueues}, Timings: r.tm, OnEvent: r.happened,
	}
	cfg.Groups[0].Config.CommitLogFileSize = 64 << 10
	if r.dir {
		cfg.Dir = r.t.TempDir()
	}
	if !r.virtual {
		cfg.Transport = pocketmq.TCP("127.0.0.1")
	}
	if *failoverLog {
		cfg.Logger = testLogger(r.t, r.begin)
	}
	var err error
	r.cluster, err = pocketmq.StartCluster(r.t.Context(), cfg)
	require.NoError(r.t, err, r.what())
	for b := range r.cluster.Brokers() {
		at, err := netip.ParseAddrPort(b.Addr())
		require.NoError(r.t, err)
		r.byAddr[at], r.dirs[b.ID()] = b.ID(), b.Dir()
	}
}

func (r *historyRun) happened(e pocketmq.Event) {
	if e, ok := e.(pocketmq.Elected); ok {
		id := int64(-1)
		_, err := fmt.Sscanf(e.Node, historyGroup+"/%d", &id)
		assert.NoError(r.t, err)
		r.add(history.Entry{Kind: history.Elected, At: e.Time.Sub(r.begin), Broker: id, Epoch: e.Epoch})
	}
}

// work starts producers and consumers.
func (r *historyRun) work() {
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop = stop
	for i := range 3 {
		rnd := rand.New(rand.NewPCG(r.seed, uint64(1+i)))
		p, err := r.cluster.StartProducer(ctx, pocketmq.ProducerConfig{
			SendTimeout: r.pace(time.Duration(2+3*i) * time.Second), Retries: pocketmq.NoRetries,
		})
		require.NoError(r.t, err, r.what())
		r.senders.Go(func() { r.send(ctx, p, fmt.Sprint("p", i), rnd) })
	}
	for _, group := range []string{"shared", "shared", "ordered"} {
		_, err := r.cluster.StartConsumer(ctx, pocketmq.ConsumerConfig{
			Group: group, Subscriptions: all(historyTopic), From: pocketmq.FromFirstOffset, Orderly: group == "ordered",
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				for _, m := range msgs {
					r.add(history.Entry{Kind: history.Got, At: r.now(), Who: group, Body: string(m.Body), Queue: m.Queue.QueueID, Offset: m.QueueOffset})
				}
				return nil
			},
		})
		require.NoError(r.t, err, r.what())
	}
}

// send sends messages one after the other until ctx ends.
func (r *historyRun) send(ctx context.Context, p *pocketmq.Producer, who string, rnd *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		m := text(historyTopic, "%s-%d", who, n)
		m.NoWait = rnd.IntN(8) == 0
		q := queue(historyTopic, historyGroup, rnd.IntN(historyQueues))
		pause := r.pace(time.Duration(rnd.Int64N(int64(200 * time.Millisecond))))
		e := history.Entry{Kind: history.Send, At: r.now(), Who: who, Body: string(m.Body), Queue: q.QueueID, NoWait: m.NoWait, Outcome: history.Failed}
		res, err := p.SendTo(context.WithoutCancel(ctx), q, m)
		e.Until = r.now()
		if res != nil {
			e.Outcome, e.Offset = history.Stored, res.QueueOffset
			host, position, perr := message.ParseOffsetMsgID(res.OffsetMsgID)
			if assert.NoError(r.t, perr) {
				e.Position, e.Broker = position, r.byAddr[host]
			}
		}
		if err == nil {
			e.Outcome = history.Acknowledged
		} else {
			e.Text = err.Error()
			pause *= 3
		}
		r.add(e)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// calm makes everything whole, and waits for the first acknowledgement after that.
func (r *historyRun) calm() {
	r.mend()
	limit := time.Now().Add(r.slack(time.Minute))
	for b := range r.cluster.Brokers() { // a store needs a while to notice that its disk is well
		for b.Status().Err != nil && time.Now().Before(limit) {
			time.Sleep(r.pace(100 * time.Millisecond))
		}
	}
	e := history.Entry{Kind: history.Quiet, At: r.now()}
	limit = time.Now().Add(r.slack(3 * time.Minute))
	for n := 0; e.Until == 0 && time.Now().Before(limit); n++ {
		if r.probe(n) {
			e.Until = r.now()
			break
		}
		time.Sleep(r.tm.LeaseRenew / 10)
	}
	r.add(e)
	// The producers notice, too.
	time.Sleep(r.pace(5 * time.Second))
	r.stop()
	r.senders.Wait()
}

func (r *historyRun) slack(d time.Duration) time.Duration {
	if r.virtual {
		return d
	}
	return d/10 + 30*time.Second
}

// probe sends a message to whoever is master, past routes and producers.
func (r *historyRun) probe(n int) bool {
	for b := range r.cluster.Brokers() {
		st := b.Status()
		if st.Role != pocketmq.RoleMaster || !st.Writable {
			continue
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), r.tm.LeaseRenew)
		conn, err := r.cluster.Transport().DialBroker(ctx, protocol.Dial{Node: "probe", Addr: b.Addr()})
		if err == nil {
			body := fmt.Sprint("probe-", n)
			e := history.Entry{Kind: history.Send, At: r.now(), Who: "probe", Body: body, Outcome: history.Failed, Broker: b.ID()}
			var resp *protocol.SendMessageResponse
			resp, err = conn.SendMessage(ctx, &protocol.SendMessageRequest{ProducerGroup: "probe", Topic: historyTopic, Body: []byte(body), BornTime: time.Now()})
			e.Until = r.now()
			if resp != nil {
				e.Outcome, e.Offset = history.Stored, resp.QueueOffset
				_, e.Position, _ = message.ParseOffsetMsgID(resp.MsgID)
			}
			if err == nil {
				e.Outcome = history.Acknowledged
			} else {
				e.Text = err.Error()
			}
			r.add(e)
			_ = conn.Close()
		}
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// settle waits until all members have the same log, and consumers have come to its end.
func (r *historyRun) settle() {
	limit := time.Now().Add(r.slack(5 * time.Minute))
	for why := r.unsettled(); why != ""; why = r.unsettled() {
		if time.Now().After(limit) {
			r.add(history.Entry{Kind: history.Fault, At: r.now(), Text: "never settled: " + why})
			r.t.Errorf("%s: never settled: %s", r.what(), why)
			return
		}
		time.Sleep(r.pace(time.Second))
	}
}

// unsettled tells what is not as it will be, "" for nothing.
func (r *historyRun) unsettled() string {
	end := int64(-1)
	for b := range r.cluster.Brokers() {
		st := b.Status()
		if st.Err != nil {
			return fmt.Sprintf("member %d: %v", b.ID(), st.Err)
		}
		if end < 0 {
			end = st.WrittenPosition
		}
		if st.WrittenPosition != end || st.DispatchedPosition != end {
			return fmt.Sprintf("member %d is %v, has written %d and dispatched %d, another one has %d; its master: %v", b.ID(), st.Role, st.WrittenPosition, st.DispatchedPosition, end, st.Master.Err)
		}
	}
	for _, group := range []string{"shared", "ordered"} {
		for b := range r.cluster.Brokers() {
			if b.Role() != pocketmq.RoleMaster {
				continue
			}
			g, _ := b.Group(group)
			n := 0
			for _, q := range g.Queues {
				if q.Queue.Topic == historyTopic {
					n++
				}
				if q.Lag > 0 {
					return fmt.Sprintf("group %s lags in %v: %d of %d committed", group, q.Queue, q.Committed, q.Max)
				}
			}
			if n < historyQueues {
				return fmt.Sprintf("group %s is known in %d queues", group, n)
			}
		}
	}
	return ""
}

func (r *historyRun) checkStore(id int64) {
	assert.NoError(r.t, r.cluster.Broker(historyGroup, id).Check(context.WithoutCancel(r.t.Context())), "%s: store of member %d", r.what(), id)
}

// endMembers ends all members: half of them as a crash would.
func (r *historyRun) endMembers() {
	for _, id := range r.members {
		if (r.seed+uint64(id))%2 == 0 {
			assert.NoError(r.t, r.cluster.Kill(historyGroup, id), r.what())
		} else {
			assert.NoError(r.t, r.cluster.Broker(historyGroup, id).Close(), r.what())
		}
	}
}

// read reads the logs of all members from their folders.
func (r *historyRun) read() {
	codec := message.NewCodec()
	defer codec.Close()
	for _, id := range r.members {
		s, err := store.Open(store.Config{
			Dir: r.dirs[id], Cluster: "DefaultCluster", Broker: historyGroup, ID: id, Throwaway: !r.dir, Retention: -1, MinFreeBytes: -1,
		})
		require.NoError(r.t, err, "%s: member %d", r.what(), id)
		at := s.Positions()
		e := history.Entry{Kind: history.Member, Broker: id, Offset: at.Min, Position: at.Written}
		if err := errors.Join(s.Err(), s.Check(context.Background())); err != nil {
			e.Text = err.Error()
		}
		r.add(e)
		for next := at.Min; next <= at.Written; {
			b, err := s.ReadLog(next, 1<<20)
			require.NoError(r.t, err, r.what())
			for i, rec := range b.Records {
				m, err := codec.DecodeExt(rec, historyGroup, historyTopic)
				if err != nil || m.Topic != historyTopic {
					continue
				}
				r.add(history.Entry{
					Kind: history.Record, Broker: id, Position: b.First + int64(i), Epoch: b.Epoch, Queue: m.Queue.QueueID, Offset: m.QueueOffset,
					Body: string(m.Body), From: r.byAddr[m.StoreHost],
				})
			}
			next = b.Last() + 1
		}
		require.NoError(r.t, s.Kill(), r.what())
	}
}

// judge judges the history, and keeps it when something is wrong.
func (r *historyRun) judge(sum *historySum) {
	if r.virtual {
		synctest.Wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wrong := history.Check(r.h)
	sum.runs.Add(1)
	for _, e := range r.h {
		switch {
		case e.Kind == history.Fault:
			sum.faults.Add(1)
		case e.Kind == history.Elected:
			sum.elections.Add(1)
		case e.Kind == history.Got:
			sum.consumed.Add(1)
		case e.Kind == history.Send && e.Outcome == history.Acknowledged:
			sum.acknowledged.Add(1)
		case e.Kind == history.Send && e.Outcome == history.Stored:
			sum.stored.Add(1)
		case e.Kind == history.Send:
			sum.failed.Add(1)
		}
	}
	if len(wrong) > 0 {
		r.t.Errorf("%s: %s", r.what(), strings.Join(wrong, "\n\t"))
	}
	if r.t.Failed() {
		sum.failures.Add(1)
	}
	if r.t.Failed() || *failoverKeep != "" {
		dir := *failoverKeep
		if dir == "" {
			dir = filepath.Join("testdata", "failover")
		}
		path, err := r.h.Save(dir, fmt.Sprintf("%s-%d.jsonl", r.name, r.seed))
		r.t.Logf("the history is in %s (%v)", path, err)
	}
}
