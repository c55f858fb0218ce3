package store

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	crashRoundsFlag = flag.Int("crash.rounds", 3, "rounds of the crash tests and of the random model test")
	seedFlag        = flag.Uint64("store.seed", 0, "seed of the random tests; 0 draws one")
)

func crashRounds(t *testing.T) int {
	if testing.Short() {
		return 1
	}
	return *crashRoundsFlag
}

// newSeed makes a random generator whose seed is shown when the test fails.
func newSeed(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// appendUntilKilled is the child of the crash test: four senders, one queue
// each, numbered texts from where the queue ends. Every second sender waits
// for fsync.
func appendUntilKilled(t *testing.T, dir string) {
	s, err := Open(Config{Dir: dir, Cluster: "c", Broker: "broker-a", FileSize: 64 << 10, SyncFlush: true})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for queue := range 4 {
		wg.Go(func() {
			for next := s.MaxOffset("T", queue); ; {
				b := s.NewBatch()
				for range 1 + next%5 {
					if b.Add(record("T", queue, fmt.Sprint(next), "")) != nil {
						os.Exit(1)
					}
					next++
				}
				n := int64(b.Len())
				a, err := s.Append(context.Background(), b, AppendOptions{NoWait: queue%2 == 0})
				if err != nil || a.QueueOffset+n != next {
					os.Exit(1)
				}
				fmt.Printf("ack %d %d\n", queue, next-1)
			}
		})
	}
	wg.Wait()
}

// readAcknowledged reads n lines of the child, kills it, and takes the rest of
// what it had said.
func readAcknowledged(t *testing.T, out io.Reader, n int, process *os.Process, acknowledged map[int]int64) {
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		if i == n {
			require.NoError(t, process.Kill())
		}
		var queue int
		var last int64
		if !strings.HasPrefix(lines.Text(), "ack ") {
			continue
		}
		// The last line may be cut short, but then its number is only lower.
		if k, _ := fmt.Sscanf(lines.Text(), "ack %d %d", &queue, &last); k == 2 {
			acknowledged[queue] = max(last, acknowledged[queue])
		}
	}
}
