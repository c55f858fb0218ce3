package message

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDelayLevels reads a list of delay levels such as "1s 5s 10s 1m 2h":
// numbers with one of the units s, m, h, d, parted by single blanks; blanks
// at the end do not count. The first is level 1. On an error it returns the
// levels before the bad one beside it. Java:
// ScheduleMessageService.parseDelayLevel.
//
// Differs: a level beyond 292 years is an error, as it exceeds time.Duration.
func ParseDelayLevels(text string) ([]time.Duration, error) {
	var levels []time.Duration
	for i, field := range strings.Split(strings.TrimRight(text, " "), " ") {
		d, err := parseDelay(field)
		if err != nil {
			return levels, fmt.Errorf("delay level %d in %q: %w", i+1, text, err)
		}
		levels = append(levels, d)
	}
	return levels, nil
}

func parseDelay(field string) (time.Duration, error) {
	if field == "" {
		return 0, fmt.Errorf("%q is empty, write for example 10s", field)
	}
	var unit time.Duration
	switch field[len(field)-1] {
	case 's':
		unit = time.Second
	case 'm':
		unit = time.Minute
	case 'h':
		unit = time.Hour
	case 'd':
		unit = 24 * time.Hour
	default:
		return 0, fmt.Errorf("%q ends with none of the units s, m, h, d", field)
	}
	n, err := strconv.ParseInt(field[:len(field)-1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number and unit", field)
	}
	if n > math.MaxInt64/int64(unit) || n < math.MinInt64/int64(unit) {
		return 0, fmt.Errorf("%q is over 292 years", field)
	}
	return time.Duration(n) * unit, nil
}

// LevelDelay returns the delay of a level, counted from 1. A level that is
// not in levels means one second. Java:
// ScheduleMessageService.computeDeliverTimestamp.
func LevelDelay(levels []time.Duration, level int) time.Duration {
	if level < 1 || level > len(levels) {
		return time.Second
	}
	return levels[level-1]
}
