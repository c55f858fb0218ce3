package store

import (
	"context"
	"fmt"
	"maps"
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
	drop   bool
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
		if rng.IntN(2) == 0 {
			cfg.RetentionBytes = 1 + rng.Int64N(20*cfg.FileSize)
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
				m.reopen()
			case n < 96:
				mustKill(t, m.s)
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
		require.NoError(m.t, b.Add(record(id.Topic, id.ID, text, "")))
		m.order = append(m.order, placed{id: id, offset: first + i, text: text})
	}
	noWait := m.rng.IntN(2) == 0
	a, err := m.s.Append(context.Background(), b, AppendOptions{NoWait: noWait})
	require.NoError(m.t, err)
	require.Equal(m.t, int64(len(m.queues[id])), a.QueueOffset)
	require.Equal(m.t, int64(len(m.order)-n+1), a.Position)
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
	require.Equal(m.t, p, placed{id: p.id, offset: int(v.QueueOffset()), text: string(v.Body())})
}

// kept is the first offset of each queue that must be there, by the first
// position of the store, which only grows.
func (m *model) kept() map[QueueID]int {
	min := m.s.Positions().Min
	require.GreaterOrEqual(m.t, min, m.min)
	m.min = min
	if m.cfg.RetentionBytes == 0 {
		require.Equal(m.t, int64(1), min)
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
	for _, name := range []string{checkpointName, queuesName} {
		if m.rng.IntN(4) == 0 {
			require.NoError(m.t, os.RemoveAll(filepath.Join(cfg.Dir, name)))
		}
	}
	m.survive()
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
