package java

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var enabled = flag.Bool("java", false, "run the tests; needs Maven and a JDK, downloads artifacts")

const (
	oldestJava   = 11
	buildTimeout = 10 * time.Minute // the first one downloads
	runTimeout   = 90 * time.Second // of one scenario
)

// kit is what Maven makes of pom.xml.
type kit struct {
	java      string // the program
	classpath string
	err       error  // the build failed
	missing   string // why there is nothing to build with
}

// built is the kit, made once for all tests. It is used through needKit.
var built = sync.OnceValue(func() (k kit) {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		k.missing = "Maven is not installed (mvn)"
		return k
	}
	if k.java, err = exec.LookPath("java"); err != nil {
		k.missing = "no Java is installed"
		return k
	}
	if v := javaVersion(k.java); v < oldestJava {
		k.missing = fmt.Sprintf("%s is of version %d, %d is needed", k.java, v, oldestJava)
		return k
	}
	out, err := os.MkdirTemp("", "pocketmq-java-")
	if err != nil {
		k.err = err
		return k
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	list := filepath.Join(out, "classpath")
	build := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", "pom.xml", "-Dout="+out, "compile", "dependency:build-classpath", "-Dmdep.outputFile="+list)
	if said, err := build.CombinedOutput(); err != nil {
		k.err = fmt.Errorf("%v: %w\n%s", build.Args, err, said)
		return k
	}
	jars, err := os.ReadFile(list)
	k.err = err
	k.classpath = filepath.Join(out, "classes") + string(filepath.ListSeparator) + strings.TrimSpace(string(jars))
	return k
})

func needKit(t *testing.T) kit {
	t.Helper()
	if !*enabled {
		t.Skip("skipped: run it with -args -java; it needs Maven and a JDK, and downloads artifacts")
	}
	k := built()
	if k.missing != "" {
		t.Skipf("skipped: %s; install Maven and a JDK of version %d or later", k.missing, oldestJava)
	}
	require.NoError(t, k.err)
	return k
}

// TestMain removes what was built.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // scenarios wait most of their time
	code := m.Run()
	if *enabled {
		if classes, _, ok := strings.Cut(built().classpath, string(filepath.ListSeparator)); ok {
			if err := os.RemoveAll(filepath.Dir(classes)); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	os.Exit(code)
}

// javaVersion is the major version of a Java program, 0 when it does not tell.
func javaVersion(java string) int {
	said, err := exec.Command(java, "-version").CombinedOutput()
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(`version "(?:1\.)?(\d+)`).FindSubmatch(said)
	if m == nil {
		return 0
	}
	v, _ := strconv.Atoi(string(m[1])) // digits
	return v
}

// command starts a Java program with a home folder of its own.
func (k kit) command(t *testing.T, home, class string, options []string, args ...string) *exec.Cmd {
	t.Helper()
	// Whatever is in the environment must not lead the client elsewhere.
	args = append([]string{
		"-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.home=" + home, "-Drocketmq.client.rebalance.waitInterval=1000", // 20 s
		"-Drocketmq.client.rebalance.minInterval=200", "-cp", k.classpath,
	}, append(append(options, class), args...)...)
	cmd := exec.Command(k.java, args...)
	cmd.Dir = home
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NAMESRV_ADDR=") && !strings.HasPrefix(v, "ROCKETMQ_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// jvm runs scenarios in one virtual machine. Safe for concurrent use.
type jvm struct {
	in    io.WriteCloser
	ended chan struct{} // closed when there will be no more answers

	mu      sync.Mutex // guards what follows
	next    int
	waiting map[string]chan answer
}

type answer struct {
	ok   bool
	text string
}

// startJVM starts a virtual machine, which the end of the test ends.
func startJVM(t *testing.T, servers []string, options ...string) *jvm {
	t.Helper()
	cmd := needKit(t).command(t, t.TempDir(), "interop.Main", options, strings.Join(servers, ";"))
	j := &jvm{ended: make(chan struct{}), waiting: make(map[string]chan answer)}
	var err error
	j.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	go j.read(out)
	t.Cleanup(func() {
		_ = j.in.Close() // the virtual machine ends; if it has, so it has
		select {
		case <-j.ended:
		case <-time.After(10 * time.Second):
			t.Error("the virtual machine does not end")
			_ = cmd.Process.Kill()
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the virtual machine: %v", err)
		}
		if t.Failed() {
			t.Logf("the virtual machine said:\n%s", said.String())
		}
	})
	return j
}

// read hands out answers until there are none.
func (j *jvm) read(out io.Reader) {
	defer close(j.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		part := strings.SplitN(lines.Text(), "\t", 3)
		j.mu.Lock()
		to := j.waiting[part[0]]
		delete(j.waiting, part[0])
		j.mu.Unlock()
		if to != nil && len(part) == 3 {
			to <- answer{part[1] == "ok", unescape.Replace(part[2])}
		}
	}
}

var unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t")

// try runs a scenario.
func (j *jvm) try(ctx context.Context, scenario string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	to := make(chan answer, 1) // the reader does not wait
	j.mu.Lock()
	j.next++
	id := strconv.Itoa(j.next)
	j.waiting[id] = to
	_, err := fmt.Fprintln(j.in, strings.Join(append([]string{id, scenario}, args...), "\t"))
	j.mu.Unlock()
	if err != nil {
		return "", err
	}
	select {
	case a := <-to:
		if !a.ok {
			return "", errors.New(a.text)
		}
		return a.text, nil
	case <-j.ended:
		return "", errors.New("the virtual machine has ended")
	case <-ctx.Done():
		return "", fmt.Errorf("scenario %s %v: %w", scenario, args, ctx.Err())
	}
}

// run runs a scenario that has to succeed, and returns what it tells.
func (j *jvm) run(t *testing.T, scenario string, args ...string) string {
	t.Helper()
	text, err := j.try(t.Context(), scenario, args...)
	require.NoError(t, err, "scenario %s %v", scenario, args)
	return text
}

// summary prints a line about how a scenario went, when it has.
func summary(t *testing.T, name string) {
	begin := time.Now()
	t.Cleanup(func() {
		result := "ok"
		switch {
		case t.Failed():
			result = "FAILED"
		case t.Skipped():
			result = "skipped"
		}
		fmt.Printf("interop: java/%s: %s in %.1f s\n", name, result, time.Since(begin).Seconds())
	})
}
