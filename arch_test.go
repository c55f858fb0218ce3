package pocketmq_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/pocketmq/pocketmq"

// allowedImports is the map of the house: package -> package it may import ->
// why. "." is the root. What is not here is not allowed, and what nobody uses
// any more has to go.
var allowedImports = map[string]map[string]string{
	"message": {},
	"protocol": {
		"message": "a locked queue is a message.Queue; what a message or a name is refused for is one sentinel, whoever finds it",
	},
	"rebalance": {
		"message": "a strategy divides message.Queue values",
	},
	"fault": {
		"message": "a queue is chosen among message.Queue values",
	},
	"filter": {
		"message": "brokers filter by the tag hash of stored records",
	},
	"store": {
		"message": "the log holds message's stored records and assigns their offsets",
	},
	"remoting": {
		"internal/deadline": "a request whose caller has said how long it waits",
		"message":           "queues, and the hash of tags",
		"protocol":          "each command is a method of a service",
	},
	"ha":                 {},
	"internal/deadline":  {},
	"internal/statefile": {},
	"internal/pipenet":   {},
	"internal/history":   {}, // of tests only
	"internal/memnet": {
		"protocol": "it is a protocol.Transport",
	},
	"internal/routetable": {
		"protocol": "registrations come in, routes go out",
	},
	"internal/kvconfig": {
		"internal/statefile": "the KV configuration outlives the name server",
	},
	"internal/topics": {
		"internal/statefile": "the topic table outlives the broker",
		"message":            "reserved and system topics",
		"protocol":           "protocol.TopicConfig is what a broker registers",
	},
	"internal/offsets": {
		"internal/statefile": "committed offsets outlive the broker",
		"protocol":           "a slave has the master's table, and its master what was committed there",
	},
	"internal/delay": {
		"internal/statefile": "how far the levels were delivered outlives the broker",
		"protocol":           "a slave has the master's progress",
		"message":            "delayed records are rewritten here",
	},
	"internal/groups": {
		"internal/statefile": "the settings of groups outlive the broker",
		"message":            "a group's name is checked before it gets settings",
		"protocol":           "heartbeats come in, notices go out through protocol.Peer",
	},
	"internal/queuelock": {
		"message": "what is locked is a message.Queue",
	},
	"internal/longpoll": {},
	"internal/client": {
		"message":  "a route is a list of message.Queue values",
		"protocol": "sessions, routes and heartbeats",
	},
	"internal/consume": {
		"filter":             "the exact tag test is the client's",
		"internal/client":    "client.Route is what it rebalances over; the calls go through its own interface",
		"internal/statefile": "a broadcasting member keeps its offsets itself",
		"message":            "stored records are decoded here",
		"protocol":           "pulls, offsets and member lists",
		"rebalance":          "the strategy is asked here",
	},
	".": {
		"fault":               "the producer's choice of a queue",
		"filter":              "subscriptions are compiled when a config is checked",
		"ha":                  "wiring: a broker's master and slaves",
		"internal/client":     "wiring: routes, sessions and heartbeats of clients; a broker's back-off from name servers",
		"internal/consume":    "wiring: the engine of a Consumer",
		"internal/deadline":   "the budget of a send",
		"internal/delay":      "wiring: delayed messages",
		"internal/groups":     "wiring: the broker's consumers and producers",
		"internal/kvconfig":   "wiring: the name server's KV configuration",
		"internal/longpoll":   "wiring: held pulls",
		"internal/memnet":     "wiring: the in-memory Transport",
		"internal/offsets":    "wiring: committed offsets",
		"internal/queuelock":  "wiring: the locks of orderly groups",
		"internal/routetable": "wiring: the name server's routes",
		"internal/statefile":  "what a broker remembers as a member of its group",
		"internal/topics":     "wiring: the broker's topics",
		"message":             "the vocabulary is passed on under the root's names",
		"protocol":            "servers implement it, clients call it",
		"rebalance":           "ConsumerConfig.Strategy",
		"remoting":            "wiring: the TCP Transport",
		"store":               "wiring: the broker's log and queues",
	},
	"mqtest": {
		".":        "it runs clusters",
		"message":  "a locked queue is a message.Queue, in the suite of transports",
		"protocol": "the suite of transports has servers and clients of its own",
		"store":    "the folder of a killed broker is opened again for Check",
	},
	"cmd/pocketmq": {
		".":        "it serves clusters",
		"message":  "names and delay levels are checked as flags",
		"protocol": "its Transport tells an advertised host",
		"store":    "it looks into data folders, and salvages them",
	},
	"examples/failover": {
		".":                      "an example uses what a user would",
		"examples/internal/walk": "what the walkthroughs share",
	},
	"examples/fault": {
		".":                      "an example uses what a user would",
		"examples/internal/walk": "what the walkthroughs share",
		"fault":                  "the presets, and a table to ask",
		"protocol":               "the code of the requests that are to be slow, or to fail",
	},
	"examples/internal/walk": {
		".": "the clock, events and timings of a cluster",
	},
	"examples/layouts": {
		".": "an example uses what a user would",
	},
	"examples/quickstart": {
		".": "an example uses what a user would",
	},
	"examples/rebalance": {
		".":                      "an example uses what a user would",
		"examples/internal/walk": "what the walkthroughs share",
		"rebalance":              "strategies",
	},
}

