package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errFaulty = errors.New("injected fault")

// nthSyncFails is a disk whose n-th sync fails, counted from 1, and no other. It
// reports of what that sync was.
func nthSyncFails(n int64) (disk syncer, count *atomic.Int64, failed *atomic.Pointer[string]) {
	count, failed = new(atomic.Int64), new(atomic.Pointer[string])
	fails := func(path string) bool {
		if count.Add(1) != n {
			return false
		}
		failed.Store(&path)
		return true
	}
	under := durable()
	return syncer{
		file: func(f *os.File) error {
			if fails(f.Name()) {
				return errFaulty
			}
			return under.file(f)
		},
		dir: func(path string) error {
			if fails(path) {
				return errFaulty
			}
			return under.dir(path)
		},
	}, count, failed
}

// Each sync of the workload fails, one in each run. Either nobody was promised
// anything by it, and the store goes on; or whoever waited is told, and the store
// is fenced until it is opened anew.
func TestAnyFailedSyncLosesNothingThatWasPromised(t *testing.T) {
	t.Parallel()
	for _, life := range lives {
		t.Run(life.name, func(t *testing.T) {
			t.Parallel()
			ends := []struct {
				how string
				end func(*Store) error
			}{{"close", (*Store).Close}, {"kill", (*Store).Kill}, {"power off", (*Store).PowerOff}}
			kinds := map[string]int{}
			step := int64(1)
			if crashRounds(t) <= 3 {
				step = 3 // in ordinary runs some of them, others each time
			}
			for n := 1 + newSeed(t).Int64N(step); ; n += step {
				last := false
				for i, e := range ends {
					if int(n/step)%len(ends) != i && step > 1 {
						continue // in turn
					}
					synctest.Test(t, func(t *testing.T) {
						disk, count, failed := nthSyncFails(n)
						r := newScripted(t, life.change, disk)
						r.tolerant = true
						r.run(-1)
						if failed.Load() == nil {
							last = true
							require.NoError(t, r.failed)
							require.Less(t, count.Load(), n)
							return
						}
						what := fmt.Sprintf("sync %d, of %s, then %s", n, *failed.Load(), e.how)
						if r.failed != nil {
							require.ErrorIs(t, r.failed, errFaulty, what)
						}
						if r.s != nil && !r.s.closed.Load() {
							kinds[fmt.Sprintf("fenced %t", errors.Is(r.s.Err(), ErrFenced))]++
							if r.s.Err() != nil {
								require.ErrorIs(t, r.s.Err(), ErrFenced, what)
								require.ErrorIs(t, r.s.Err(), errFaulty, what)
							}
							require.NoError(t, r.s.Check(t.Context()), what)
							err := e.end(r.s)
							if r.failed == nil {
								require.NoError(t, err, what)
							}
						}
						p := crashPoint{what: what}
						if r.s == nil { // not even opened: it can be, later
							kinds["not opened"]++
						} else {
							p = r.left(what)
						}
						p.verify(t, r.cfg, r.cfg.Dir, "opened anew")
					})
				}
				if last || t.Failed() {
					break
				}
			}
			assert.NotZero(t, kinds["fenced true"], "%v", kinds)
			assert.NotZero(t, kinds["not opened"], "%v", kinds)
		})
	}
}

// What nobody is promised anything by does not stop a store: files made ahead of
// time, consume queues, checkpoints.
func TestFailedSyncsOfDerivedFilesDoNotFence(t *testing.T) {
	t.Parallel()
	for _, name := range []string{nextName, queuesName, checkpointName + tempSuffix, filepath.Join(commitLogName, syncedName)} {
		synctest.Test(t, func(t *testing.T) {
			under := durable()
			fails := func(path string) bool { return strings.Contains(path, string(filepath.Separator)+name) }
			r := newScripted(t, func(c *Config) { c.SyncFlush = true }, syncer{
				file: func(f *os.File) error {
					if fails(f.Name()) {
						return errFaulty
					}
					return under.file(f)
				},
				dir: func(path string) error {
					if fails(path) {
						return errFaulty
					}
					return under.dir(path)
				},
			})
			r.open()
			for range 5 {
				r.put("T", 0, 100, 30)
				synctest.Wait()
			}
			sleepThroughCheckpoints()
			require.NoError(t, r.s.Err(), name)
			r.put("T", 0, 100, 30)
			compareEntries(t, r.s, r.order, name)
			require.NoError(t, r.s.PowerOff())
			p := crashPoint{what: name, promised: len(r.order), order: r.order}
			p.verify(t, r.cfg, r.cfg.Dir, "power off")
		})
	}
}
