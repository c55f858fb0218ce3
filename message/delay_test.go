package message

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAFaultInDelayLevelsNamesTheLevelAndKeepsTheOnesBefore(t *testing.T) {
	levels, err := ParseDelayLevels("1s 2q 3s")
	assert.EqualError(t, err, `delay level 2 in "1s 2q 3s": "2q" ends with none of the units s, m, h, d`)
	assert.Equal(t, []time.Duration{time.Second}, levels)

	_, err = ParseDelayLevels("")
	assert.EqualError(t, err, `delay level 1 in "": "" is empty, write for example 10s`)
	_, err = ParseDelayLevels("300000d")
	assert.EqualError(t, err, `delay level 1 in "300000d": "300000d" is over 292 years`)
}
