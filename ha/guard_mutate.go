//go:build mutate

package ha

import (
	"fmt"
	"sync/atomic"
)

// guards says which guards are taken away: a bit for each.
type guards struct{ gone uint64 }

func (g guards) lacks(one guard) bool { return (g.gone|broken.Load())>>one&1 == 1 }

// broken are the guards that Break has taken away.
var broken atomic.Uint64

// Break takes a rule away from every group in this process, by its number in this
// package; 0 gives all back. Error: there is no such rule.
func Break(one int) error {
	if one < 0 || one >= int(guardCount) {
		return fmt.Errorf("ha: no guard %d: there are 1 to %d", one, int(guardCount)-1)
	}
	broken.Store(1 << one &^ 1)
	return nil
}