// allowedModules is the same for other modules: each lies behind types of ours,
// so that it can be replaced in one place.
var allowedModules = map[string]map[string]string{
	"github.com/dgraph-io/ristretto/v2": {"store": "the cache of blocks for random reads of old files"},
	"github.com/klauspost/compress":     {"message": "zlib and zstd bodies"},
	"github.com/pierrec/lz4":            {"message": "lz4 bodies"},
	"github.com/tidwall/wal":            {"store": "the files of the commit log"},
	"golang.org/x/sync": {
		".":        "errgroup: members start, and are asked, at the same time; singleflight: a topic is created once",
		"remoting": "semaphore: the bytes of large requests",
		"store":    "singleflight: a block is read once for all who want it; errgroup: an open reads the headers of the log's files side by side",
	},
}

// goroutineOwners lists the files that start goroutines, by a go statement or a
// Go method, with who ends them. Every goroutine has an owner that joins it.
var goroutineOwners = map[string]string{
	"admin_group.go":              "one call per master: joined before the function returns",
	"broker_relay.go":             "one question per member of a group: joined before the function returns",
	"broker.go":                   "the loops of a broker: its Close joins them",
	"broker_master.go":            "the slaves of a master: the broker's Close joins them",
	"broker_slave.go":             "what a slave follows and copies: the broker's Close joins it",
	"cluster.go":                  "members start, and a broker registers everywhere, at the same time: joined before the function returns",
	"cluster_close.go":            "members end at the same time: joined before the function returns",
	"events.go":                   "the goroutine of OnEvent: emitter.close joins it",
	"namesrv.go":                  "the scan of a name server: its Close joins it",
	"namesrv_minid.go":            "notices to brokers: the name server's Close joins them",
	"producer_detect.go":          "one question per broker: joined before the round ends",
	"producer_fault.go":           "the reachability detector: Producer.Close joins it",
	"producer_send.go":            "asynchronous sends: Producer.Close waits for them",
	"internal/client/client.go":   "the loop of a client: its Close joins it",
	"internal/client/flight.go":   "a shared call outlives the caller that began it: the client's Close joins it",
	"internal/client/brokers.go":  "one call per broker: joined before the function returns",
	"store/append.go":             "a leader in place of callers that left: Close, Kill and Discard join it",
	"internal/consume/locks.go":   "one request for locks per broker: joined before the function returns",
	"internal/consume/offsets.go": "one commit per broker: joined before the function returns",
	"internal/consume/run.go":     "all goroutines of an engine: its Close joins them",
	"mqtest/transport.go":         "calls beside a case of the suite of transports: they end with what they call, at the latest when the case closes it",
	"ha/participant.go":           "the link to the controller, and its reader: Run joins them",
	"ha/controller_server.go":     "the controller, and the connections of its replicas: Serve joins them",
	"cluster_controller.go":       "the controller of a group: Cluster.Close, or KillController, joins it",
	"broker_failover.go":          "the broker's part in elections, and the duties of its roles: its Close joins them",
	"ha/sender.go":                "writing to a slave: the goroutine that serves the connection joins it",
	"ha/slaves.go":                "the connections of slaves, and the watch over their set: Serve joins them",
	"ha/wire.go":                  "reading while the last words are written: joined before the connection is closed",
	"remoting/lane.go":            "requests of a connection: whoever ends the connection joins them",
	"remoting/link.go":            "who finds the end of a connection that nobody reads: whoever ended it joins them",
	"remoting/reading.go":         "reading and writing a connection: whoever ends it joins them",
	"remoting/right.go":           "who goes on reading a connection: whoever ends it joins them",
	"remoting/server.go":          "accepting connections: Close joins it",
	"remoting/workers.go":         "the workers of a server or client: its Close joins them",
	"store/diskguard.go":          "a call of FreeBytes, the user's: Close, Kill, PowerOff and Discard wait 10 s for it",
	"store/recover.go":            "readers of file headers: joined before the open goes on",
	"store/store.go":              "the flusher and the janitor of a store: Close, Kill and Discard join it",
}

