package rmqtest_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/mqtest"
)

// run starts a cluster that official clients reach.
func run(t testing.TB, cfg pocketmq.ClusterConfig) *pocketmq.Cluster {
	t.Helper()
	cfg.Transport = pocketmq.TCP("127.0.0.1")
	return mqtest.Run(t, cfg)
}

// fakeT is a test inside a test, which may fail.
type fakeT struct {
	testing.TB
	ctx      context.Context
	failed   bool
	fatal    string   // the text of Fatalf
	logs     []string // the texts of Logf and Errorf
	cleanups []func()
}

func (f *fakeT) Helper()                      {}
func (f *fakeT) Name() string                 { return "TestFake/it is" }
func (f *fakeT) Context() context.Context     { return f.ctx }
func (f *fakeT) Failed() bool                 { return f.failed }
func (f *fakeT) Cleanup(fn func())            { f.cleanups = append(f.cleanups, fn) }
func (f *fakeT) Logf(format string, a ...any) { f.logs = append(f.logs, fmt.Sprintf(format, a...)) }
func (f *fakeT) Errorf(format string, a ...any) {
	f.failed = true
	f.Logf(format, a...)
}

func (f *fakeT) Fatalf(format string, a ...any) {
	f.failed = true
	f.fatal = fmt.Sprintf(format, a...)
	runtime.Goexit()
}

// fake runs f as a test, with its clean-ups, and returns how it went.
func fake(t *testing.T, f func(t *fakeT)) *fakeT {
	t.Helper()
	inner := &fakeT{TB: t, ctx: t.Context()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			for _, cleanup := range slices.Backward(inner.cleanups) {
				cleanup()
			}
		}()
		f(inner)
	}()
	<-ended
	return inner
}

// runTest runs a test outside of go test, once, and prints nothing but what it
// prints.
func runTest(name string, f func(t *testing.T)) bool {
	for name, value := range map[string]string{"test.v": "false", "test.count": "1"} {
		setting := flag.Lookup(name).Value
		was := setting.String()
		_ = setting.Set(value) // a legal value
		defer func() { _ = setting.Set(was) }()
	}
	return testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: name, F: f}})
}

// officialGoroutines counts the goroutines of the official client by the function
// that started them.
func officialGoroutines(t *testing.T) map[string]int {
	t.Helper()
	const module = "github.com/apache/rocketmq-client-go/v2"
	buf := make([]byte, 16<<20)
	n := runtime.Stack(buf, true)
	require.Less(t, n, len(buf))
	count := make(map[string]int)
	for g := range strings.SplitSeq(string(buf[:n]), "\n\n") {
		_, starter, ok := strings.Cut(g, "created by "+module)
		if !ok {
			continue
		}
		starter, _, _ = strings.Cut(starter, " in goroutine")
		count[strings.TrimPrefix(starter, "/")]++
	}
	return count
}
