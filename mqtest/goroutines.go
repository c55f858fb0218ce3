package mqtest

import (
	"bytes"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing/synctest"
	"time"
)

// endWithin is how long goroutines may take to end after Close has joined
// them: between a goroutine's last signal and its end the scheduler may run
// anything else.
const endWithin = time.Second

// goroutines are those that have the same stack and labels.
type goroutines struct {
	count int
	stack string // one line per function, innermost first
}

// goroutinesLeft returns the goroutines of the cluster with this label, once
// those that are just ending are gone.
func goroutinesLeft(label string) []goroutines {
	if inBubble() {
		synctest.Wait() // whatever can end has ended then
		return labelled(profile(), label)
	}
	left := labelled(profile(), label)
	for pause, waited := 100*time.Microsecond, time.Duration(0); len(left) > 0 && waited < endWithin; pause = min(2*pause, endWithin/20) {
		time.Sleep(pause)
		waited += pause
		left = labelled(profile(), label)
	}
	return left
}

// inBubble tells whether the calling goroutine is in a testing/synctest
// bubble. Only the header of its stack says so:
// "goroutine 22 [running, synctest bubble 21]:".
func inBubble() bool {
	var buf [128]byte
	header, _, _ := bytes.Cut(buf[:runtime.Stack(buf[:], false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}

// profile returns all goroutines with their labels, in the text form of
// runtime/pprof: paragraphs of equal stacks,
//
//	2 @ 0x47e08e 0x45f9d9 0x4f1a65
//	# labels: {"pocketmq-cluster":"ABC"}
//	#	0x4f1a64	example.com/pkg.(*T).loop+0x44	/src/pkg/t.go:17
//	#	0x4821aa	example.com/pkg.New.func1+0x2a	/src/pkg/t.go:9
func profile() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a Buffer takes everything
	return b.String()
}

// labelled picks from a profile the goroutines that have label as a value of
// theirs and that this module has started.
func labelled(profile, label string) []goroutines {
	_, profile, _ = strings.Cut(profile, "\n") // the head line, "goroutine profile: total 9"
	var out []goroutines
	for paragraph := range strings.SplitSeq(profile, "\n\n") {
		if !strings.Contains(paragraph, strconv.Quote(label)) {
			continue
		}
		head, rest, _ := strings.Cut(strings.TrimSpace(paragraph), "\n")
		count, _, _ := strings.Cut(head, " ")
		n, err := strconv.Atoi(count)
		if err != nil {
			continue // the form above has changed: its tests fail then
		}
		var stack []string
		for line := range strings.Lines(rest) {
			f := strings.FieldsFunc(strings.TrimSpace(line), func(r rune) bool { return r == '\t' })
			if len(f) == 4 && f[0] == "#" && strings.HasPrefix(f[1], "0x") {
				stack = append(stack, "\t"+f[2]+" "+f[3])
			}
		}
		if startedHere(stack) {
			out = append(out, goroutines{n, strings.Join(stack, "\n")})
		}
	}
	return out
}

// startedHere tells whether the outermost function of a goroutine is this
// module's and not a test's. A goroutine that a handler started inherits the
// label, but its outermost function is the user's.
func startedHere(stack []string) bool {
	for i := len(stack) - 1; i >= 0; i-- {
		name, file, _ := strings.Cut(strings.TrimPrefix(stack[i], "\t"), " ")
		if startsForOthers(name) {
			continue
		}
		inModule := strings.HasPrefix(name, modulePath+".") || strings.HasPrefix(name, modulePath+"/")
		path, _, _ := strings.Cut(file, ":")
		return inModule && !strings.HasSuffix(path, "_test.go")
	}
	return false
}

// startsForOthers tells whether a function is one of a package that starts
// goroutines for its callers: what was started stands inside it.
func startsForOthers(name string) bool {
	for _, pkg := range []string{"sync.", "golang.org/x/sync/", "context.", "time.", "runtime.", "runtime/pprof."} {
		if strings.HasPrefix(name, pkg) {
			return true
		}
	}
	return false
}

// modulePath is the import path of the root package.
const modulePath = "github.com/pocketmq/pocketmq"
