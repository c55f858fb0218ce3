package fault

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// goldenState is a row of the reference's table, times in milliseconds.
type goldenState struct {
	CurrentLatency, StartTimestamp int64
	Available, Reachable           bool
}

type goldenFile struct {
	Defaults struct {
		LatencyMax, NotAvailableDuration []int64
		SendLatencyEnable                bool
		StartDetectorEnable              bool
		DetectInterval                   int64
	}
	Compute             []struct{ Latency, Duration int64 }
	ComputeCustomArrays []struct {
		LatencyMax, NotAvailableDuration []int64
		Latency, Duration                int64
	} `json:"compute_custom_arrays"`
	Update []struct {
		CurrentLatency       int64
		Isolation, Reachable bool
		Now                  int64
		ItemLatency          int64 `json:"item.currentLatency"`
		ItemStart            int64 `json:"item.startTimestamp"`
		IsAvailable          bool
		IsReachable          bool
		Enabled              *bool `json:"sendLatencyFaultEnable"` // nil = true
		TableSize            *int
	}
	Scenarios []struct {
		Name                   string
		SendLatencyFaultEnable bool
		StartIndex             int32
		StartClock             int64
		Queues                 []string
		Steps                  []struct {
			Op                   string
			Broker               string
			CurrentLatency       int64
			Isolation, Reachable bool
			Ms                   int64
			State                map[string]goldenState
			LastBrokerName       string
			Result               string
			IndexAfter           int32
			Possible             []string
		}
	}
	Ordering []struct {
		Now   int64
		Items []struct {
			Name                           string
			CurrentLatency, StartTimestamp int64
		}
		Sorted    []string
		CompareTo map[string]int
	}
	Detector []struct {
		Name, Setup string
		Rounds      []struct {
			Now         int64
			DetectCalls []string
			State       map[string]goldenState
		}
	}
}

func golden(t *testing.T) goldenFile {
	t.Helper()
	raw, err := os.ReadFile("testdata/fault.json")
	require.NoError(t, err)
	var file goldenFile
	require.NoError(t, json.Unmarshal(raw, &file))
	return file
}

// ms is a number of milliseconds, or as many as a Duration holds.
func ms(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}

func allMs(ns []int64) []time.Duration {
	var out []time.Duration
	for _, n := range ns {
		out = append(out, ms(n))
	}
	return out
}

// at is a golden point in time; 0 is "never".
func at(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

func goldenQueue(t *testing.T, text string) message.Queue {
	t.Helper()
	broker, id, ok := strings.Cut(text, ":")
	require.True(t, ok)
	n, err := strconv.Atoi(id)
	require.NoError(t, err)
	return message.Queue{Topic: "T", BrokerName: broker, QueueID: n}
}

// assertState compares a whole table with a golden one.
func assertState(t *testing.T, want map[string]goldenState, tracker *Tracker, now time.Time, what ...any) {
	t.Helper()
	got := make(map[string]goldenState)
	for _, item := range tracker.Items() {
		s := goldenState{
			CurrentLatency: item.Latency.Milliseconds(),
			Available:      tracker.Available(item.Broker, now), Reachable: tracker.Reachable(item.Broker),
		}
		assert.Equal(t, item.Reachable, s.Reachable, what...)
		if !item.AvailableFrom.IsZero() {
			s.StartTimestamp = item.AvailableFrom.UnixMilli()
		}
		got[item.Broker] = s
	}
	if want == nil {
		want = map[string]goldenState{}
	}
	assert.Equal(t, want, got, what...)
}

func TestGoldenDefaults(t *testing.T) {
	d := golden(t).Defaults
	v5 := V5()
	assert.Equal(t, allMs(d.LatencyMax), v5.LatencyMax)
	assert.Equal(t, allMs(d.NotAvailableDuration), v5.NotAvailable)
	assert.Equal(t, ms(d.DetectInterval), detectInterval)
	assert.Equal(t, d.SendLatencyEnable, Config{}.Enabled)
	assert.Equal(t, d.StartDetectorEnable, v5.Detect)
}

func TestGoldenDurations(t *testing.T) {
	file := golden(t)
	require.NotEmpty(t, file.Compute)
	require.NotEmpty(t, file.ComputeCustomArrays)
	c := V5()
	for _, row := range file.Compute {
		assert.Equal(t, ms(row.Duration), c.isolation(ms(row.Latency)), "latency %d", row.Latency)
	}
	for _, row := range file.ComputeCustomArrays {
		c := Config{LatencyMax: allMs(row.LatencyMax), NotAvailable: allMs(row.NotAvailableDuration)}
		require.NoError(t, c.Validate())
		assert.Equal(t, ms(row.Duration), c.isolation(ms(row.Latency)), "latency %d", row.Latency)
	}
	if !t.Failed() { // a row that failed must not be counted
		t.Logf("compute: %d passed, 0 skipped; compute_custom_arrays: %d passed, 0 skipped", len(file.Compute), len(file.ComputeCustomArrays))
	}
}

func TestGoldenUpdates(t *testing.T) {
	file := golden(t)
	require.NotEmpty(t, file.Update)
	for i, row := range file.Update {
		cfg := V5()
		cfg.Enabled = row.Enabled == nil || *row.Enabled
		tracker, now := NewTracker(cfg), at(row.Now)
		tracker.Report("a", ms(row.CurrentLatency), row.Isolation, row.Reachable, now)
		if row.TableSize != nil {
			assert.Len(t, tracker.Items(), *row.TableSize, "row %d", i)
			assert.Equal(t, row.IsAvailable, tracker.Available("a", now), "row %d", i)
			assert.Equal(t, row.IsReachable, tracker.Reachable("a"), "row %d", i)
			continue
		}
		assertState(t, map[string]goldenState{"a": {row.ItemLatency, row.ItemStart, row.IsAvailable, row.IsReachable}}, tracker, now, "row %d", i)
	}
	if !t.Failed() { // a row that failed must not be counted
		t.Logf("update: %d passed, 0 skipped", len(file.Update))
	}
}

func TestGoldenScenarios(t *testing.T) {
	file := golden(t)
	require.NotEmpty(t, file.Scenarios)
	for _, s := range file.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			cfg := V5()
			cfg.Enabled = s.SendLatencyFaultEnable
			tracker, next, now := NewTracker(cfg), NewCounter(s.StartIndex), at(s.StartClock)
			var queues []message.Queue
			for _, q := range s.Queues {
				queues = append(queues, goldenQueue(t, q))
			}
			given := slices.Clone(queues)
			for i, step := range s.Steps {
				switch step.Op {
				case "updateFaultItem":
					tracker.Report(step.Broker, ms(step.CurrentLatency), step.Isolation, step.Reachable, now)
				case "advance":
					now = now.Add(ms(step.Ms))
				case "remove":
					tracker.Remove(step.Broker)
				case "selectOneMessageQueue":
					q, ok := tracker.Select(queues, step.LastBrokerName, next, now)
					require.True(t, ok)
					assert.Equal(t, goldenQueue(t, step.Result), q, "step %d", i)
					assert.Equal(t, step.IndexAfter, next.n.Load(), "step %d", i)
					continue
				case "pickOneAtLeast":
					seen := make(map[string]bool)
					for range 300 {
						broker, ok := tracker.PickAtLeastOne(now)
						require.Equal(t, step.Possible != nil, ok)
						if ok {
							seen[broker] = true
						}
					}
					for _, want := range step.Possible {
						assert.True(t, seen[want], "step %d: %s", i, want)
					}
					assert.Len(t, seen, len(step.Possible))
					continue
				default:
					t.Fatalf("step %d: unknown operation %q", i, step.Op)
				}
				assertState(t, step.State, tracker, now, "step %d", i)
			}
			assert.Equal(t, given, queues)
		})
	}
	if !t.Failed() { // a row that failed must not be counted
		t.Logf("scenarios: %d passed, 0 skipped", len(file.Scenarios))
	}
}

