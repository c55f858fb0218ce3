package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestABackOffDoublesToALimitUntilASuccess(t *testing.T) {
	now := time.Unix(1, 0)
	var b Backoff
	for range 2 {
		for _, ms := range []int{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
			b.Failed(now)
			assert.Equal(t, time.Duration(ms)*time.Millisecond, b.Until.Sub(now))
		}
		b = Backoff{}
	}
}
