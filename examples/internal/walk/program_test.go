package walk

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func program(run func(context.Context, *Story, Options) error) Program {
	return Program{
		Name: "demo", About: "Demo shows nothing.", Choice: "the way", Choices: []string{"ONE", "TWO"}, Drawn: "nothing",
		Speed: 60, Fastest: 1000, Examples: []string{"-speed 2 # slowly"}, Run: run,
	}
}

func TestFlagsReachTheProgram(t *testing.T) {
	t.Chdir(t.TempDir()) // where the chart would go
	for args, want := range map[string]Options{
		"":                                  {Strategy: "ONE", Speed: 60},
		"-strategy two -speed 0.5 -svg a.b": {Strategy: "TWO", Speed: 0.5, SVG: "a.b"},
		"-step":                             {Step: true, Strategy: "ONE", Speed: 60},
	} {
		var got Options
		err := Run(t.Context(), program(func(_ context.Context, s *Story, o Options) error {
			got = o
			assert.Equal(t, o.Speed, s.Clock.Speed)
			return nil
		}), strings.Fields(args), strings.NewReader(""), &bytes.Buffer{})
		require.NoError(t, err, args)
		assert.Equal(t, want, got, args)
	}
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for args, says := range map[string]string{
		"-strategy three": `there are ONE, TWO`, "-speed 0": "between 0.1 and 1000", "-speed NaN": "between", "-speed 2000": "between",
		"-colour": "not defined", "now": `"now" is no flag`,
		"-svg no/such/folder/x.svg": "no/such/folder",
	} {
		err := Run(t.Context(), program(nil), strings.Fields(args), strings.NewReader(""), &bytes.Buffer{})
		var usage *usageError
		require.ErrorAs(t, err, &usage, args)
		assert.ErrorContains(t, err, says, args)
	}
}

func TestHelpShowsFlagsAndExamples(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Run(t.Context(), program(nil), []string{"-h"}, strings.NewReader(""), &out))
	for _, part := range []string{"Demo shows nothing.", "go run ./examples/demo [flags]", "-step", "the way: ONE, TWO", "-speed N", "default 60", "-svg file", "# slowly"} {
		assert.Contains(t, out.String(), part)
	}
}

func TestWithoutChoicesThereIsNoStrategy(t *testing.T) {
	p := program(func(_ context.Context, _ *Story, o Options) error {
		assert.Equal(t, Options{Speed: 60}, o)
		return nil
	})
	p.Choices = nil
	require.NoError(t, Run(t.Context(), p, nil, strings.NewReader(""), &bytes.Buffer{}))
	require.ErrorContains(t, Run(t.Context(), p, []string{"-strategy", "ONE"}, strings.NewReader(""), &bytes.Buffer{}), "not defined")
}

func TestErrorsOfTheStoryComeBack(t *testing.T) {
	wrong := errors.New("it was not so")
	err := Run(t.Context(), program(func(context.Context, *Story, Options) error { return wrong }), nil, strings.NewReader(""), &bytes.Buffer{})
	assert.Equal(t, wrong, err)
}