func TestGoldenOrder(t *testing.T) {
	file := golden(t)
	require.NotEmpty(t, file.Ordering)
	for i, row := range file.Ordering {
		now, items := at(row.Now), make(map[string]Item)
		var sorted []Item
		for _, g := range row.Items {
			items[g.Name] = Item{Broker: g.Name, Latency: ms(g.CurrentLatency), AvailableFrom: at(g.StartTimestamp)}
			sorted = append(sorted, items[g.Name])
		}
		for pair, want := range row.CompareTo {
			a, b, _ := strings.Cut(pair, "?")
			assert.Equal(t, want, items[a].compare(items[b], now), "row %d: %s", i, pair)
		}
		slices.SortStableFunc(sorted, func(a, b Item) int { return a.compare(b, now) })
		var names []string
		for _, item := range sorted {
			names = append(names, item.Broker)
		}
		assert.Equal(t, row.Sorted, names, "row %d", i)
	}
	if !t.Failed() { // a row that failed must not be counted
		t.Logf("ordering: %d passed, 0 skipped", len(file.Ordering))
	}
}

// What a producer does with the brokers that are due is its own part: here are
// a resolver and a detector like those of the golden rows.
func TestGoldenDetector(t *testing.T) {
	file := golden(t)
	require.NotEmpty(t, file.Detector)
	for _, row := range file.Detector {
		t.Run(row.Name, func(t *testing.T) {
			resolves, answers, asks := true, true, true
			tracker := NewTracker(V5())
			tracker.Report("a", 5*time.Second, false, false, at(1_000_000))
			if row.Name == "no detector (null)" {
				asks = false
			} else {
				tracker.Report("b", 5*time.Millisecond, false, true, at(1_000_000))
			}
			switch row.Name {
			case "addr does not resolve":
				resolves = false
			case "addr resolves, detect fails":
				answers = false
			case "addr resolves, detect ok", "no detector (null)":
			default:
				t.Fatalf("unknown row")
			}
			for _, round := range row.Rounds {
				var calls []string
				for _, broker := range tracker.Due(at(round.Now)) {
					switch {
					case !resolves:
						tracker.Remove(broker)
					case asks:
						calls = append(calls, "addr-"+broker+" timeout=200")
						if answers {
							tracker.SetReachable(broker, true)
						}
					}
				}
				assert.Equal(t, len(round.DetectCalls), len(calls), "at %d", round.Now)
				assert.ElementsMatch(t, round.DetectCalls, calls, "at %d", round.Now)
				assertState(t, round.State, tracker, at(round.Now), "at %d", round.Now)
			}
		})
	}
	if !t.Failed() { // a row that failed must not be counted
		t.Logf("detector: %d passed, 0 skipped", len(file.Detector))
	}
}
