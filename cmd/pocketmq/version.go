package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

const versionHelp = `usage: pocketmq version

Prints three lines, such as:

  version v1.2.3 (revision 1f2e3d)
  go 1.26.8 linux/amd64
  protocol 479 (RocketMQ 5.3.3)

The first is (devel) when the program was built from a clone without a tag; the
revision is that of the clone, where go has noted one. The second is what it was built
with, and for; the third, of which version of RocketMQ its servers and clients say they
are.

Examples:
  pocketmq version
  pocketmq --version

Exit codes:
  0  printed
  2  wrong usage, or nothing could be printed
`

// release names protocol.ClientVersion. Java: MQVersion.V5_3_3.
const release = "5.3.3"

// version prints what this program is.
func version(_ context.Context, env *environment, args []string) int {
	flags := flag.NewFlagSet("version", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), versionHelp) }
	rest, code, ok := parse(flags, env, args)
	if !ok {
		return code
	}
	if len(rest) > 0 {
		fmt.Fprintf(env.err, "pocketmq version: takes no arguments, but got %q\n%s", rest[0], versionHelp)
		return exitError
	}
	info, _ := debug.ReadBuildInfo()
	if _, err := fmt.Fprint(env.out, versionText(info)); err != nil {
		fmt.Fprintf(env.err, "pocketmq version: %v\n", err)
		return exitError
	}
	return exitClean
}

// versionText is what version prints of a build; info is nil for one without
// modules.
func versionText(info *debug.BuildInfo) string {
	module, from := "unknown", ""
	if info != nil {
		module = info.Main.Version
		var notes []string
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				notes = append(notes, "revision "+s.Value)
			case s.Key == "vcs.modified" && s.Value == "true":
				notes = append(notes, "modified")
			}
		}
		if len(notes) > 0 {
			from = " (" + strings.Join(notes, ", ") + ")"
		}
	}
	if module == "" {
		module = "(devel)"
	}
	return fmt.Sprintf("version %s%s\n%s %s/%s\nprotocol %d (RocketMQ %s)\n",
		module, from, strings.Replace(runtime.Version(), "go", "go ", 1), runtime.GOOS, runtime.GOARCH, protocol.ClientVersion, release)
}
