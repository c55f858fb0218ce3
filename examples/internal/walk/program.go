package walk

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Program is a walkthrough: what its flags mean, and what it does.
type Program struct {
	Name     string
	About    string   // what it shows; printed by -h
	Choice   string   // what -strategy chooses
	Choices  []string // the values of -strategy, the default first; nil = there is no such flag
	Drawn    string   // what -svg draws
	Speed    float64  // default of -speed
	Fastest  float64  // most that -speed may be: beyond it, what takes milliseconds cannot be told apart
	Examples []string // command lines for -h: the flags, "#", and what they do

	// Run tells the story. It returns an error if what the story claims did not
	// happen.
	Run func(ctx context.Context, s *Story, o Options) error
}

// Options are the flags of a walkthrough.
type Options struct {
	Step     bool
	Strategy string  // one of Program.Choices; "" without any
	Speed    float64 // positive
	SVG      string  // a file; "" = none
}

// Main runs p as the whole process does: its flags, input and output. It does
// not return. The exit code is 0 when everything came as told, 1 when it did
// not, 2 for flags that make no sense.
func Main(p Program) {
	err := Run(context.Background(), p, os.Args[1:], os.Stdin, os.Stdout)
	var usage *usageError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "%s: %v; -h tells what is possible\n", p.Name, err)
		os.Exit(2)
	}
	fmt.Fprintf(os.Stderr, "\n%s: %v\n", p.Name, err)
	os.Exit(1)
}

// Run runs p with these flags. -step reads lines of in; the story goes to out.
func Run(ctx context.Context, p Program, args []string, in io.Reader, out io.Writer) error {
	o, err := p.parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return &usageError{err}
	}
	s := newStory(out, o.Speed)
	if o.Step {
		s.enter = bufio.NewReader(in)
	}
	return p.Run(ctx, s, o)
}

// usageError is an error in the flags.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func (p Program) parse(args []string, out io.Writer) (Options, error) {
	o := Options{}
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are told once, by Main
	flags.BoolVar(&o.Step, "step", false, "wait for Enter before each step; the cluster's time goes on meanwhile")
	if len(p.Choices) > 0 {
		flags.StringVar(&o.Strategy, "strategy", p.Choices[0], p.Choice+": "+strings.Join(p.Choices, ", "))
	}
	flags.Float64Var(&o.Speed, "speed", p.Speed, fmt.Sprintf("cluster time runs `N` times faster, 0.1 to %v; the times told are cluster time", p.Fastest))
	flags.StringVar(&o.SVG, "svg", "", "draw "+p.Drawn+" into this `file`")
	flags.Usage = func() {
		fmt.Fprintf(out, "%s\n\nUsage: go run ./examples/%s [flags]\n\n", p.About, p.Name)
		flags.SetOutput(out)
		flags.PrintDefaults()
		fmt.Fprintf(out, "\nExamples:\n\n")
		for _, example := range p.Examples {
			flagsOf, what, _ := strings.Cut(example, "#")
			fmt.Fprintf(out, "  go run ./examples/%s %-28s #%s\n", p.Name, strings.TrimSpace(flagsOf), what)
		}
		fmt.Fprintf(out, "\nThe exit code is 1 if something that it tells did not happen.\n")
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	if !(o.Speed >= 0.1 && o.Speed <= p.Fastest) {
		return o, fmt.Errorf("-speed is %v, must be between 0.1 and %v", o.Speed, p.Fastest)
	}
	if len(p.Choices) == 0 {
		return o, writable(o.SVG)
	}
	i := slices.IndexFunc(p.Choices, func(c string) bool { return strings.EqualFold(c, o.Strategy) })
	if i < 0 {
		return o, fmt.Errorf("-strategy %q is not known, there are %s", o.Strategy, strings.Join(p.Choices, ", "))
	}
	o.Strategy = p.Choices[i]
	return o, writable(o.SVG)
}

// writable reports before the story whether its chart can be drawn after it.
func writable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("-svg: %w", err)
	}
	return f.Close()
}
