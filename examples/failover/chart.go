package main

import (
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// bucket is what the chart counts acknowledgements over.
const bucket = 100 * time.Millisecond

// Colours of the chart.
const (
	colourMaster = 2
	colourFormer = 5
	colourSlave  = 4
	colourNone   = 7
	colourAcks   = 0
)

func colourOf(does string) int {
	switch does {
	case "master":
		return colourMaster
	case "former":
		return colourFormer
	case "slave":
		return colourSlave
	}
	return colourNone
}

// chart draws who was what when, and how many sends were acknowledged.
func (t *stage) chart(until time.Duration) *walk.Chart {
	c := &walk.Chart{
		Title:    "Who is master when, and what is acknowledged",
		Subtitle: "Above, for each group, the roles of its members. Below, acknowledged sends per 100 ms.",
		Moments:  t.moments,
		Until:    until,
		Legend: []walk.Key{
			{Style: walk.Style{Colour: colourMaster}, Text: "master"},
			{Style: walk.Style{Colour: colourSlave}, Text: "slave"},
			{Style: walk.Style{Colour: colourNone}, Text: "no role, or no master to follow"},
			{Style: walk.Style{Colour: colourFormer}, Text: "master without a lease: answers nothing in its group's name"},
			{Style: walk.Style{Colour: colourMaster, Faded: true}, Text: "cut off"},
			{Style: walk.Style{Colour: colourAcks}, Text: "acknowledged sends"},
		},
	}
	for _, m := range everyMember() {
		lane := len(c.Lanes)
		c.Lanes = append(c.Lanes, walk.Lane{Group: m.group, Name: fmt.Sprint("broker ", m.id)})
		for _, s := range t.roles.history(m) {
			if s.does == "down" || s.till <= s.from {
				continue
			}
			text := fmt.Sprintf("%v: %s, epoch %d, from %s to %s", m, s.does, s.epoch, walk.Seconds(s.from), walk.Seconds(s.till))
			if s.cut {
				text += ", cut off"
			}
			c.Windows = append(c.Windows, walk.Window{Lane: lane, From: s.from, Till: s.till, Style: walk.Style{Colour: colourOf(s.does), Faded: s.cut}, Text: text})
		}
	}
	counts := make(map[string][]int)
	most := 1
	for _, s := range t.account.all() {
		if s.err != nil {
			continue
		}
		if counts[s.group] == nil {
			counts[s.group] = make([]int, until/bucket+1)
		}
		i := min(int(s.end/bucket), len(counts[s.group])-1)
		counts[s.group][i]++
		most = max(most, counts[s.group][i])
	}
	for _, group := range []string{groupA, groupB} {
		lane := len(c.Lanes)
		c.Lanes = append(c.Lanes, walk.Lane{Group: "acknowledged", Name: group})
		for i, n := range counts[group] {
			if n == 0 {
				continue
			}
			from := time.Duration(i) * bucket
			c.Bars = append(c.Bars, walk.Bar{
				Lane: lane, From: from, Till: from + bucket, Height: float64(n) / float64(most), Style: walk.Style{Colour: colourAcks},
				Text: fmt.Sprintf("%d sends, from %s on", n, walk.Seconds(from)),
			})
		}
	}
	return c
}

// timeline prints the same in letters, one for every cell.
func (t *stage) timeline(until time.Duration) {
	cell := time.Second
	for until/cell > 76 {
		cell *= 2
	}
	cells := int(until/cell) + 1
	scale := ""
	for i := 0; i < cells; i += 10 {
		scale += fmt.Sprintf("%-10s", fmt.Sprintf("%d s", int((time.Duration(i)*cell).Seconds())))
	}
	t.story.Line("")
	t.story.Line("%-14s%s", "", scale)
	row := func(title string, letterAt func(from, till time.Duration) byte) {
		line := make([]byte, cells)
		for i := range line {
			from := time.Duration(i) * cell
			line[i] = letterAt(from, from+cell)
		}
		t.story.Line("%-14s%s", title, line)
	}
	for _, m := range everyMember() {
		history := t.roles.history(m)
		row(m.String(), func(from, till time.Duration) byte { return letterOf(history, (from+till)/2) })
	}
	for _, group := range []string{groupA, groupB} {
		row("acks "+group, func(from, till time.Duration) byte {
			switch n := t.account.acknowledged(group, from, till); {
			case n == 0:
				return '.'
			case time.Duration(n) < cell/pace/2: // a busy group has three senders' halves
				return '+'
			}
			return '#'
		})
	}
	t.story.Line("")
	t.story.Line("M master, m the same but cut off, x one without a lease, s slave, - no role, . not running")
	t.story.Line("acknowledged: # %d a second and more, + fewer, . none", time.Second/pace/2)
}

// letterOf is what a member did at a moment.
func letterOf(history []span, at time.Duration) byte {
	for _, s := range history {
		if s.from <= at && at < s.till {
			switch {
			case s.does == "down":
				return '.'
			case s.does == "former":
				return 'x'
			case s.does == "master" && s.cut:
				return 'm'
			case s.does == "master":
				return 'M'
			case s.does == "slave":
				return 's'
			}
			return '-'
		}
	}
	return ' '
}
