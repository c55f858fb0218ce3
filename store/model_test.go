package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// model is what a store must hold: texts by queue.
type model struct {
	t      *testing.T
	rng    *rand.Rand
	cfg    Config
	s      *Store
	queues map[QueueID][]string
	order  []placed // what is at each position
	min    int64    // what the store said last of its first position
	synced int      // positions that no crash may take
}

// placed is what is at one position: a record, or the drop of a topic.
type placed struct {
	id     QueueID
	offset int
	text   string
	time   int64 // when it was stored, milliseconds
	drop   bool
}

// keyed are the keys of the record at a position.
func (p placed) keyed(position int) keyed {
	n, _, _ := strings.Cut(p.text, "-")
	return keyed{topic: p.id.Topic, body: p.text, uniq: "u" + n, keys: "all k" + n[len(n)-1:], time: p.time, position: int64(position)}
}

// Random things are done with a store and with a map, which must agree. The seed
// is in the output of a failure; -store.seed sets it.
func TestModelOfRandomUseAndCrashes(t *testing.T) {
	t.Parallel()
	for range crashRounds(t) {
		rng := newSeed(t)
		cfg := testConfig(t)
		cfg.Dir = quickDir(t)
		cfg.FileSize = []int64{MinFileSize, 16 << 10, 1 << 20}[rng.IntN(3)]
		cfg.SyncFlush = rng.IntN(3) == 0
		cfg.Throwaway = rng.IntN(4) == 0
		cfg.tableEntries, cfg.indexBlocks = []int{0, 60, 500}[rng.IntN(3)], []int{0, 6}[rng.IntN(2)]
		if rng.IntN(2) == 0 {
			cfg.RetentionBytes = 1 + rng.Int64N(20*cfg.FileSize)
			cfg.FlushInterval, cfg.CleanInterval = time.Millisecond, time.Millisecond
		}
		if rng.IntN(3) == 0 {
			cfg.Retention = time.Duration(1+rng.IntN(300)) * time.Millisecond
			cfg.FlushInterval, cfg.CleanInterval = time.Millisecond, time.Millisecond
		}
		m := &model{t: t, rng: rng, cfg: cfg, queues: map[QueueID][]string{}, min: 1}
		m.s = mustOpen(t, cfg)
		for range 100 {
			switch n := rng.IntN(100); {
			case n < 58:
				m.append()
			case n < 60:
				m.drop()
			case n < 85:
				m.read()
			case n < 89:
				require.NoError(t, m.s.Sync(t.Context()))
				if !cfg.Throwaway {
					m.synced = len(m.order)
				}
			case n < 90:
				require.NoError(t, m.s.Check(t.Context()))
			case n < 91:
				m.s.rollIdle()
			case n < 94:
				mustClose(t, m.s)
				m.loseDerived()
				m.reopen()
			case n < 96:
				mustKill(t, m.s)
				m.loseDerived()
				m.reopen()
			case n < 98 && !cfg.Throwaway:
				m.powerOff()
			default:
				m.crash()
			}
		}
		m.compare()
		mustClose(t, m.s)
	}
}

func (m *model) queue() QueueID {
	return QueueID{fmt.Sprintf("topic-%d", m.rng.IntN(3)), m.rng.IntN(3)}
}

func (m *model) append() {
	id := m.queue()
	n, first := 1, len(m.queues[id])
	if m.rng.IntN(3) == 0 {
		n = 1 + m.rng.IntN(300)
	}
	b := m.s.NewBatch()
	var texts []string
	for i := range n {
		text := fmt.Sprintf("%d-%s", m.rng.Uint32(), strings.Repeat("x", m.rng.IntN(400)))
		texts = append(texts, text)
		p := placed{id: id, offset: first + i, text: text}
		k := p.keyed(0)
		r := keyedRecord(id.Topic, text, k.uniq, k.keys)
		r.QueueID = int32(id.ID)
		require.NoError(m.t, b.Add(r))
		m.order = append(m.order, p)
	}
	noWait := m.rng.IntN(2) == 0
	a, err := m.s.Append(context.Background(), b, AppendOptions{NoWait: noWait})
	require.NoError(m.t, err)
	require.Equal(m.t, int64(len(m.queues[id])), a.QueueOffset)
	require.Equal(m.t, int64(len(m.order)-n+1), a.Position)
	for i := len(m.order) - n; i < len(m.order); i++ {
		m.order[i].time = a.StoreTime.UnixMilli()
	}
	m.queues[id] = append(m.queues[id], texts...)
	if m.cfg.SyncFlush && !noWait && !m.cfg.Throwaway {
		m.synced = len(m.order)
	}
}

