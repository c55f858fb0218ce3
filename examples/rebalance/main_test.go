package main

import (
	"bytes"
	"encoding/xml"
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
	"github.com/pocketmq/pocketmq/rebalance"
)

// tell runs the walkthrough and returns what it printed.
func tell(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	err := walk.Run(t.Context(), program(), args, strings.NewReader(""), &out)
	require.NoError(t, err, "%s", out.String())
	return out.String()
}

func TestTheStoryIsTrueWithEveryStrategy(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // RocketMQ's own intervals, in virtual time
				text := tell(t, "-speed", "1", "-strategy", name)
				assert.Contains(t, text, "a message went to each queue")
				assert.Contains(t, text, "ok: ivo holds nothing")
				assert.Contains(t, text, "8. The strategies side by side")
			})
		})
	}
}

func TestTheStoryIsTrueInRealTime(t *testing.T) {
	t.Parallel()
	text := tell(t, "-step") // nobody presses Enter: the input is at its end
	assert.Contains(t, text, "-- Enter goes on --")
	assert.Contains(t, text, "carla is out (silent)")
}

func TestTheChartHasOneElementPerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "chart.svg")
		tell(t, "-speed", "1", "-svg", file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		count := make(map[string]int)
		for d := xml.NewDecoder(bytes.NewReader(text)); ; {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, "well-formed XML")
			if e, ok := token.(xml.StartElement); ok {
				for _, a := range e.Attr {
					if a.Name.Local == "class" {
						count[a.Value]++
					}
				}
			}
		}
		assert.Equal(t, 16+8, count["lane"], "a lane for each queue")
		// In virtual time starts take none, so what a member held for no time at
		// all has no bar. orders: 16 at first; dora's join moves 9, bert's leave 5
		// and carla's death 5, whose bars change to faded ones before. audit: 4 at
		// first, then 6 that move or are new.
		assert.Equal(t, 16+9+5+5+5+4+6, count["window"])
		assert.Equal(t, 7, count["moment"])
		assert.Equal(t, 4+5, count["key"], "a colour for each consumer")
	})
}

func TestAChartTellsWhoIsCutOff(t *testing.T) {
	begin := time.Now()
	q := pocketmq.MessageQueue{Topic: orders, BrokerName: "broker-a"}
	at := func(s int) pocketmq.EventBase {
		return pocketmq.EventBase{Time: begin.Add(time.Duration(s) * time.Second)}
	}
	h := &history{clock: walk.Clock{Begin: begin, Speed: 1}, silent: map[string]time.Duration{"anna": 3 * time.Second}}
	c := h.chart("t", []pocketmq.Event{
		pocketmq.Rebalanced{EventBase: at(1), Client: clientID("anna"), Topic: orders, After: []pocketmq.MessageQueue{q}},
		pocketmq.Rebalanced{EventBase: at(9), Client: clientID("bert"), Topic: orders, After: []pocketmq.MessageQueue{q}},
		pocketmq.MemberLeft{EventBase: at(10), Client: clientID("bert")},
	})
	require.Len(t, c.Windows, 3)
	assert.Equal(t, [2]time.Duration{time.Second, 3 * time.Second}, [2]time.Duration{c.Windows[0].From, c.Windows[0].Till})
	assert.False(t, c.Windows[0].Style.Faded)
	assert.Equal(t, [2]time.Duration{3 * time.Second, 9 * time.Second}, [2]time.Duration{c.Windows[1].From, c.Windows[1].Till})
	assert.True(t, c.Windows[1].Style.Faded)
	assert.NotEqual(t, c.Windows[0].Style.Colour, c.Windows[2].Style.Colour, "bert's bar")
}

// Both strategies of our own, with all numbers of members and queues.
func TestOurStrategiesLeaveNoQueueAndGiveNoneTwice(t *testing.T) {
	for _, s := range []rebalance.Strategy{sticky{}, canary{"m3", rebalance.Averagely}, canary{"m0", sticky{}}} {
		for members := 1; members <= 9; members++ {
			var ids []string
			for i := range members {
				ids = append(ids, clientID("m"+string(rune('0'+i))))
			}
			for n := 1; n <= 16; n++ {
				assert.NoError(t, rebalance.Verify(s, group, ordersQueues()[:n], ids), "%s, %d members, %d queues", s.Name(), members, n)
			}
		}
	}
}

func TestStickyIsEven(t *testing.T) {
	shares, err := strategyOf("STICKY").shares(ordersQueues(), "anna", "bert", "carla", "dora", "ed")
	require.NoError(t, err)
	for member, share := range shares {
		assert.Contains(t, []int{3, 4}, len(share), member)
	}
}

// Each of our strategies is to be read at a glance.
func TestOurStrategiesHaveLessThan30Lines(t *testing.T) {
	for _, file := range []string{"sticky.go", "canary.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, from, found := strings.Cut(string(text), ") Allocate(")
		require.True(t, found)
		body, _, _ := strings.Cut(from, "\n}\n")
		assert.Less(t, strings.Count(body, "\n")+2, 30, file)
	}
}
