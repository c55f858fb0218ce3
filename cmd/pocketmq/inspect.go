package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/store"
)

const inspectHelp = `usage: pocketmq inspect [--json] [--all] [--salvage [--yes]] DIR

Says what is in the data folder DIR of a broker: whose it is, the files of the
commit log, the queues, the checkpoint; what is wrong, in words, and what to do.
It reads every record and runs the store's own check. It changes nothing.

The broker must be stopped; or look at a copy of its folder. A folder in use is
refused.

--salvage makes a damaged log one that can be opened and written again. It says
first what it will do, and does it when you have agreed: on a terminal it asks,
elsewhere it wants --yes. Every record that can be read is kept in its place; what
is lost is marked, and consumers pass over it. Copies of all that it changes go to
a folder DIR/salvage-TIME, with a report. It may be stopped at any moment and
repeated.

MIN of a queue is its first offset, MAX the one that the next message gets.

Flags:
  --json     print one JSON object: the fields of store.Inspection, and "applied"
             {"folder", "after"} once a salvage has been done
  --all      print all files, queues and gaps, however many there are
  --salvage  as above
  --yes      do not ask

Examples:
  pocketmq inspect ./data/broker-a-0
  pocketmq inspect --json ./data/broker-a-0
  pocketmq inspect --salvage --yes ./data/broker-a-0

Exit codes:
  0  nothing is to be done: all is well, or it is after the salvage, or a crash
     left an end that the next start cuts off
  1  something is to be done
  2  wrong usage, a folder in use, or one that cannot be read or written
`

// options are the flags of inspect.
type options struct {
	json, all, salvage, yes bool
}

// report is what --json prints.
type report struct {
	*store.Inspection
	Applied *applied `json:"applied,omitempty"`
}

// applied tells of a salvage that has been done.
type applied struct {
	Folder string            `json:"folder"` // with the copies and the report
	After  *store.Inspection `json:"after"`  // the folder inspected again
}

func inspect(ctx context.Context, env *environment, args []string) int {
	var opt options
	flags := flag.NewFlagSet("inspect", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), inspectHelp) }
	flags.BoolVar(&opt.json, "json", false, "")
	flags.BoolVar(&opt.all, "all", false, "")
	flags.BoolVar(&opt.salvage, "salvage", false, "")
	flags.BoolVar(&opt.yes, "yes", false, "")
	dirs, code, ok := parse(flags, env, args)
	if !ok {
		return code
	}
	wrong := ""
	switch {
	case len(dirs) == 0:
		wrong = "name a data folder"
	case len(dirs) > 1:
		wrong = fmt.Sprintf("name one data folder, not %d", len(dirs))
	case opt.yes && !opt.salvage:
		wrong = "--yes is for --salvage"
	case opt.json && opt.salvage && !opt.yes:
		wrong = "--json does not ask: add --yes"
	}
	if wrong != "" {
		fmt.Fprintf(env.err, "pocketmq inspect: %s\n\n%s", wrong, inspectHelp)
		return exitError
	}
	code, err := opt.inspect(ctx, env, dirs[0])
	if err != nil {
		fmt.Fprintf(env.err, "pocketmq inspect: %v\n", err)
		return exitError
	}
	return code
}

func (opt options) inspect(ctx context.Context, env *environment, dir string) (int, error) {
	found, err := store.Inspect(ctx, dir)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriter(env.out)
	t := text{w: out, all: opt.all}
	if !opt.json {
		t.inspection(found)
	}
	result := report{Inspection: found}
	last := found
	if opt.salvage {
		if !opt.json {
			t.plan(found)
		}
		if err := out.Flush(); err != nil {
			return 0, err
		}
		done, err := opt.apply(ctx, env, found)
		if err != nil {
			return 0, err
		}
		if done != nil {
			result.Applied, last = done, done.After
			if !opt.json {
				t.applied(found.Salvage, done)
			}
		}
	}
	if opt.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(result); err != nil {
			return 0, err
		}
	}
	if err := out.Flush(); err != nil {
		return 0, err
	}
	if slices.ContainsFunc(last.Findings, func(f store.Finding) bool { return !f.Harmless }) {
		return exitFindings, nil
	}
	return exitClean, nil
}

// apply carries out the plan of a salvage when somebody has agreed. nil means
// that nothing was done.
func (opt options) apply(ctx context.Context, env *environment, found *store.Inspection) (*applied, error) {
	if found.Salvage == nil {
		return nil, nil
	}
	if !opt.yes {
		if !env.terminal {
			return nil, errors.New("nobody is there to be asked whether to salvage: add --yes")
		}
		if yes, err := ask(env, "Salvage now? [y/N] "); !yes || err != nil {
			return nil, err
		}
	}
	folder, err := found.Salvage.Apply(ctx)
	if err != nil {
		return nil, err
	}
	after, err := store.Inspect(ctx, found.Dir)
	if err != nil {
		return nil, err
	}
	return &applied{Folder: folder, After: after}, nil
}

// ask is false unless the answer is yes.
func ask(env *environment, question string) (bool, error) {
	if _, err := io.WriteString(env.out, question); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(env.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}