func (m *model) drop() {
	topic := m.queue().Topic
	written := m.s.Positions().Written
	require.NoError(m.t, m.s.DropTopic(context.Background(), topic))
	if m.s.Positions().Written == written { // the store never had it
		return
	}
	m.order = append(m.order, placed{id: QueueID{Topic: topic}, drop: true})
	m.queues = m.upTo(len(m.order))
	if !m.cfg.Throwaway {
		m.synced = len(m.order)
	}
}

// upTo is what the queues hold after a position.
func (m *model) upTo(position int) map[QueueID][]string {
	queues := map[QueueID][]string{}
	for _, p := range m.order[:position] {
		if p.drop {
			maps.DeleteFunc(queues, func(id QueueID, _ []string) bool { return id.Topic == p.id.Topic })
			continue
		}
		queues[p.id] = append(queues[p.id], p.text)
	}
	return queues
}

func (m *model) read() {
	id := m.queue()
	texts := m.queues[id]
	m.s.trimmer.pin() // nothing is deleted meanwhile
	defer m.s.unpin()
	m.readRecord()
	m.query()
	m.search(id)
	min := m.kept()[id]
	offset := m.rng.IntN(len(texts) + 2)
	res, err := m.s.Get(GetRequest{Topic: id.Topic, QueueID: id.ID, Offset: int64(offset), MaxMessages: m.rng.IntN(100)})
	require.NoError(m.t, err)
	if offset >= len(texts) {
		require.NotEqual(m.t, GetFound, res.Status)
		return
	}
	if offset < min {
		require.Equal(m.t, GetTooSmall, res.Status)
		require.Equal(m.t, int64(min), res.Next)
		return
	}
	require.Equal(m.t, GetFound, res.Status)
	for i, rec := range res.Records {
		require.Equal(m.t, texts[offset+i], string(message.View(rec).Body()))
	}
}

// readRecord reads one record by its position. Nothing is deleted meanwhile.
func (m *model) readRecord() {
	position := 1 + m.rng.IntN(len(m.order)+1)
	rec, err := m.s.Record(int64(position))
	if position > len(m.order) || int64(position) < m.s.Positions().Min || m.order[position-1].drop {
		require.ErrorIs(m.t, err, ErrNoRecord)
		return
	}
	require.NoError(m.t, err)
	v := message.View(rec)
	require.Equal(m.t, int64(position), v.Position())
	p := m.order[position-1]
	require.Equal(m.t, p, placed{id: p.id, offset: int(v.QueueOffset()), text: string(v.Body()), time: v.StoreTime()})
}

// query asks for a key of some record, or for one that many have. Nothing is
// deleted meanwhile.
func (m *model) query() {
	if len(m.order) == 0 {
		return
	}
	asked := m.order[m.rng.IntN(len(m.order))]
	if asked.drop {
		return
	}
	k := asked.keyed(0)
	q := KeyQuery{Topic: k.topic, Key: []string{k.uniq, k.keys[len("all "):], "all", "none"}[m.rng.IntN(4)], Max: 1 + m.rng.IntN(40)}
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	if m.rng.IntN(2) == 0 {
		from = asked.time + m.rng.Int64N(20) - 10
		to = from + m.rng.Int64N(20)
		q.From, q.To = time.UnixMilli(from), time.UnixMilli(to)
	}
	if m.rng.IntN(3) == 0 {
		q.Below = 1 + m.rng.Int64N(int64(len(m.order)))
	}
	var want []int
	for at := len(m.order); at >= int(m.s.Positions().Min) && len(want) < q.Max; at-- {
		p := m.order[at-1]
		if p.drop || p.id.Topic != q.Topic || !p.keyed(at).has(q.Key) || p.time < from || p.time > to || q.Below > 0 && int64(at) >= q.Below {
			continue
		}
		want = append(want, at)
	}
	found, err := m.s.QueryKey(m.t.Context(), q)
	require.NoError(m.t, err)
	var got []int
	for _, rec := range found {
		v := message.View(rec)
		require.Equal(m.t, m.order[v.Position()-1].text, string(v.Body()))
		got = append(got, int(v.Position()))
	}
	require.Equal(m.t, want, got, "%+v", q)
}

// search looks for times around those of a queue. Nothing is deleted meanwhile.
func (m *model) search(id QueueID) {
	min := m.kept()[id]
	var times []int64
	for _, p := range m.order {
		switch {
		case p.drop && p.id.Topic == id.Topic:
			times = nil
		case !p.drop && p.id == id:
			times = append(times, p.time)
		}
	}
	at := time.Now().UnixMilli()
	if n := len(times); n > 0 {
		at = times[m.rng.IntN(n)] + m.rng.Int64N(7) - 3
	}
	lower := min // the first that is not older
	for lower < len(times) && times[lower] < at {
		lower++
	}
	upper := max(min, len(times)-1) // the last that is not newer
	for upper > min && times[upper] > at {
		upper--
	}
	for boundary, want := range map[Boundary]int{LowerBoundary: lower, UpperBoundary: upper} {
		got, err := m.s.OffsetByTime(id.Topic, id.ID, time.UnixMilli(at), boundary)
		require.NoError(m.t, err)
		require.Equal(m.t, int64(want), got, "%v of %d in %v from offset %d on", boundary, at, times, min)
	}
}