// allowedCalls lists calls that library code otherwise does not make: file ->
// call -> why.
var allowedCalls = map[string]map[string]string{
	"cluster_faults.go": {
		"context.Background": "Kill, PowerOff and KillNameServer take no ctx: they wait for nothing but the end of another change",
	},
	"internal/memnet/network.go": {
		"context.Background": "sessions live until they are closed, longer than the call that dialled them",
	},
	"internal/client/client.go": {
		"context.Background": "the background work of a client lives until Close, longer than any call",
	},
	"internal/consume/engine.go": {
		"context.Background": "Close takes no ctx: CloseTimeout bounds it",
	},
	"remoting/link.go": {
		"context.Background": "a connection lives until it is closed, longer than the call that dialled it",
	},
	"remoting/server.go": {
		"context.Background": "a listener lives until it is closed, longer than the call that made it",
	},
	"store/append.go": {
		"context.Background": "a leader in place of callers that left works for those that stayed",
	},
	"mqtest/goroutines.go": {
		"time.Sleep": "goroutines that have been joined end within an instant that nothing signals",
	},
}

// forbiddenCalls says what library code does not call, and why. "pkg.*" is the
// whole package.
var forbiddenCalls = map[string]string{
	"time.Sleep":         "nothing sleeps to wait: a select on what it waits for, a ctx and a timer ends in time",
	"time.Tick":          "its ticker can't be stopped",
	"context.Background": "a call ends with the ctx of its caller",
	"context.TODO":       "a call ends with the ctx of its caller",
	"fmt.Print":          "standard output belongs to the program we are part of: log through the given slog.Logger",
	"fmt.Printf":         "standard output belongs to the program we are part of: log through the given slog.Logger",
	"fmt.Println":        "standard output belongs to the program we are part of: log through the given slog.Logger",
	"log.*":              "the global logger belongs to the program we are part of: log through the given slog.Logger",
	"slog.Default":       "the global logger belongs to the program we are part of: log through the given slog.Logger",
	"slog.SetDefault":    "the global logger belongs to the program we are part of",
	"slog.Debug":         "the global logger belongs to the program we are part of: log through the given slog.Logger",
	"slog.Info":          "the global logger belongs to the program we are part of: log through the given slog.Logger",
	"slog.Warn":          "the global logger belongs to the program we are part of: log through the given slog.Logger",
	"slog.Error":         "the global logger belongs to the program we are part of: log through the given slog.Logger",
	"os.Exit":            "the process belongs to the program we are part of: return an error",
	"os.Stdout":          "standard output belongs to the program we are part of",
	"os.Stderr":          "standard error belongs to the program we are part of",
	"signal.*":           "signals belong to the program we are part of",
	"os.Getenv":          "settings come in configs: two clusters in one process may differ",
	"os.LookupEnv":       "settings come in configs: two clusters in one process may differ",
	"os.Environ":         "settings come in configs: two clusters in one process may differ",
	"flag.*":             "flags belong to the program we are part of",
	"runtime.Goexit":     "it ends a goroutine that may be the caller's",
	"print":              "standard error belongs to the program we are part of",
	"println":            "standard error belongs to the program we are part of",
}

