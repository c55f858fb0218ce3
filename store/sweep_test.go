package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// A crash sweep runs one scripted workload and tries a crash at every moment of
// it at which something becomes durable, and between any two of its steps.

// scripted is a run of the workload.
type scripted struct {
	t    *testing.T
	cfg  Config
	disk syncer
	s    *Store

	mu       sync.Mutex // guards the rest; syncs are seen on goroutines of the store
	order    []entry    // what was given to Append
	promised int        // how many of those no loss of power may take

	// tolerant runs end at the first error, which is put here.
	tolerant bool
	failed   error
	// between is called after each step.
	between func()
}

// lives are the ways in which the workload is run.
var lives = []struct {
	name   string
	change func(*Config)
}{
	{"AsyncFlush", func(*Config) {}},
	{"SyncFlush", func(c *Config) { c.SyncFlush = true }},
	{"retention", func(c *Config) {
		c.RetentionBytes, c.Retention, c.CleanInterval = 4*c.FileSize, time.Hour, time.Second
	}},
}

// ok ends the test, or a tolerant run, when there is an error.
func (r *scripted) ok(err error) bool {
	if !r.tolerant {
		require.NoError(r.t, err)
	} else if err != nil {
		r.failed = err
	}
	return err == nil
}

// run does the steps of the workload up to the n-th, or to an error.
func (r *scripted) run(n int) {
	for i, step := range r.workload() {
		if i == n || r.failed != nil {
			return
		}
		step()
		if r.between != nil {
			synctest.Wait() // the janitor may be at work still
			r.between()
		}
	}
}

// entry is one record of the workload.
type entry struct {
	drop   bool // it drops the topic of queue, and is silent
	queue  QueueID
	body   string
	silent bool
}

// record is the record of the n-th entry, counted from 0.
func (e entry) record(n int) *message.Record {
	rec := keyedRecord(e.queue.Topic, e.body, fmt.Sprint("uniq", n), fmt.Sprint("all key", n%10))
	rec.QueueID = int32(e.queue.ID)
	return rec
}

func newScripted(t *testing.T, change func(*Config), disk syncer) *scripted {
	r := &scripted{t: t, cfg: sweepConfig(t), disk: disk}
	change(&r.cfg)
	return r
}

// sweepConfig has tables and index files so small that there are many.
func sweepConfig(t *testing.T) Config {
	cfg := testConfig(t)
	cfg.tableEntries, cfg.indexBlocks = 60, 6
	return cfg
}

func (r *scripted) open() {
	s, err := open(r.cfg, r.disk)
	if !r.ok(err) || !r.ok(s.Err()) {
		return
	}
	r.t.Cleanup(func() {
		if !s.closed.Load() {
			assert.NoError(r.t, s.Kill())
		}
	})
	r.s = s
	r.settled() // opening makes what it finds durable
}

// end ends the store, and checks it before unless something has failed.
func (r *scripted) end(how func(*Store) error) bool {
	return r.ok(r.s.Check(r.t.Context())) && r.ok(how(r.s))
}

// settled notes that all there is must survive.
func (r *scripted) settled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.promised = len(r.order)
}

func (r *scripted) sync() {
	if r.ok(r.s.Sync(r.t.Context())) {
		r.settled()
	}
}

func (r *scripted) close() {
	if r.end((*Store).Close) {
		r.settled()
	}
}

// put appends n records of a queue in one batch.
func (r *scripted) put(topic string, queue, n, size int) { r.append(topic, queue, n, size, 0) }

func (r *scripted) append(topic string, queue, n, size int, sysFlag int32) {
	b := r.s.NewBatch()
	r.mu.Lock()
	for range n {
		e := entry{queue: QueueID{topic, queue}, body: fmt.Sprintf("%d %s", len(r.order), strings.Repeat("x", size)), silent: sysFlag != 0}
		rec := e.record(len(r.order))
		rec.SysFlag = sysFlag
		require.NoError(r.t, b.Add(rec))
		r.order = append(r.order, e)
	}
	r.mu.Unlock()
	if _, err := r.s.Append(r.t.Context(), b, AppendOptions{}); r.ok(err) && r.cfg.SyncFlush {
		r.settled()
	}
}

// drop drops a topic.
func (r *scripted) drop(topic string) func() {
	return func() {
		r.mu.Lock()
		r.order = append(r.order, entry{queue: QueueID{Topic: topic}, silent: true, drop: true})
		r.mu.Unlock()
		if r.ok(r.s.DropTopic(r.t.Context(), topic)) {
			r.settled()
		}
		synctest.Wait()
	}
}

