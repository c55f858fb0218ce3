package walk

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

// Story prints what happens, step by step. It is told by one goroutine.
type Story struct {
	Clock Clock
	out   io.Writer
	enter *bufio.Reader // -step: a line read is an Enter; nil = nobody is waited for
	steps int
}

func newStory(out io.Writer, speed float64) *Story {
	return &Story{Clock: Clock{Begin: time.Now(), Speed: speed}, out: out}
}

// Again begins anew: another clock, the first step.
func (s *Story) Again(speed float64) {
	s.Clock, s.steps = Clock{Begin: time.Now(), Speed: speed}, 0
}

// Step begins the next step. With -step it waits for Enter first.
func (s *Story) Step(title string) {
	if s.enter != nil && s.steps > 0 {
		fmt.Fprint(s.out, "\n   -- Enter goes on --")
		if _, err := s.enter.ReadString('\n'); err != nil {
			s.enter = nil // nobody is there: the rest is told without a break
		}
	}
	s.steps++
	fmt.Fprintf(s.out, "\n%d. %s\n", s.steps, title)
}

// width is that of the text.
const width = 96

// Say prints a paragraph.
func (s *Story) Say(format string, args ...any) {
	line := "  "
	fmt.Fprintln(s.out)
	for word := range strings.FieldsSeq(fmt.Sprintf(format, args...)) {
		if len(line)+1+len(word) > width {
			fmt.Fprintln(s.out, line)
			line = "  "
		}
		line += " " + word
	}
	fmt.Fprintln(s.out, line)
}

// At prints something that happened at a moment of cluster time.
func (s *Story) At(at time.Duration, format string, args ...any) {
	fmt.Fprintf(s.out, "   %9s   %s\n", Seconds(at), fmt.Sprintf(format, args...))
}

// Line prints one line as it is; an empty one for "".
func (s *Story) Line(format string, args ...any) {
	fmt.Fprintln(s.out, strings.TrimRight("   "+fmt.Sprintf(format, args...), " "))
}

// Checked tells that something was claimed and is true.
func (s *Story) Checked(format string, args ...any) {
	s.Line("ok: "+format, args...)
}