// clocks are the functions of package time that ask or use the clock.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}

// purePackages are told the time by their callers: the same input gives the
// same answer, and their tests need no bubble.
var purePackages = []string{"message", "protocol", "rebalance", "fault", "filter", "internal/routetable", "internal/offsets", "internal/groups", "internal/queuelock", "internal/kvconfig"}

// allowedVars lists package-level variables that are neither sentinel errors
// nor interface checks, with why each is not state: file -> name -> why.
var allowedVars = map[string]map[string]string{
	"types.go": {
		"FromLastOffset":  "a value of an opaque type, part of the API",
		"FromFirstOffset": "a value of an opaque type, part of the API",
	},
	"rebalance/averagely.go": {"Averagely": "a strategy without fields, part of the API"},
	"rebalance/circle.go":    {"AveragelyByCircle": "a strategy without fields, part of the API"},
	"ha/frame.go":            {"castagnoli": "the table of a polynomial, written nowhere"},
	"ha/guard_mutate.go":     {"broken": "of a build for tests only, which takes rules away"},
	"store/envelope.go":      {"castagnoli": "the table of a polynomial, written nowhere"},
}

// undocumented are methods that the standard library gives a meaning to.
var undocumented = []string{"String", "Error", "Unwrap", "Is", "Len", "Less", "Swap", "Push", "Pop"}

func TestImportsFollowTheMapOfTheHouse(t *testing.T) {
	used := make(map[string]map[string]bool)
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		allowed, known := allowedImports[f.pkg]
		assert.True(t, known, "package %s is not in allowedImports: say there where it stands", f.pkg)
		for _, imported := range f.imports {
			to, ours := inModule(imported)
			if !ours {
				continue
			}
			if allowed[to] == "" {
				t.Errorf("%s imports %s: no such arrow in allowedImports. The packages are a strict order, so that each can be read and tested with what is below it only", f.path, to)
			}
			if used[f.pkg] == nil {
				used[f.pkg] = make(map[string]bool)
			}
			used[f.pkg][to] = true
		}
	}
	for pkg, arrows := range allowedImports {
		for to := range arrows {
			assert.True(t, used[pkg][to], "allowedImports lets %s import %s, which it does not: a map with roads that do not exist misleads", pkg, to)
		}
	}
}

func TestImportsHaveNoCircleAndOrgansNoNeighbours(t *testing.T) {
	var visit func(pkg string, above []string)
	visit = func(pkg string, above []string) {
		require.NotContains(t, above, pkg, "allowedImports has a circle")
		for to := range allowedImports[pkg] {
			visit(to, append(slices.Clone(above), pkg))
		}
	}
	for pkg := range allowedImports {
		visit(pkg, nil)
	}
	for _, leaf := range []string{"message", "protocol", "rebalance", "fault", "filter", "store", "ha"} {
		for to := range allowedImports[leaf] {
			assert.False(t, to == "." || strings.HasPrefix(to, "internal/"), "%s -> %s: a public leaf stands on its own, so that strategies and transports can be written without the rest", leaf, to)
		}
	}
}