// powerOff cuts the list to what has survived.
func (r *scripted) powerOff() {
	if !r.end((*Store).PowerOff) {
		return
	}
	promised := r.promised
	if r.open(); r.failed != nil {
		return
	}
	written := int(r.s.Positions().Written)
	require.GreaterOrEqual(r.t, written, promised)
	require.LessOrEqual(r.t, written, len(r.order))
	r.mu.Lock()
	r.order = r.order[:written]
	r.mu.Unlock()
	r.settled()
}

// workload is what a store meets in its life, in steps.
func (r *scripted) workload() []func() {
	wait := func(d time.Duration) func() { return func() { time.Sleep(d); synctest.Wait() } }
	put := func(topic string, queue, n, size int) func() {
		return func() { r.put(topic, queue, n, size); synctest.Wait() }
	}
	return []func(){
		r.open,
		put("T", 0, 1, 10),
		wait(DefaultFlushInterval),
		put("T", 1, 7, 100),
		func() { r.append("T", 0, 2, 50, message.FlagTransactionPrepared); synctest.Wait() },
		put("U", 0, 3, 1000), // more than half a file
		put("T", 0, 5, 400),  // more than a file
		put("T", 1, 1, 20),
		r.sync,
		put("U", 0, 215, 0), // a block of a queue
		wait(DefaultCheckpointInterval),
		put("U", 0, 3, 0),
		r.drop("T"),
		put("V", 3, 210, 0),
		wait(DefaultFlushInterval),
		r.close,
		r.open,
		put("T", 0, 4, 300),
		put("V", 3, 4, 1500),
		r.sync,
		put("V", 3, 200, 0),
		r.drop("U"),
		put("U", 0, 1, 10),
		func() { r.end((*Store).Kill) },
		r.open,
		put("T", 1, 2, 10),
		wait(DefaultCheckpointInterval + DefaultFlushInterval),
		put("T", 2, 3, 100),
		r.powerOff,
		put("T", 2, 5, 900),
		r.drop("T"),
		put("T", 1, 1, 10),
		wait(2 * DefaultCheckpointInterval),
		put("T", 0, 1, 10),
		wait(2 * time.Hour), // an idle log is deleted, whole
		put("U", 0, 1, 10),
		r.sync,
		r.powerOff,
		put("V", 3, 1, 10),
		wait(2 * time.Hour),
		r.powerOff,
		put("V", 3, 1, 10),
		r.close,
	}
}

// crashPoint is a folder as a crash may have left it, and what it must hold.
type crashPoint struct {
	what     string
	dir      string // of a copy
	promised int
	order    []entry
	min      int64                    // first position, at the latest
	bytes    map[string]int64         // as in a ledger, relative
	names    map[string][]string      // as in a ledger, relative
	former   map[string][]formerBytes // as above
	earlier  map[string]string        // folder, relative -> copy made at its last sync
}

// pointAt copies what there is now. The copies of a folder's files are in an
// order in which something later never lacks what it builds on.
func (r *scripted) pointAt(what string, earlier map[string]string) crashPoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := crashPoint{
		what: what, dir: copyChanging(r.t, r.cfg.Dir), promised: r.promised, order: slices.Clone(r.order),
		bytes: make(map[string]int64), names: make(map[string][]string), former: make(map[string][]formerBytes), earlier: make(map[string]string),
	}
	relative := func(path string) string {
		name, err := filepath.Rel(r.cfg.Dir, path)
		require.NoError(r.t, err)
		return name
	}
	l := r.disk.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for path, n := range l.bytes {
		p.bytes[relative(path)] = n
	}
	for path, pieces := range l.former {
		p.former[relative(path)] = slices.Clone(pieces)
	}
	for dir, names := range l.names {
		for name := range names {
			p.names[relative(dir)] = append(p.names[relative(dir)], name)
		}
		slices.Sort(p.names[relative(dir)])
	}
	for dir, copied := range earlier {
		p.earlier[relative(dir)] = copied
	}
	return p
}

// left is the folder itself, whose store has ended.
func (r *scripted) left(what string) crashPoint {
	return crashPoint{what: what, promised: r.promised, order: r.order, min: r.s.Positions().Min}
}

// copyChanging copies a folder in which names may come and go.
func copyChanging(t *testing.T, dir string) string {
	to := filepath.Join(quickDir(t), "copy")
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o750)
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, os.WriteFile(filepath.Join(to, name), data, 0o640))
	})
	require.NoError(t, err)
	return to
}

