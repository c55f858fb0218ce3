package fault

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPresetsAreValidAndSayWhatTheyIsolate(t *testing.T) {
	type isolations map[time.Duration]time.Duration
	for name, tc := range map[string]struct {
		cfg    Config
		slow   isolations
		failed time.Duration
		limits [4]int // of 1, 3, 7 and 10 brokers
	}{
		"V5": {V5(), isolations{
			549 * time.Millisecond: 0, 550 * time.Millisecond: 2 * time.Second, 1800 * time.Millisecond: 5 * time.Second,
			3 * time.Second: 6 * time.Second, 5 * time.Second: 10 * time.Second, time.Hour: 30 * time.Second,
		}, 10 * time.Second, [4]int{1, 3, 7, 10}},
		"V4": {V4(), isolations{
			549 * time.Millisecond: 0, 550 * time.Millisecond: 30 * time.Second, time.Second: time.Minute,
			2 * time.Second: 2 * time.Minute, 3 * time.Second: 3 * time.Minute, time.Hour: 10 * time.Minute,
		}, 30 * time.Second, [4]int{1, 3, 7, 10}},
		"Breaker": {Breaker(), isolations{
			549 * time.Millisecond: 0, 550 * time.Millisecond: time.Minute, time.Hour: time.Minute,
		}, time.Minute, [4]int{1, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, tc.cfg.Validate())
			assert.True(t, tc.cfg.Enabled)
			assert.False(t, tc.cfg.Detect)
			for latency, want := range tc.slow {
				assert.Equal(t, want, tc.cfg.isolation(latency), "%v", latency)
			}
			assert.Equal(t, tc.failed, tc.cfg.isolation(tc.cfg.IsolationLatency))
			for i, brokers := range []int{1, 3, 7, 10} {
				assert.Equal(t, tc.limits[i], tc.cfg.limit(brokers), "of %d brokers", brokers)
			}
		})
	}
}

func TestTheZeroConfigIsValidAndHasTheValuesOfV5(t *testing.T) {
	assert.NoError(t, Config{}.Validate())
	filled := Config{Enabled: true}.withDefaults()
	assert.Equal(t, V5(), filled)
	assert.False(t, Config{}.withDefaults().Enabled)
}

func TestValidateListsEveryViolation(t *testing.T) {
	err := Config{
		LatencyMax:       []time.Duration{-1, 5 * time.Second, 5 * time.Second},
		NotAvailable:     []time.Duration{-time.Second, math.MaxInt64},
		IsolationLatency: -time.Second,
		MaxIsolated:      1.5,
	}.Validate()
	assert.EqualError(t, err, "LatencyMax has 3 entries and NotAvailable 2, each latency needs its duration (nil = the 7 defaults); "+
		"LatencyMax[0] is -1ns, must not be negative; LatencyMax[2] is 5s, must be more than LatencyMax[1] = 5s; "+
		"NotAvailable[0] is -1s, must be between 0 and 100 years; NotAvailable[1] is 2562047h47m16.854775807s, must be between 0 and 100 years; "+
		"IsolationLatency is -1s, must be positive (0 = 10s); MaxIsolated is 1.5, must be between 0 (no limit) and 1")
	assert.ErrorContains(t, Config{LatencyMax: []time.Duration{time.Second}}.Validate(), "LatencyMax has 1 entries and NotAvailable 7")
	assert.Error(t, Config{MaxIsolated: math.NaN()}.Validate())
	assert.Error(t, Config{MaxIsolated: -0.1}.Validate())
}

func TestTheLimitIsTheFloorOfTheShareAndAtLeastOne(t *testing.T) {
	for share, want := range map[float64]int{0.001: 1, 0.29: 29, 0.57: 57, 0.999: 99, 1: 100} {
		c := Config{MaxIsolated: share}
		assert.Equal(t, want, c.limit(100), "%v", share)
	}
}

func TestATrackerOwnsItsConfig(t *testing.T) {
	cfg := V5()
	tracker := NewTracker(cfg)
	cfg.NotAvailable[2] = time.Hour
	now := time.Unix(1, 0)
	tracker.Report("a", 600*time.Millisecond, false, true, now)
	assert.True(t, tracker.Available("a", now.Add(2*time.Second)))
}

func TestATrackerDoesWhatItCanWithAnUnusableConfig(t *testing.T) {
	tracker := NewTracker(Config{
		Enabled: true, LatencyMax: []time.Duration{0, 1, 2}, NotAvailable: []time.Duration{-1, math.MaxInt64}, MaxIsolated: math.NaN(),
	})
	now := time.Unix(1, 0)
	tracker.Report("a", time.Second, true, true, now)
	tracker.Report("b", 0, false, true, now)
	assert.False(t, tracker.Available("a", now.Add(time.Hour)))
	assert.True(t, tracker.Available("b", now))
	q, ok := tracker.Select(queuesOf(1, "a", "b"), "", NewCounter(0), now)
	assert.True(t, ok)
	assert.Equal(t, "b", q.BrokerName)
}
