package deadline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func of(parent context.Context, d time.Duration) *Context {
	c := new(Context)
	c.Set(parent, time.Now().Add(d))
	return c
}

func TestItEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := of(t.Context(), time.Second)
		defer c.End()
		assert.NoError(t, c.Err())
		time.Sleep(time.Second)
		assert.Equal(t, context.DeadlineExceeded, c.Err(), "also when nobody has waited")
		<-c.Done()

		c = of(t.Context(), time.Second)
		start := time.Now()
		<-c.Done()
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, context.DeadlineExceeded, c.Err())
		at, ok := c.Deadline()
		assert.True(t, ok)
		assert.Equal(t, start.Add(time.Second), at)
		c.End()
	})
}

func TestItEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, waits := range []bool{false, true} {
			parent, cancel := context.WithCancel(t.Context())
			c := of(parent, time.Second)
			if waits {
				_ = c.Done()
			}
			cancel()
			assert.Equal(t, context.Canceled, c.Err())
			<-c.Done()
			c.End()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := of(short, time.Minute)
		at, _ := c.Deadline()
		assert.Equal(t, time.Now().Add(time.Second), at, "the earlier one")
		outer := of(t.Context(), time.Second)
		inner := of(outer, time.Minute)
		at, _ = inner.Deadline()
		assert.Equal(t, time.Now().Add(time.Second), at)
		<-inner.Done()
		assert.NoError(t, t.Context().Err())
		c.End()
		outer.End()
		inner.End()
	})
}

func TestEndReleasesWhoeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := of(t.Context(), time.Hour)
		waiting := c.Done()
		start := time.Now()
		c.End()
		<-waiting
		c = of(t.Context(), time.Hour)
		c.End()
		<-c.Done()
		assert.Equal(t, context.Canceled, c.Err())
		assert.Zero(t, time.Since(start))
		c.End()
	})
}

func TestACancellableOneEndsWhenItIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []time.Time{{}, time.Now().Add(time.Hour)} {
			for _, waits := range []bool{false, true} {
				var c, inner Context
				c.SetCancellable(t.Context(), limit)
				at, ok := c.Deadline()
				assert.Equal(t, limit, at)
				assert.Equal(t, !limit.IsZero(), ok)
				inner.Set(&c, time.Now().Add(time.Minute))
				derived, cancel := context.WithCancel(&inner)
				if waits {
					_, _, _ = c.Done(), inner.Done(), derived.Done()
				}
				assert.NoError(t, inner.Err())
				c.Cancel()
				c.Cancel()
				for _, ctx := range []context.Context{&c, &inner, derived, c.Parent(), inner.Parent()} {
					assert.Equal(t, context.Canceled, ctx.Err())
					<-ctx.Done()
				}
				cancel()
				inner.End()
				c.End()
			}
		}
	})
}

func TestACancelThatIsLateChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Context
		c.SetCancellable(t.Context(), time.Now().Add(time.Second))
		time.Sleep(time.Second)
		c.Cancel()
		assert.Equal(t, context.DeadlineExceeded, c.Err())
		<-c.Done()
		c.End()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, limit := range []time.Time{{}, time.Now().Add(time.Minute)} {
			var c Context
			c.SetCancellable(short, limit)
			at, _ := c.Deadline()
			assert.Equal(t, time.Now().Add(time.Second), at, "its parent's")
			c.End()
		}
	})
}

type key struct{}

func TestItHandsOnTheValuesOfItsParent(t *testing.T) {
	c := of(context.WithValue(t.Context(), key{}, "v"), time.Hour)
	defer c.End()
	assert.Equal(t, "v", c.Value(key{}))
	_ = c.Done()
	assert.Equal(t, "v", c.Value(key{}))
	allocs := testing.AllocsPerRun(100, func() {
		var c Context
		c.Set(t.Context(), time.Now().Add(time.Hour))
		_ = c.Err()
		c.End()
	})
	assert.LessOrEqual(t, allocs, 1.0, "without anybody who waits there is no timer")
}
