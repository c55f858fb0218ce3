package client

import (
	"strings"

	"github.com/pocketmq/pocketmq/message"
)

// similar returns the one of known names that name is most likely a slip of,
// the first in order of several; "" when none is close: one edit in a short
// name, up to three in a long one. System topics are never meant.
func similar(name string, known []string) string {
	if reserved(name) || len(name) < 3 {
		return ""
	}
	best, distance := "", 1+min(3, 1+len(name)/6)
	for _, k := range known {
		if k == name || reserved(k) {
			continue
		}
		if d := editDistance(name, k, distance); d < distance || d == distance && best != "" && k < best {
			best, distance = k, d
		}
	}
	return best
}

func reserved(topic string) bool {
	return topic == message.AutoCreateTopic || strings.HasPrefix(topic, "%") || strings.HasPrefix(topic, "rmq_sys_")
}

// editDistance is the least number of bytes to insert, delete, replace or
// swap with their neighbour to make a into b, or some number above limit if
// it is above limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	// Rows of the optimal string alignment: two back, one back, present.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
			least = min(least, row[j+1])
		}
		if least > limit {
			return least
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
