package ha

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASlaveKeepsWhatItsMasterHasToo(t *testing.T) {
	type log struct {
		epochs     []Epoch
		first, end int64
	}
	for _, c := range []struct {
		rule          string
		master, slave log
		keep          int64
		err           error
	}{
		{"an empty slave keeps nothing", log{[]Epoch{{3, 10}}, 10, 20}, log{nil, 1, 0}, 0, nil},
		{"so does one that has an epoch and no record", log{[]Epoch{{3, 10}}, 10, 20}, log{[]Epoch{{0, 7}}, 7, 6}, 0, nil},
		{"records without an epoch are refused", log{[]Epoch{{1, 1}}, 1, 20}, log{nil, 1, 5}, 0, ErrDiverged},
		{"a slave behind keeps all", log{[]Epoch{{1, 1}}, 1, 20}, log{[]Epoch{{1, 1}}, 1, 5}, 5, nil},
		{"a slave ahead is cut to its master's end", log{[]Epoch{{1, 1}}, 1, 20}, log{[]Epoch{{1, 1}}, 1, 25}, 20, nil},
		{"an old master's tail is cut", log{[]Epoch{{1, 1}, {2, 11}}, 1, 20}, log{[]Epoch{{1, 1}}, 1, 15}, 10, nil},
		{"a slave that missed an epoch keeps all", log{[]Epoch{{1, 1}, {2, 11}, {3, 15}}, 1, 20}, log{[]Epoch{{1, 1}}, 1, 8}, 8, nil},
		{"two tails: the older common epoch decides", log{[]Epoch{{1, 1}, {3, 11}}, 1, 20}, log{[]Epoch{{1, 1}, {2, 13}}, 1, 40}, 10, nil},
		{"the slave's epoch ended earlier", log{[]Epoch{{1, 1}, {3, 11}}, 1, 20}, log{[]Epoch{{1, 1}, {2, 8}}, 1, 40}, 7, nil},
		{"one number, two beginnings: not the same epoch", log{[]Epoch{{1, 1}, {2, 11}}, 1, 20}, log{[]Epoch{{1, 1}, {2, 8}}, 1, 20}, 7, nil},
		{"an epoch that wrote nothing counts", log{[]Epoch{{1, 1}, {2, 11}, {3, 11}}, 1, 20}, log{[]Epoch{{1, 1}, {2, 11}}, 1, 15}, 10, nil},
		{"retention of the master shortens its oldest epoch", log{[]Epoch{{1, 6}, {2, 11}}, 6, 20}, log{[]Epoch{{1, 1}}, 1, 8}, 8, nil},
		{"as retention of the slave does", log{[]Epoch{{1, 1}, {2, 11}}, 1, 20}, log{[]Epoch{{1, 6}}, 6, 8}, 8, nil},
		{"even a newer epoch of it", log{[]Epoch{{1, 1}, {2, 5}}, 1, 20}, log{[]Epoch{{2, 6}}, 6, 8}, 8, nil},
		{"an oldest epoch that begins before the real one is another", log{[]Epoch{{1, 1}, {2, 8}}, 1, 20}, log{[]Epoch{{2, 6}}, 6, 9}, 0, ErrDiverged},
		{"behind what the master keeps, as the positions show", log{[]Epoch{{1, 10}, {2, 15}}, 10, 20}, log{[]Epoch{{1, 1}}, 1, 8}, 0, ErrTooFarBehind},
		{"up to the last record before it all is well", log{[]Epoch{{1, 10}, {2, 15}}, 10, 20}, log{[]Epoch{{1, 1}}, 1, 9}, 9, nil},
		{"behind what the master keeps, as the epochs show", log{[]Epoch{{4, 10}}, 10, 20}, log{[]Epoch{{1, 1}}, 1, 9}, 0, ErrTooFarBehind},
		{"even if it is longer", log{[]Epoch{{4, 10}}, 10, 20}, log{[]Epoch{{1, 1}}, 1, 99}, 0, ErrTooFarBehind},
		{"nothing written in the slave's first epoch stayed", log{[]Epoch{{2, 1}}, 1, 20}, log{[]Epoch{{1, 1}}, 1, 5}, 0, nil},
		{"nor in that of one begun later", log{[]Epoch{{1, 1}, {3, 5}}, 1, 20}, log{[]Epoch{{1, 7}}, 7, 9}, 0, nil},
		{"a newer slave without anything in common is refused", log{[]Epoch{{2, 1}}, 1, 20}, log{[]Epoch{{3, 1}}, 1, 5}, 0, ErrDiverged},
		{"a foreign log is refused", log{[]Epoch{{1, 1}, {4, 9}}, 1, 20}, log{[]Epoch{{2, 5}, {3, 9}}, 5, 10}, 0, ErrDiverged},
		{"without elections a master that lost all does not empty its slave", log{[]Epoch{{0, 1}}, 1, 0}, log{[]Epoch{{0, 1}}, 1, 500}, 0, ErrDiverged},
		{"but one that lost its tail cuts it", log{[]Epoch{{0, 1}}, 1, 480}, log{[]Epoch{{0, 1}}, 1, 500}, 480, nil},
		{"a failover group may begin over a common log", log{[]Epoch{{0, 1}, {1, 30}}, 1, 40}, log{[]Epoch{{0, 1}}, 1, 35}, 29, nil},
		{"numbers that descend", log{[]Epoch{{2, 1}, {1, 5}}, 1, 9}, log{[]Epoch{{1, 1}}, 1, 3}, 0, ErrBadEpochs},
		{"numbers below 0", log{[]Epoch{{1, 1}}, 1, 9}, log{[]Epoch{{-1, 1}}, 1, 3}, 0, ErrBadEpochs},
		{"positions that descend", log{[]Epoch{{1, 1}}, 1, 9}, log{[]Epoch{{1, 3}, {2, 2}}, 3, 5}, 0, ErrBadEpochs},
		{"positions behind the end", log{[]Epoch{{1, 1}}, 1, 9}, log{[]Epoch{{1, 1}, {2, 5}}, 1, 3}, 0, ErrBadEpochs},
		{"a master without a history", log{nil, 1, 9}, log{[]Epoch{{1, 1}}, 1, 3}, 0, ErrBadEpochs},
		{"a master that ends before it begins", log{[]Epoch{{1, 5}}, 5, 2}, log{[]Epoch{{1, 1}}, 1, 3}, 0, ErrBadEpochs},
	} {
		t.Run(c.rule, func(t *testing.T) {
			keep, err := Diverge(c.master.epochs, c.master.first, c.master.end, c.slave.epochs, c.slave.end)
			assert.ErrorIs(t, err, c.err)
			assert.Equal(t, c.keep, keep)
		})
	}
}

