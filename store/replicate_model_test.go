package store

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pair is a master and a slave that change places, beside what they must hold. Both
// sync before they acknowledge, so what both have is confirmed and stays whatever
// happens.
type pair struct {
	t         *testing.T
	rng       *rand.Rand
	cfg       [2]Config
	s         [2]*Store
	master    int
	epoch     int64
	log       []pairEntry // of the master, by position
	confirmed int64
}

// pairEntry is a record, or the deletion of its topic.
type pairEntry struct {
	key  QueueID
	body string
	drop bool
}

func TestReplicationModelOfChangesOfMasterAndCrashes(t *testing.T) {
	t.Parallel()
	for range crashRounds(t) {
		rng := newSeed(t)
		p := &pair{t: t, rng: rng, epoch: 1}
		for i := range p.cfg {
			cfg := testConfig(t)
			cfg.ID, cfg.SyncFlush, cfg.Confirming = int64(i), true, true
			cfg.FileSize = []int64{MinFileSize, 16 << 10}[rng.IntN(2)]
			cfg.tableEntries, cfg.indexBlocks = []int{0, 20}[rng.IntN(2)], []int{0, 6}[rng.IntN(2)]
			p.cfg[i], p.s[i] = cfg, mustOpen(t, cfg)
		}
		require.NoError(t, p.s[0].BeginEpoch(t.Context(), 1))
		for range 120 {
			p.step()
		}
		p.follow(1 << 20)
		p.confirm()
		p.compare()
		for _, s := range p.s {
			mustClose(t, s)
		}
	}
}

func (p *pair) step() {
	switch n := p.rng.IntN(100); {
	case n < 45:
		p.append()
	case n < 48:
		p.drop()
	case n < 70:
		p.follow(1 + p.rng.IntN(3000))
	case n < 82:
		p.confirm()
	case n < 84:
		p.compare()
	case n < 86:
		require.NoError(p.t, p.s[p.rng.IntN(2)].Check(p.t.Context()))
	case n < 95:
		p.restart(p.rng.IntN(2))
	default:
		p.change()
	}
}

func (p *pair) append() {
	key := QueueID{fmt.Sprintf("topic-%d", p.rng.IntN(2)), p.rng.IntN(2)}
	body := fmt.Sprint(len(p.log)+1, "-", p.epoch, strings.Repeat("x", p.rng.IntN(900)))
	a := put(p.t, p.s[p.master], key.Topic, key.ID, body)
	require.Equal(p.t, int64(len(p.log)+1), a.Position)
	require.Equal(p.t, p.offset(key), a.QueueOffset)
	p.log = append(p.log, pairEntry{key: key, body: body})
}

// offset is the next one of a queue.
func (p *pair) offset(key QueueID) int64 { return int64(len(p.queues(int64(len(p.log)))[key])) }

// queues is what the queues hold when the log has been dispatched up to a position.
func (p *pair) queues(upTo int64) map[QueueID][]string {
	m := make(map[QueueID][]string)
	for _, e := range p.log[:upTo] {
		if !e.drop {
			m[e.key] = append(m[e.key], e.body)
			continue
		}
		for key := range m {
			if key.Topic == e.key.Topic {
				delete(m, key)
			}
		}
	}
	return m
}

func (p *pair) drop() {
	topic := fmt.Sprintf("topic-%d", p.rng.IntN(2))
	before := p.s[p.master].Positions().Written
	require.NoError(p.t, p.s[p.master].DropTopic(p.t.Context(), topic))
	if p.s[p.master].Positions().Written > before { // else it had no queues
		p.log = append(p.log, pairEntry{key: QueueID{Topic: topic}, drop: true})
	}
}

func (p *pair) follow(maxBytes int) { follow(p.t, p.s[p.master], p.s[1-p.master], maxBytes) }

// confirm confirms what both have, or a part of it.
func (p *pair) confirm() {
	both := min(p.s[0].Positions().Written, p.s[1].Positions().Written)
	p.confirmed = max(p.confirmed, both-p.rng.Int64N(3))
	for _, i := range p.rng.Perm(2)[:1+p.rng.IntN(2)] {
		require.NoError(p.t, p.s[i].SetConfirmed(p.confirmed))
	}
}

// compare compares what can be read with what has been confirmed.
func (p *pair) compare() {
	for _, s := range p.s {
		require.NoError(p.t, s.SetConfirmed(p.confirmed))
		want := p.queues(p.confirmed)
		for _, topic := range []string{"topic-0", "topic-1"} {
			for id := range 2 {
				key := QueueID{topic, id}
				dropped := false // already, by an entry that is not confirmed
				for _, e := range p.log[min(p.confirmed, s.Positions().Written):min(int64(len(p.log)), s.Positions().Written)] {
					dropped = dropped || e.drop && e.key.Topic == topic
				}
				if !dropped {
					require.Equal(p.t, want[key], bodies(p.t, s, topic, id), "%v", key)
				}
			}
		}
	}
	require.GreaterOrEqual(p.t, p.s[1-p.master].Positions().Written, p.confirmed)
}

func (p *pair) restart(i int) {
	s := p.s[i]
	switch p.rng.IntN(3) {
	case 0:
		mustClose(p.t, s)
	case 1:
		mustKill(p.t, s)
	default:
		require.NoError(p.t, s.PowerOff())
	}
	m := model{t: p.t, rng: p.rng, cfg: p.cfg[i]}
	if p.rng.IntN(4) == 0 {
		m.loseDerived()
	}
	p.s[i] = mustOpen(p.t, p.cfg[i])
}

// change makes the slave the master: what only the old one had is gone.
func (p *pair) change() {
	old, master := p.master, 1-p.master
	end := p.s[master].Positions().Written
	require.LessOrEqual(p.t, p.confirmed, end)
	p.epoch++
	require.NoError(p.t, p.s[master].BeginEpoch(p.t.Context(), p.epoch))
	require.NoError(p.t, p.s[master].SetConfirmed(end))
	p.confirmed = end // the new master's log is the truth
	p.log, p.master = p.log[:end], master
	require.NoError(p.t, p.s[old].Close())
	_, err := CutEnd(p.cfg[old], end)
	require.NoError(p.t, err)
	p.s[old] = mustOpen(p.t, p.cfg[old])
	p.follow(1 << 20)
}
