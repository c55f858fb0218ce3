package delay

import "maps"

// deletions tells messages of deleted topics from those of topics that were
// created later under the same name: topic -> level -> the offset of the level
// before which its messages were stored when the topic was deleted. A level
// without an offset had nothing left to deliver. nil is none.
type deletions map[string]map[int]int64

// add notes that a topic was deleted when the levels went on at next and ended at
// end. It reports whether any message may wait.
func (d deletions) add(topic string, next, end []int64) bool {
	levels := make(map[int]int64)
	for i := range end {
		if end[i] > next[i] {
			levels[i] = end[i]
		}
	}
	if len(levels) == 0 {
		delete(d, topic)
		return false
	}
	d[topic] = levels
	return true
}

// has reports whether a message of a topic is of one that was deleted since.
func (d deletions) has(topic string, level int, offset int64) bool {
	return offset < d[topic][level]
}

// lower moves what lies beyond the ends of the levels to them: the end of a log may
// be lost, and its offsets be given out again.
func (d deletions) lower(end []int64) {
	for _, levels := range d {
		for level, at := range levels {
			if level < len(end) {
				levels[level] = min(at, end[level])
			}
		}
	}
}

// trim forgets what the levels have come past.
func (d deletions) trim(next []int64) {
	maps.DeleteFunc(d, func(_ string, levels map[int]int64) bool {
		maps.DeleteFunc(levels, func(level int, at int64) bool { return level >= len(next) || at <= next[level] })
		return len(levels) == 0
	})
}

func (d deletions) clone() deletions {
	c := make(deletions, len(d))
	for topic, levels := range d {
		c[topic] = maps.Clone(levels)
	}
	return c
}

func (d deletions) equal(o deletions) bool {
	return maps.EqualFunc(d, o, func(a, b map[int]int64) bool { return maps.Equal(a, b) })
}
