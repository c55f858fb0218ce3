package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/examples/internal/walk"
	"github.com/pocketmq/pocketmq/fault"
)

// listen runs the walkthrough and returns what it printed.
func listen(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	err := walk.Run(t.Context(), program(), args, strings.NewReader(""), &out)
	require.NoError(t, err, "%s", out.String())
	return out.String()
}

func TestTheStoryIsTrueWithAllPresetsAndWithOne(t *testing.T) {
	for _, name := range []string{"all", "V5"} { // V4 is drawn below
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // RocketMQ's own durations, in virtual time
				text := listen(t, "-speed", "1", "-strategy", name)
				assert.Contains(t, text, "6. On one time line")
				assert.NotContains(t, text, "too busy", "virtual time is as exact as it gets")
				for _, p := range presets()[1:] {
					assert.Equal(t, name == "all" || name == p.name, strings.Contains(text, "ok: "+p.name+":"), p.name)
				}
			})
		})
	}
}

func TestTheStoryIsTrueInRealTime(t *testing.T) {
	t.Parallel()
	once := program()
	once.Run = tell // not again at half the speed
	var out bytes.Buffer
	err := walk.Run(t.Context(), once, nil, strings.NewReader(""), &out)
	if errors.Is(err, errStutter) {
		t.Skip(err)
	}
	require.NoError(t, err, "%s", out.String())
	assert.Contains(t, out.String(), "ok: no message was lost from the beginning to the end")
}

func TestTheChartHasOneElementPerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "chart.svg")
		text := listen(t, "-speed", "1", "-strategy", "V4", "-svg", file)
		drawing, err := os.ReadFile(file)
		require.NoError(t, err)
		count, titles := make(map[string]int), 0
		for d := xml.NewDecoder(bytes.NewReader(drawing)); ; {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, "well-formed XML")
			if e, ok := token.(xml.StartElement); ok {
				if e.Name.Local == "title" {
					titles++
				}
				for _, a := range e.Attr {
					if a.Name.Local == "class" {
						count[a.Value]++
					}
				}
			}
		}
		assert.Equal(t, 3*3, count["lane"], "three brokers: their trouble, off, V4")
		// Three troubles. V4 isolates b at about 5 s and again 30 s later, c once,
		// and a once; the last of b's grows longer while all are bad, and is one.
		assert.Equal(t, 3+4, count["window"], "%s", text)
		assert.Equal(t, 1+count["window"], titles, "each window says what it is")
		assert.Equal(t, 4, count["moment"])
		assert.Positive(t, count["tick"])
	})
}

func TestPresetsSayWhatTheirConfigsDo(t *testing.T) {
	now := time.Now()
	for _, p := range presets()[1:] {
		isolated := func(latency time.Duration, failed bool) time.Duration {
			until, began := fault.NewTracker(p.config).Observe("b", latency, failed, true, now)
			require.True(t, began, p.name)
			return until.Sub(now)
		}
		assert.Equal(t, p.slow, isolated(slowness, false), "%s: slow", p.name)
		assert.Equal(t, p.failing, isolated(0, true), "%s: failing", p.name)
		if p.worse > 0 {
			assert.Equal(t, p.slow, isolated(p.worse-1, false), p.name)
			assert.Greater(t, isolated(p.worse, false), p.slow, p.name)
		}
	}
}

func TestScaledConfigsAreValid(t *testing.T) {
	for _, speed := range []float64{0.1, 1, 30, 1000} {
		for _, p := range presets() {
			assert.NoError(t, scaled(p.config, walk.Clock{Speed: speed}).Validate(), "%s at %v", p.name, speed)
		}
	}
}

func TestPickAtLeastOneNeverNamesWhatCannotBeReached(t *testing.T) {
	table := []fault.Item{{Broker: "x", Reachable: true}, {Broker: "y"}, {Broker: "z", Latency: time.Second, Reachable: true}}
	assert.Equal(t, []string{"x", "z"}, pickAtLeastOne(table, time.Now()))
}

func TestAHealthyBrokerThatIsAvoidedIsTheMachinesDoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := walk.NewLog()
		s := &street{story: &walk.Story{Clock: walk.Clock{Begin: time.Now(), Speed: 1}}, log: log}
		assert.NoError(t, s.stutters())
		avoided := pocketmq.BrokerAvoided{Broker: "broker-b", Latency: slowness}
		avoided.Time = time.Now().Add(2 * time.Second)
		log.Record(avoided)
		assert.ErrorIs(t, s.stutters(), errStutter, "nothing is wrong with b")
		s.ailments = []ailment{{"broker-b", "slow", time.Second, never}}
		assert.NoError(t, s.stutters(), "b is slow")
	})
}