// kept is the first offset of each queue that must be there, by the first
// position of the store, which only grows.
func (m *model) kept() map[QueueID]int {
	min := m.s.Positions().Min
	require.GreaterOrEqual(m.t, min, m.min)
	m.min = min
	if m.cfg.RetentionBytes == 0 && min > 1 {
		require.Positive(m.t, m.cfg.Retention)
		require.Less(m.t, m.order[min-2].time, time.Now().Add(-m.cfg.Retention).UnixMilli(), "position %d", min-1)
	}
	kept := map[QueueID]int{}
	for id, texts := range m.upTo(int(min - 1)) {
		kept[id] = len(texts)
	}
	for _, p := range m.order[min-1:] {
		if p.drop {
			maps.DeleteFunc(kept, func(id QueueID, _ int) bool { return id.Topic == p.id.Topic })
		}
	}
	return kept
}

func (m *model) reopen() {
	m.s = mustOpen(m.t, m.cfg)
	require.NoError(m.t, m.s.Err())
	require.Zero(m.t, m.s.Cut())
	if !m.cfg.Throwaway {
		m.synced = len(m.order) // opening settles what it finds
	}
	m.compare()
}

// crash goes on with a copy of the folder whose log lost some of its unsynced
// end: cut, zeroed or overwritten. Sometimes derived files are lost, too.
func (m *model) crash() {
	cfg := m.cfg
	mustKill(m.t, m.s)
	m.synced = max(m.synced, int(m.s.log.proven.Load()))
	cfg.Dir = copyDir(m.t, m.cfg.Dir)
	require.NoError(m.t, os.RemoveAll(m.cfg.Dir))
	m.cfg = cfg
	if path := lastSegment(m.t, cfg.Dir); m.synced < len(m.order) && m.rng.IntN(4) > 0 {
		base := int(baseOf(m.t, path))
		data, err := os.ReadFile(path)
		require.NoError(m.t, err)
		keep := 0 // bytes of what is synced
		for pos := base - 1; pos <= m.synced; pos++ {
			_, n, ok := cutEntry(data[keep:])
			require.True(m.t, ok)
			keep += n
		}
		at := keep + m.rng.IntN(len(data)-keep+1)
		switch m.rng.IntN(3) {
		case 0:
			data = data[:at]
		case 1:
			clear(data[at:])
		default:
			for i := at; i < min(len(data), at+64); i++ {
				data[i] = byte(m.rng.Uint32())
			}
		}
		require.NoError(m.t, os.WriteFile(path, data, 0o640))
	}
	for _, name := range []string{checkpointName, queuesName, indexName} {
		if m.rng.IntN(4) == 0 {
			require.NoError(m.t, os.RemoveAll(filepath.Join(cfg.Dir, name)))
		}
	}
	m.survive()
}

// loseDerived removes one of the files and folders that can be made again, at
// times.
func (m *model) loseDerived() {
	names := []string{checkpointName, queuesName, indexName}
	if i := m.rng.IntN(2 * len(names)); i < len(names) {
		require.NoError(m.t, os.RemoveAll(filepath.Join(m.cfg.Dir, names[i])))
	}
}

// powerOff takes what was not synced.
func (m *model) powerOff() {
	m.synced = max(m.synced, int(m.s.log.proven.Load()))
	require.NoError(m.t, m.s.PowerOff())
	m.survive()
}

// survive opens the folder again and takes what has not survived out of the model.
func (m *model) survive() {
	m.s = mustOpen(m.t, m.cfg)
	require.NoError(m.t, m.s.Err())
	written := int(m.s.Positions().Written)
	require.GreaterOrEqual(m.t, written, m.synced)
	require.LessOrEqual(m.t, written, len(m.order))
	m.order = m.order[:written]
	m.queues = m.upTo(written)
	if !m.cfg.Throwaway {
		m.synced = written
	}
	m.compare()
}

func (m *model) compare() {
	m.t.Helper()
	m.s.trimmer.pin()
	defer m.s.unpin()
	require.Equal(m.t, int64(len(m.order)), m.s.Positions().Written)
	kept := m.kept()
	for id, texts := range m.queues {
		want := Range{int64(kept[id]), int64(len(texts))}
		assert.Equal(m.t, want, Range{m.s.MinOffset(id.Topic, id.ID), m.s.MaxOffset(id.Topic, id.ID)}, "%v", id)
		texts = append([]string(nil), texts[kept[id]:]...)
		assert.Equal(m.t, texts, bodies(m.t, m.s, id.Topic, id.ID), "%v", id)
	}
	require.NoError(m.t, m.s.Check(m.t.Context()))
}
