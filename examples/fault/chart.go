package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// Colours of the chart.
const (
	colourSlow    = 1
	colourFailing = 5
	colourAvoided = 4
)

// chart draws when who avoided whom, below what was wrong with the brokers.
func (s *street) chart(until time.Duration) *walk.Chart {
	c := &walk.Chart{
		Title:    "Which broker is avoided when, and what runs into trouble",
		Subtitle: "Above, what is wrong with the brokers. Below, for each preset, when its producer avoids them: all send ten messages a second.",
		Moments:  s.moments,
		Until:    until,
		Legend: []walk.Key{
			{Style: walk.Style{Colour: colourSlow}, Text: "slow: 600 ms for a message"},
			{Style: walk.Style{Colour: colourFailing}, Text: "failing"},
			{Style: walk.Style{Colour: colourAvoided}, Text: "isolated: gets nothing as long as there is another"},
			{Style: walk.Style{Tick: true}, Text: "a message that ran into it"},
		},
	}
	lane := make(map[string]int)
	for _, group := range append([]string{"trouble"}, s.names()...) {
		for _, broker := range brokers() {
			lane[group+" "+broker] = len(c.Lanes)
			c.Lanes = append(c.Lanes, walk.Lane{Group: group, Name: broker})
		}
	}
	for _, a := range s.ailments {
		colour := colourSlow
		if a.what == "failing" {
			colour = colourFailing
		}
		till := min(a.till, until)
		c.Windows = append(c.Windows, walk.Window{
			Lane: lane["trouble "+a.broker], From: a.from, Till: till, Style: walk.Style{Colour: colour},
			Text: fmt.Sprintf("%s is %s from %s to %s", a.broker, a.what, walk.Seconds(a.from), walk.Seconds(till)),
		})
	}
	for _, shop := range s.shops {
		for _, w := range shop.windows(s.log.Since(0)) {
			c.Windows = append(c.Windows, walk.Window{
				Lane: lane[shop.preset.name+" "+w.broker], From: w.from, Till: min(w.till, until), Style: walk.Style{Colour: colourAvoided},
				Text: fmt.Sprintf("%s avoids %s from %s to %s", shop.preset.name, w.broker, walk.Seconds(w.from), walk.Seconds(w.till)),
			})
		}
		for _, sale := range shop.between(0, until) {
			for _, broker := range sale.sick {
				c.Ticks = append(c.Ticks, walk.Tick{Lane: lane[shop.preset.name+" "+broker], At: sale.at})
			}
		}
	}
	return c
}

func (s *street) names() []string {
	var out []string
	for _, shop := range s.shops {
		out = append(out, shop.preset.name)
	}
	return out
}

// timeline prints the same in letters, one for every cell of two seconds.
func (s *street) timeline(until time.Duration) {
	cell := 2 * time.Second
	for until/cell > 70 {
		cell *= 2
	}
	cells := int(until/cell) + 1
	scale := ""
	for i := 0; i < cells; i += 10 {
		scale += fmt.Sprintf("%-10s", fmt.Sprintf("%d s", int((time.Duration(i)*cell).Seconds())))
	}
	s.story.Line("")
	s.story.Line("%-12s%s", "", scale)
	row := func(title string, letterAt func(from, till time.Duration) byte) {
		line := make([]byte, cells)
		for i := range line {
			from := time.Duration(i) * cell
			line[i] = letterAt(from, from+cell)
		}
		s.story.Line("%-12s%s", title, line)
	}
	for _, broker := range brokers() {
		row(fmt.Sprintf("%-9s %s", first(broker, "trouble"), letter(broker)), func(from, till time.Duration) byte {
			for _, a := range s.ailments {
				if a.broker == broker && a.from < till-cell/4 && a.till > from+cell/4 {
					return strings.ToUpper(a.what)[0]
				}
			}
			return '.'
		})
	}
	for _, shop := range s.shops {
		windows := shop.windows(s.log.Since(0))
		for _, broker := range brokers() {
			row(fmt.Sprintf("%-9s %s", first(broker, shop.preset.name), letter(broker)), func(from, till time.Duration) byte {
				if shop.between(from, till).ranInto(broker) > 0 {
					return '!'
				}
				for _, w := range windows {
					if w.broker == broker && w.from < till && w.till >= till {
						return '#'
					}
				}
				return '.'
			})
		}
	}
	s.story.Line("")
	s.story.Line("S slow   F failing   # isolated   ! a message ran into the trouble   . in use")
}

// first is title in the line of the first broker, "" in the others.
func first(broker, title string) string {
	if broker == brokers()[0] {
		return title
	}
	return ""
}