func TestOtherModulesLieBehindOnePackageEach(t *testing.T) {
	used := make(map[string]map[string]bool)
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, imported := range f.imports {
			if _, ours := inModule(imported); ours || !strings.Contains(strings.Split(imported, "/")[0], ".") {
				continue
			}
			assert.NotContains(t, imported, "github.com/stretchr/testify", "%s: testify is for tests, users of the library must not get it", f.path)
			module := ""
			for m := range allowedModules {
				if imported == m || strings.HasPrefix(imported, m+"/") {
					module = m
				}
			}
			if allowedModules[module][f.pkg] == "" {
				t.Errorf("%s imports %s, which allowedModules does not let package %s do: a dependency is used behind one of our types, by the package that owns it", f.path, imported, f.pkg)
				continue
			}
			if used[module] == nil {
				used[module] = make(map[string]bool)
			}
			used[module][f.pkg] = true
		}
	}
	for module, pkgs := range allowedModules {
		for pkg := range pkgs {
			assert.True(t, used[module][pkg], "allowedModules lets %s import %s, which it does not", pkg, module)
		}
	}
}

func TestOnlyMqtestImportsTesting(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || f.pkg == "mqtest" {
			continue
		}
		for _, imported := range f.imports {
			assert.False(t, imported == "testing" || strings.HasPrefix(imported, "testing/"), "%s imports %s: it would add the flags of go test to every program that uses the library", f.path, imported)
		}
	}
}

func TestTheModuleGraphStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "all").Output()
	require.NoError(t, err)
	modules := strings.Split(strings.TrimSpace(string(out)), "\n")
	assert.LessOrEqual(t, len(modules), 25, "every module of the graph is one more to trust and to keep up to date for each user:\n%s", out)
}

func TestGoroutinesStartOnlyWhereTheyHaveAnOwner(t *testing.T) {
	starts := make(map[string]bool)
	for _, f := range libraryFiles(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			_, start := n.(*ast.GoStmt)
			if call, ok := n.(*ast.CallExpr); ok {
				s, ok := call.Fun.(*ast.SelectorExpr)
				start = ok && s.Sel.Name == "Go"
			}
			if !start {
				return true
			}
			starts[f.path] = true
			if goroutineOwners[f.path] == "" {
				t.Errorf("%s starts a goroutine: say in goroutineOwners who ends it, or use a loop that is there already. A goroutine without an owner is a leak", f.at(n))
			}
			return true
		})
	}
	for file := range goroutineOwners {
		assert.True(t, starts[file], "goroutineOwners lists %s, which starts no goroutine", file)
	}
}

func TestTheLibraryLeavesTheProcessAlone(t *testing.T) {
	used := make(map[string]map[string]bool)
	for _, f := range libraryFiles(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			name := ""
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if pkg, ok := f.packageOf(n); ok {
					name = path.Base(pkg) + "." + n.Sel.Name
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
					name = id.Name
				}
			}
			if name == "" {
				return true
			}
			reason, forbidden := forbiddenCalls[name]
			if !forbidden {
				pkg, _, _ := strings.Cut(name, ".")
				if reason, forbidden = forbiddenCalls[pkg+".*"]; !forbidden {
					return true
				}
			}
			if allowedCalls[f.path][name] == "" {
				t.Errorf("%s uses %s: %s", f.at(n), name, reason)
				return true
			}
			if used[f.path] == nil {
				used[f.path] = make(map[string]bool)
			}
			used[f.path][name] = true
			return true
		})
	}
	for file, calls := range allowedCalls {
		for call := range calls {
			assert.True(t, used[file][call], "allowedCalls lets %s use %s, which it does not", file, call)
		}
	}
}

func TestPureCodeNeverAsksTheClock(t *testing.T) {
	for _, f := range libraryFiles(t) {
		if !slices.Contains(purePackages, f.pkg) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := f.packageOf(s); ok && pkg == "time" && slices.Contains(clocks, s.Sel.Name) {
				t.Errorf("%s asks the clock: package %s is told the time by its callers, so that what it does can be repeated", f.at(n), f.pkg)
			}
			return true
		})
	}
}

