package pocketmq

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/store"
)

// A life that begins on a full disk is not stored, and what its end stores says nothing
// of the life before it, which was killed and had not synced.
func TestALifeThatWasNeverStoredLeavesTheOneBeforeAsItWas(t *testing.T) {
	for name, x := range map[string]struct {
		end   func(*replica) error
		clean bool
	}{
		"closed":         {(*replica).close, bootID() != ""}, // the kernel still has it
		"power was lost": {(*replica).losePower, false},
		"stored later, then closed": {func(r *replica) error {
			if err := r.saveLife(*r.saved.Load().Failover); err != nil {
				return err
			}
			return r.close()
		}, bootID() != ""},
	} {
		t.Run(name, func(t *testing.T) {
			disk := new(store.Disk)
			r := &replica{file: statefile.New(filepath.Join(t.TempDir(), "replication.json"), false), turn: statefile.NewTurn()}
			r.file.On(disk)
			r.saved.Store(new(replicaState))
			before, stored, err := r.nextLife(false, false, 10)
			require.NoError(t, err)
			require.True(t, stored)
			file, _, err := r.file.Load()
			require.NoError(t, err)

			disk.Full(true)
			_, _, err = r.nextLife(true, true, 10)
			require.Error(t, err, "its log was made anew")
			life, stored, err := r.nextLife(true, false, 10)
			require.NoError(t, err)
			assert.False(t, stored)
			assert.Equal(t, life.Incarnation, r.incarnation())
			assert.Contains(t, life.Before, before.Incarnation)

			disk.Full(false)
			require.NoError(t, x.end(r))
			again, _, err := r.file.Load()
			require.NoError(t, err)
			if name == "closed" {
				assert.Equal(t, string(file), string(again))
			}
			var s replicaState
			require.NoError(t, json.Unmarshal(again, &s))
			r.saved.Store(&s)
			r.former = nil
			next, _, err := r.nextLife(true, false, 10)
			require.NoError(t, err)
			assert.Equal(t, x.clean, next.Clean)
		})
	}
}
