package pocketmq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestIntervalsThatAreLeftOpenFitThoseThatAreSet(t *testing.T) {
	for _, c := range []struct {
		set                                       Timings
		renew, life, expire, pullSuspend, expired time.Duration
	}{
		{Timings{}, 20 * time.Second, 30 * time.Second, time.Minute, 15 * time.Second, 2 * time.Minute},
		{Timings{LockExpire: 3 * time.Second}, time.Second, 1500 * time.Millisecond, 3 * time.Second, 15 * time.Second, 2 * time.Minute},
		{Timings{LockClientLife: time.Minute}, 20 * time.Second, time.Minute, 2 * time.Minute, 15 * time.Second, 2 * time.Minute},
		{Timings{LockRenew: time.Minute}, time.Minute, 90 * time.Second, 3 * time.Minute, 15 * time.Second, 2 * time.Minute},
		{Timings{PullSuspend: time.Hour}, 20 * time.Second, 30 * time.Second, time.Minute, time.Hour, 8 * time.Hour},
		{Timings{PullSuspend: maxInterval, LockRenew: maxInterval}, maxInterval, maxInterval, maxInterval, maxInterval, maxInterval / 8 * 8},
	} {
		got := c.set.withDefaults()
		assert.Equal(t, []time.Duration{c.renew, c.life, c.expire, c.pullSuspend},
			[]time.Duration{got.LockRenew, got.LockClientLife, got.LockExpire, got.PullSuspend}, "%+v", c.set)
		assert.GreaterOrEqual(t, got.PullExpire, c.expired)
		p := problems{what: "Timings"}
		c.set.validate(&p)
		assert.NoError(t, p.err(), "%+v", c.set)
	}
	for _, set := range []Timings{
		{LockExpire: time.Second, LockClientLife: 2 * time.Second}, {LockClientLife: time.Second, LockRenew: 2 * time.Second},
		{LockExpire: time.Second, LockRenew: 2 * time.Second}, {PullSuspend: time.Minute, PullExpire: time.Second},
	} {
		p := problems{what: "Timings"}
		set.validate(&p)
		assert.ErrorIs(t, p.err(), ErrInvalidConfig, "%+v", set)
		assert.ErrorContains(t, p.err(), "set both", "%+v", set)
	}
}