func TestARefusalNamesTheNumbersOfBothSides(t *testing.T) {
	_, err := Diverge([]Epoch{{1, 10}, {2, 15}}, 10, 20, []Epoch{{1, 1}}, 8)
	require.ErrorIs(t, err, ErrTooFarBehind)
	assert.EqualError(t, err, "ha: slave at 1..8 (epochs 1@1), master at 10..20 (epochs 1@10 2@15): the slave goes on at 9, the master's oldest is 10: too far behind")

	var long []Epoch
	for k := range int64(20) {
		long = append(long, Epoch{k + 1, k + 1})
	}
	assert.Equal(t, "1@1 2@2 3@3 4@4 ... (12 more) 17@17 18@18 19@19 20@20", epochsText(long))
}

// Logs grow as masters come and go, and lose their beginnings; each record remembers
// the epoch that wrote it. What Diverge keeps is what both have.
func TestWhatIsKeptIsTheLongestPartInCommon(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	type replica struct {
		first   int64
		records []int64 // epoch of each, from position 1
		epochs  []Epoch
	}
	end := func(p *replica) int64 { return int64(len(p.records)) }
	refused, cut := 0, 0
	for range 3000 {
		replicas := make([]*replica, 3)
		for i := range replicas {
			replicas[i] = &replica{first: 1}
		}
		master, number := replicas[0], int64(0)
		for range 12 {
			switch r.IntN(4) {
			case 0: // elected
				master = replicas[r.IntN(3)]
				number++
				master.epochs = append(master.epochs, Epoch{number, end(master) + 1})
			case 1, 2: // written
				if number > 0 {
					for range r.IntN(6) {
						master.records = append(master.records, number)
					}
				}
			case 3: // replicated
				if number == 0 {
					continue
				}
				s := replicas[r.IntN(3)]
				if s == master {
					continue
				}
				common := int64(0)
				for common < min(end(master), end(s)) && master.records[common] == s.records[common] {
					common++
				}
				keep, err := Diverge(master.epochs, master.first, end(master), s.epochs, end(s))
				if err != nil {
					if master.first == 1 {
						require.ErrorIs(t, err, ErrDiverged, "seed %d: master %+v, slave %+v", seed, master, s)
						require.Greater(t, s.first, common, "seed %d: master %+v, slave %+v", seed, master, s)
					}
					refused++
					continue
				}
				if keep > 0 {
					require.Equal(t, common, keep, "seed %d: master %+v, slave %+v", seed, master, s)
				} else {
					require.Less(t, common, max(s.first, 1), "seed %d: master %+v, slave %+v", seed, master, s)
				}
				if keep < end(s) {
					cut++
				}
				upTo := keep + r.Int64N(max(1, end(master)-keep+1))
				first := s.first
				if keep == 0 {
					first, upTo = master.first, max(upTo, master.first-1)
				}
				stay := 0
				for stay < len(s.epochs) && s.epochs[stay].First <= keep {
					stay++
				}
				*s = replica{first: first, records: slices.Clone(master.records[:upTo]), epochs: s.epochs[:stay:stay]}
				for k, e := range master.epochs {
					over := k+1 < len(master.epochs) && master.epochs[k+1].First <= s.first
					if e.First <= upTo && !over && (len(s.epochs) == 0 || e.Number > s.epochs[len(s.epochs)-1].Number) {
						s.epochs = append(s.epochs, Epoch{e.Number, max(e.First, s.first)})
					}
				}
			}
			if p := replicas[r.IntN(3)]; r.IntN(3) == 0 && end(p) > p.first {
				// As a log of files, one of which begins with each epoch, tells it.
				p.first += r.Int64N(end(p) - p.first)
				for len(p.epochs) > 1 && p.epochs[1].First <= p.first {
					p.epochs = p.epochs[1:]
				}
				p.epochs[0].First = p.first
			}
		}
	}
	assert.Positive(t, refused)
	assert.Positive(t, cut)
}