// lose makes a copy of the point's folder and takes away what a loss of power may
// take: all of it without rng, else some of it.
func (p *crashPoint) lose(t *testing.T, rng *rand.Rand) string {
	dir := copyDir(t, p.dir)
	gone := func() bool { return rng == nil || rng.IntN(2) == 0 }
	for parent, names := range p.names {
		for _, name := range names {
			if gone() {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, parent, name)))
			}
		}
	}
	for name, pieces := range p.former {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil || !gone() {
			continue
		}
		require.NoError(t, putBack(path, pieces))
		for _, piece := range pieces {
			if rng != nil && rng.IntN(2) == 0 { // half of the write
				overwrite(t, path, int(piece.at), piece.data[:rng.IntN(len(piece.data))])
				overwrite(t, path, int(piece.at)+rng.IntN(len(piece.data)), []byte{byte(rng.Uint32())})
			}
		}
	}
	for name, bytes := range p.bytes {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || int64(len(data)) <= bytes {
			continue
		}
		require.NoError(t, err)
		at := bytes
		if rng != nil {
			at += rng.Int64N(int64(len(data)) - bytes + 1)
		}
		switch {
		case rng == nil || rng.IntN(3) == 0:
			data = data[:at]
		case rng.IntN(2) == 0:
			clear(data[at:])
		default: // one page of it
			clear(data[at:min(int64(len(data)), at+512)])
		}
		require.NoError(t, os.WriteFile(path, data, 0o640))
	}
	if rng == nil {
		return dir
	}
	// What was removed or replaced after the last sync of its folder may be back.
	for parent, copied := range p.earlier {
		names, err := os.ReadDir(filepath.Join(copied, parent))
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, parent)); err != nil {
			continue // the folder itself is lost
		}
		for _, e := range names {
			from, to := filepath.Join(copied, parent, e.Name()), filepath.Join(dir, parent, e.Name())
			_, err := os.Stat(to)
			replaced := err == nil && slices.Contains([]string{checkpointName, firstName}, e.Name())
			if err == nil && !replaced || gone() {
				continue
			}
			require.NoError(t, os.RemoveAll(to))
			if e.IsDir() {
				require.NoError(t, os.CopyFS(to, os.DirFS(from)))
				continue
			}
			data, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, data, 0o640))
		}
	}
	return dir
}

// opened opens a folder that a crash left at this point, and returns what must be
// in it.
func (p *crashPoint) opened(t *testing.T, cfg *Config, dir, what string) (*Store, []entry) {
	t.Helper()
	cfg.Dir = dir
	cfg.Retention, cfg.RetentionBytes = -1, -1 // or it would go on while we look
	s := mustOpen(t, *cfg)
	require.NoError(t, s.Err(), what)
	written := int(s.Positions().Written)
	require.GreaterOrEqual(t, written, p.promised, what)
	require.LessOrEqual(t, written, len(p.order), what)
	require.LessOrEqual(t, s.Positions().Min, max(1, p.min), what)
	return s, p.order[:written]
}

// compare opens such a folder and compares all queues.
func (p *crashPoint) compare(t *testing.T, cfg Config, dir, how string) {
	t.Helper()
	what := fmt.Sprintf("%s, %s", p.what, how)
	s, order := p.opened(t, &cfg, dir, what)
	compareQueues(t, s, order, what)
	mustKill(t, s)
	require.NoError(t, os.RemoveAll(dir))
}

// verify is compare, and checks the store and its key index, goes on with it, and
// does the same again after another crash.
func (p *crashPoint) verify(t *testing.T, cfg Config, dir, how string) {
	t.Helper()
	what := fmt.Sprintf("%s, %s", p.what, how)
	s, order := p.opened(t, &cfg, dir, what)
	order = append(slices.Clone(order), entry{queue: QueueID{"T", 0}, body: "new"})
	_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "new"), AppendOptions{})
	require.NoError(t, err, what)
	compareEntries(t, s, order, what)
	mustKill(t, s)
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err(), what)
	compareEntries(t, s, order, what) // with a Check
	require.NoError(t, s.Close(), what)
	require.NoError(t, os.RemoveAll(dir))
}

// compareEntries demands that a store holds exactly these records, but for those
// before its first position.
func compareEntries(t *testing.T, s *Store, order []entry, what string) {
	t.Helper()
	compareQueues(t, s, order, what)
	// Check looks at every key; this, whether queries find them.
	for i := len(order) - 1; i >= 0; i -= 1 + len(order)/20 {
		e := order[i]
		if e.silent || e.body == "new" {
			continue
		}
		found, err := s.QueryKey(t.Context(), KeyQuery{Topic: e.queue.Topic, Key: fmt.Sprint("uniq", i), Max: 2})
		require.NoError(t, err, what)
		if int64(i)+1 < s.Positions().Min {
			require.Empty(t, found, "%s: key of position %d", what, i+1)
			continue
		}
		require.Len(t, found, 1, "%s: key of position %d", what, i+1)
		require.Equal(t, e.body, string(message.View(found[0]).Body()), what)
	}
	require.NoError(t, s.Check(t.Context()), what)
}

