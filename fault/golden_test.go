package fault

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func goldenQueue(t *testing.T, text string) message.Queue {
	t.Helper()
	broker, id, ok := strings.Cut(text, ":")
	require.True(t, ok)
	n, err := strconv.Atoi(id)
	require.NoError(t, err)
	return message.Queue{Topic: "T", BrokerName: broker, QueueID: n}
}

func TestGoldenSelectionWithoutLatencies(t *testing.T) {
	raw, err := os.ReadFile("testdata/fault.json")
	require.NoError(t, err)
	var file struct {
		Scenarios []struct {
			Name                   string
			SendLatencyFaultEnable bool
			StartIndex             int32
			Queues                 []string
			Steps                  []struct {
				Op             string
				LastBrokerName string
				Result         string
				IndexAfter     int32
			}
		}
		Compute             []json.RawMessage
		ComputeCustomArrays []json.RawMessage `json:"compute_custom_arrays"`
		Update              []json.RawMessage
		Ordering            []json.RawMessage
		Detector            []json.RawMessage
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	passed, skipped := 0, 0
	for _, s := range file.Scenarios {
		if s.SendLatencyFaultEnable {
			skipped++
			continue
		}
		var queues []message.Queue
		for _, q := range s.Queues {
			queues = append(queues, goldenQueue(t, q))
		}
		c := NewCounter(s.StartIndex)
		for i, step := range s.Steps {
			if step.Op != "selectOneMessageQueue" { // latencies reported while the feature is off
				continue
			}
			q, ok := c.Pick(queues, step.LastBrokerName)
			require.True(t, ok)
			assert.Equal(t, goldenQueue(t, step.Result), q, "%s, step %d", s.Name, i)
			assert.Equal(t, step.IndexAfter, c.n.Load(), "%s, step %d", s.Name, i)
		}
		passed++
	}
	assert.Positive(t, passed)
	t.Logf("scenarios: %d passed, %d skipped (with the latency table on)", passed, skipped)
	t.Logf("skipped (the latency table is not part of this package): compute %d, compute_custom_arrays %d, update %d, ordering %d, detector %d",
		len(file.Compute), len(file.ComputeCustomArrays), len(file.Update), len(file.Ordering), len(file.Detector))
}