// Whatever histories two sides claim to have: no panic, and never more than both have.
func FuzzDiverge(f *testing.F) {
	f.Add([]byte{1, 1, 2, 10}, int64(20), []byte{1, 1}, int64(15))
	f.Add([]byte{3, 10}, int64(20), []byte{1, 1, 2, 10}, int64(15))
	f.Add([]byte{0, 1}, int64(0), []byte{}, int64(-1))
	f.Fuzz(func(t *testing.T, master []byte, masterEnd int64, slave []byte, slaveEnd int64) {
		history := func(b []byte) (list []Epoch) {
			for ; len(b) >= 2; b = b[2:] {
				list = append(list, Epoch{int64(int8(b[0])), int64(int8(b[1]))})
			}
			return list
		}
		m, s := history(master), history(slave)
		first := int64(1)
		if len(m) > 0 {
			first = m[0].First
		}
		keep, err := Diverge(m, first, masterEnd, s, slaveEnd)
		if err != nil {
			require.Zero(t, keep)
			return
		}
		require.GreaterOrEqual(t, keep, int64(0))
		if keep > 0 {
			require.LessOrEqual(t, keep, min(masterEnd, slaveEnd))
			require.GreaterOrEqual(t, keep, max(first-1, s[0].First))
			for len(s) > 0 && s[len(s)-1].First > keep+1 { // cut
				s = s[:len(s)-1]
			}
			again, err := Diverge(m, first, masterEnd, s, keep)
			require.NoError(t, err)
			require.Equal(t, keep, again, "what was kept is kept")
		}
	})
}