func TestPackagesHaveNoState(t *testing.T) {
	used := make(map[string]map[string]bool)
	packageVars := make(map[string]map[string]bool) // package -> names
	for _, f := range libraryFiles(t) {
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s: an init function runs in every program that imports the package, used or not, and can't be repeated or bounded", f.at(d))
				}
			case *ast.GenDecl:
				if d.Tok != token.VAR {
					continue
				}
				for _, s := range d.Specs {
					spec := s.(*ast.ValueSpec)
					for i, name := range spec.Names {
						if name.Name == "_" || i < len(spec.Values) && f.isSentinel(name.Name, spec.Values[i]) {
							continue
						}
						if packageVars[f.pkg] == nil {
							packageVars[f.pkg] = make(map[string]bool)
						}
						packageVars[f.pkg][name.Name] = true
						if allowedVars[f.path][name.Name] == "" {
							t.Errorf("%s: package-level variable %s. State belongs to a value with a life: pools, caches and codecs of a package leak between clusters and kill the second bubble of a test binary. If it is never written, say so in allowedVars", f.at(name), name.Name)
							continue
						}
						if used[f.path] == nil {
							used[f.path] = make(map[string]bool)
						}
						used[f.path][name.Name] = true
					}
				}
			}
		}
	}
	for _, f := range libraryFiles(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || a.Tok == token.DEFINE {
				return true
			}
			for _, to := range a.Lhs {
				if id := rootIdent(to); id != nil && packageVars[f.pkg][id.Name] {
					t.Errorf("%s writes the package-level variable %s", f.at(a), id.Name)
				}
			}
			return true
		})
	}
	for file, names := range allowedVars {
		for name := range names {
			assert.True(t, used[file][name], "allowedVars lists %s of %s, which does not exist", name, file)
		}
	}
}

func TestEveryPackageSaysInDocGoWhatItIs(t *testing.T) {
	docs, program := make(map[string][]string), make(map[string]bool)
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		docs[f.pkg] = append(docs[f.pkg], []string{}...)
		if f.ast.Doc != nil {
			docs[f.pkg] = append(docs[f.pkg], path.Base(f.path))
		}
		program[f.pkg] = f.ast.Name.Name == "main"
	}
	for pkg, files := range docs {
		want := "doc.go"
		if program[pkg] {
			want = "main.go"
		}
		assert.Equal(t, []string{want}, files, "package %s: its one package comment stands in %s, where a reader looks first", pkg, want)
	}
}

func TestFilesStayReadable(t *testing.T) {
	for _, f := range sources(t) {
		if !f.test {
			assert.LessOrEqual(t, f.lines, 800, "%s has %d lines: a file is about one noun, this one holds two", f.path, f.lines)
		}
	}
}

func TestEverythingExportedIsDocumented(t *testing.T) {
	for _, f := range libraryFiles(t) {
		if strings.HasPrefix(f.pkg, "internal/") {
			continue
		}
		missing := func(n ast.Node, name string) {
			t.Errorf("%s: exported %s has no comment. Its comment is the contract that users and outside implementations rely on", f.at(n), name)
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Doc != nil || !d.Name.IsExported() || slices.Contains(undocumented, d.Name.Name) && d.Recv != nil {
					continue
				}
				if d.Recv == nil || ast.IsExported(receiver(d)) {
					missing(d, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
							missing(s, s.Name.Name)
						}
					case *ast.ValueSpec:
						if d.Doc != nil || s.Doc != nil || s.Comment != nil || isEnum(d) {
							continue
						}
						for _, name := range s.Names {
							if name.IsExported() {
								missing(s, name.Name)
							}
						}
					}
				}
			}
		}
	}
}

