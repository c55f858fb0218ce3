// Command pocketmq is the program beside the library: it runs name servers and
// brokers for clients of RocketMQ in whatever language, looks into the data
// folders of brokers, and salvages damaged ones.
//
//	pocketmq serve                  a name server and a broker on TCP
//	pocketmq inspect DIR            what is in the data folder of a stopped broker, or in a copy
//	pocketmq inspect --salvage DIR  keep what can be read of a damaged one
//	pocketmq version                which version of it this is, and of RocketMQ's protocol
//	pocketmq help [COMMAND]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes of inspect and version; serve has others.
const (
	exitClean    = 0
	exitFindings = 1 // something is to be done about the folder
	exitError    = 2 // wrong usage, or a folder that cannot be read or written
)

// command is one of the words that may follow the name of the program.
type command struct {
	name, summary string
	run           func(ctx context.Context, env *environment, args []string) int
}

func commands() []command {
	return []command{
		{"serve", "run name servers and brokers for clients of RocketMQ", serve},
		{"inspect", "say what is in a data folder, what is wrong with it, and what to do", inspect},
		{"version", "say which version this is, and of which of RocketMQ it says it is", version},
	}
}

// environment is what a command sees of the world.
type environment struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // somebody can answer a question
}

func main() {
	ctx, stop := untilSignal()
	env := &environment{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: isTerminal(os.Stdin)}
	code := run(ctx, env, os.Args[1:])
	stop()
	os.Exit(code)
}

// untilSignal returns a context that ends with the first SIGINT, SIGTERM or SIGHUP,
// the last one unless whoever started the program had it ignored, as nohup does. The
// second one ends the process, as does the first after stop. Whoever sees the end of
// the context can rely on that: signals are let go before it. stop waits for the
// goroutine that does so.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals, over := make(chan os.Signal, 1), make(chan struct{}) // 1: none is lost before it is looked at
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		defer close(over)
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals)
		cancel()
	}()
	return ctx, func() { cancel(); <-over }
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run is the program without its process.
func run(ctx context.Context, env *environment, args []string) int {
	if len(args) == 0 {
		usage(env.err)
		return exitError
	}
	name := args[0]
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		if len(args) > 1 && name == "help" {
			return run(ctx, env, []string{args[1], "-h"})
		}
		usage(env.out)
		return exitClean
	}
	if name == "-version" || name == "--version" {
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(ctx, env, args[1:])
		}
	}
	fmt.Fprintf(env.err, "pocketmq: there is no command %q\n", name)
	usage(env.err)
	return exitError
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: pocketmq COMMAND [ARGUMENTS]")
	fmt.Fprintln(w)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-8s  %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "  %-8s  %s\n", "help", "say more about a command")
	fmt.Fprint(w, `
Examples:
  pocketmq serve
  pocketmq inspect ./data/broker-a-0
  pocketmq help serve
`)
}

// parse reads flags before, between and behind the other arguments, which it
// returns. ok is false when the command is to end with code.
func parse(flags *flag.FlagSet, env *environment, args []string) (rest []string, code int, ok bool) {
	flags.SetOutput(env.err)
	for _, a := range args {
		if a == "-h" || a == "-help" || a == "--help" {
			flags.SetOutput(env.out)
		}
	}
	for {
		err := flags.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			return nil, exitClean, false
		}
		if err != nil {
			return nil, exitError, false
		}
		if args = flags.Args(); len(args) == 0 {
			return rest, 0, true
		}
		rest, args = append(rest, args[0]), args[1:]
	}
}