// compareQueues is compareEntries for what the queues and the log hold.
func compareQueues(t *testing.T, s *Store, order []entry, what string) {
	t.Helper()
	want, min := make(map[QueueID][]string), make(map[QueueID]int)
	for i, e := range order {
		if e.drop {
			maps.DeleteFunc(want, func(id QueueID, _ []string) bool { return id.Topic == e.queue.Topic })
			maps.DeleteFunc(min, func(id QueueID, _ int) bool { return id.Topic == e.queue.Topic })
		}
		if e.silent {
			continue
		}
		want[e.queue] = append(want[e.queue], e.body)
		if int64(i)+1 < s.Positions().Min {
			min[e.queue]++
		}
	}
	for id, texts := range want {
		require.Equal(t, Range{int64(min[id]), int64(len(texts))}, Range{s.MinOffset(id.Topic, id.ID), s.MaxOffset(id.Topic, id.ID)}, "%s: %v", what, id)
		require.Equal(t, append([]string{}, texts[min[id]:]...), append([]string{}, bodies(t, s, id.Topic, id.ID)...), "%s: %v", what, id)
	}
	for id, r := range s.Queues() {
		require.Equal(t, int64(len(want[id])), r.Max, "%s: %v", what, id)
	}
	require.Equal(t, int64(len(order)), s.Positions().Written, what)
}

func TestACrashAtAnySyncLosesNothingThatWasPromised(t *testing.T) {
	t.Parallel()
	for _, life := range lives {
		t.Run(life.name, func(t *testing.T) {
			t.Parallel()
			rng := newSeed(t)
			points := syncPoints(t, life.change)
			require.Greater(t, len(points), 50)
			firsts := make(map[int64]bool)
			for _, p := range points {
				firsts[p.min] = true
			}
			require.Equal(t, life.name == "retention", len(firsts) > 3, "%v", firsts)
			cfg := sweepConfig(t)
			for i, p := range points {
				p.what = fmt.Sprintf("point %d of %d, %s", i, len(points), p.what)
				verify := func(dir, how string) {
					if crashRounds(t) > 3 || rng.IntN(10) == 0 { // in ordinary runs some of them
						p.verify(t, cfg, dir, how)
					} else {
						p.compare(t, cfg, dir, how)
					}
				}
				verify(copyDir(t, p.dir), "everything left")
				verify(p.lose(t, nil), "the least left")
				for range crashRounds(t) / 3 {
					verify(p.lose(t, rng), "something left")
				}
			}
		})
	}
}

// syncPoints runs the workload and returns a point before and after every sync.
func syncPoints(t *testing.T, change func(*Config)) (points []crashPoint) {
	synctest.Test(t, func(inner *testing.T) {
		disk := durable()
		disk.ledger = newLedger()
		r := newScripted(inner, change, disk)
		earlier := make(map[string]string)
		var mu sync.Mutex // guards points and earlier: syncs may overlap
		note := func(what, path string, folder bool) {
			mu.Lock()
			defer mu.Unlock()
			name, err := filepath.Rel(r.cfg.Dir, path)
			if err != nil || strings.HasPrefix(name, "..") {
				return // the parents of the data folder
			}
			p := r.pointAt(what+" "+name, earlier)
			p.dir = copyDir(t, p.dir) // outlives the bubble
			points = append(points, p)
			if folder {
				earlier[path] = p.dir
			}
		}
		r.disk.file = func(f *os.File) error {
			note("before sync of", f.Name(), false)
			err := f.Sync()
			note("after sync of", f.Name(), false)
			return err
		}
		r.disk.dir = func(path string) error {
			note("before sync of", path, false)
			err := syncDir(path)
			note("after sync of", path, true)
			return err
		}
		complete := 0
		r.between = func() {
			mu.Lock()
			defer mu.Unlock()
			for ; complete < len(points); complete++ {
				points[complete].min = r.s.Positions().Min
			}
		}
		r.run(-1)
	})
	return points
}

func TestALossOfPowerAtAnyStepLosesNothingThatWasPromised(t *testing.T) {
	t.Parallel()
	for _, life := range lives {
		t.Run(life.name, func(t *testing.T) {
			t.Parallel()
			n := 2
			for i := 1; i < n; i++ {
				synctest.Test(t, func(t *testing.T) {
					r := newScripted(t, life.change, durable())
					n = len(r.workload())
					r.run(i)
					if r.s.closed.Load() {
						return // nothing is left to be lost
					}
					require.NoError(t, r.s.PowerOff())
					p := r.left(fmt.Sprintf("step %d of %d", i, n))
					p.verify(t, r.cfg, r.cfg.Dir, "power off")
				})
			}
		})
	}
}

// sleepThroughCheckpoints waits until a store has had time for all that it does
// in the background. It is for bubbles.
func sleepThroughCheckpoints() {
	time.Sleep(3 * DefaultCheckpointInterval)
	synctest.Wait()
}