func TestEveryMutexSaysWhatItGuards(t *testing.T) {
	for _, f := range libraryFiles(t) {
		said := make(map[int]bool) // lines with a comment
		for _, group := range f.ast.Comments {
			for line := f.line(group.Pos()); line <= f.line(group.End()); line++ {
				said[line] = true
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				sel, ok := field.Type.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "Mutex" && sel.Sel.Name != "RWMutex" {
					continue
				}
				if len(field.Names) == 0 && len(s.Fields.List) > 1 {
					continue // mu struct { sync.Mutex; what it guards }
				}
				line := f.line(field.Pos())
				if !said[line] && !said[line-1] {
					t.Errorf("%s: a mutex without a word about what it guards can't be used right by the next one to come", f.at(field))
				}
			}
			return true
		})
	}
}

// source is one Go file of this module.
type source struct {
	path    string // from the root of the module, with slashes
	pkg     string // its package's folder; "." = the root
	test    bool
	lines   int
	imports []string
	names   map[string]string // of an imported package in this file -> its path
	ast     *ast.File
	fset    *token.FileSet
}

// parsed reads all files of the module once; the tests only look at them.
var parsed = sync.OnceValues(func() ([]*source, error) {
	var out []*source
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != "." {
				return fs.SkipDir // a module of its own
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		s := &source{
			path: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			lines: strings.Count(string(text), "\n"), names: make(map[string]string), ast: file, fset: fset,
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imported)
			local := path.Base(imported)
			if spec.Name != nil {
				local = spec.Name.Name
			} else if strings.HasPrefix(local, "v") && len(local) <= 3 {
				local = path.Base(path.Dir(imported)) // math/rand/v2
			}
			s.names[local] = imported
		}
		out = append(out, s)
		return nil
	})
	return out, err
})

func sources(t *testing.T) []*source {
	t.Helper()
	all, err := parsed()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

// libraryFiles are those that users link into their programs: no tests, no
// examples, no commands.
func libraryFiles(t *testing.T) []*source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(sources(t)), func(f *source) bool { return f.test || isProgram(f.pkg) })
}

func isProgram(pkg string) bool {
	return strings.HasPrefix(pkg, "examples/") || strings.HasPrefix(pkg, "cmd/")
}

// inModule returns the folder of an imported package of this module.
func inModule(imported string) (pkg string, ours bool) {
	if imported == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imported, modulePath+"/")
}

func (f *source) line(p token.Pos) int { return f.fset.Position(p).Line }

func (f *source) at(n ast.Node) string { return fmt.Sprintf("%s:%d", f.path, f.line(n.Pos())) }

// packageOf returns the import path of a selector whose left side is an
// imported package.
func (f *source) packageOf(s *ast.SelectorExpr) (string, bool) {
	id, ok := s.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	imported, ok := f.names[id.Name]
	return imported, ok
}

// isSentinel accepts errors made by errors.New or fmt.Errorf, and other names
// for sentinels of another package.
func (f *source) isSentinel(name string, value ast.Expr) bool {
	if !strings.HasPrefix(name, "Err") && !strings.HasPrefix(name, "err") {
		return false
	}
	switch v := value.(type) {
	case *ast.CallExpr:
		s, ok := v.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, _ := f.packageOf(s)
		return pkg == "errors" && s.Sel.Name == "New" || pkg == "fmt" && s.Sel.Name == "Errorf"
	case *ast.SelectorExpr:
		_, ok := f.packageOf(v)
		return ok && strings.HasPrefix(v.Sel.Name, "Err")
	}
	return false
}

// rootIdent returns v of v, v.f, v[i], *v and mixtures.
func rootIdent(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// isEnum tells whether a const group holds the values of a type: the type's
// comment speaks for them.
func isEnum(d *ast.GenDecl) bool {
	return d.Tok == token.CONST && len(d.Specs) > 0 && d.Specs[0].(*ast.ValueSpec).Type != nil
}
