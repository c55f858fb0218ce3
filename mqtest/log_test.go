package mqtest

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheLast1000LinesAreKept(t *testing.T) {
	var tail logTail
	log := tail.logger(nil)
	for i := range 2500 {
		log.Debug("line", "n", i)
	}
	text, kept, total := tail.last()
	assert.Equal(t, 1000, kept)
	assert.Equal(t, 2500, total)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, lines, 1000)
	for i, line := range lines {
		require.True(t, strings.HasSuffix(line, fmt.Sprintf("level=DEBUG msg=line n=%d", 1500+i)), "line %d is %q", i, line)
	}
}

func TestTheLogIsForwarded(t *testing.T) {
	var own bytes.Buffer
	var tail logTail
	log := tail.logger(slog.New(slog.NewTextHandler(&own, nil))).With("node", "n")
	log.Debug("quiet")
	log.Info("loud")
	text, kept, _ := tail.last()
	assert.Equal(t, 2, kept)
	assert.Contains(t, text, "msg=quiet node=n")
	assert.Contains(t, own.String(), "msg=loud node=n")
	assert.NotContains(t, own.String(), "quiet", "the test's own logger keeps its level")
}

func TestTheLogIsSafeForConcurrentUse(t *testing.T) {
	var tail logTail
	log := tail.logger(nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				log.Info("x")
				tail.last()
			}
		})
	}
	wg.Wait()
	_, _, total := tail.last()
	assert.Equal(t, 4000, total)
}
