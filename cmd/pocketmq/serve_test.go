package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/store"
)

// asProgram makes the test binary the program itself: "1", or a program that
// does not end when it should, "hang".
const asProgram = "POCKETMQ_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "1":
		main()
	case "hang":
		ctx, stop := untilSignal()
		defer stop()
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("closing")
		select {}
	}
	os.Exit(m.Run())
}

// process is the program as a process of its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs *strings.Builder
}

func start(t *testing.T, as string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(exe, args...), errs: new(strings.Builder)}
	p.cmd.Env = append(os.Environ(), asProgram+"="+as)
	p.cmd.Stderr = p.errs
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// line reads a line of standard output.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		_ = p.cmd.Wait()
		require.NoError(p.t, err, "it ended: %v\n%s", p.cmd.ProcessState, p.errs)
	}
	return strings.TrimSuffix(line, "\n")
}

// ready reads the line that says that something serves, and returns where.
func (p *process) ready(what string) (addr string) {
	p.t.Helper()
	m := regexp.MustCompile(`^` + what + ` (\S+) ready$`).FindStringSubmatch(p.line())
	require.NotNil(p.t, m, "want a line of %s", what)
	return m[1]
}

// end sends a signal and returns the exit code, -1 when the signal ended it.
func (p *process) end(s os.Signal) int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
	return p.wait()
}

func (p *process) wait() int {
	p.t.Helper()
	rest, err := p.out.ReadString(0)
	assert.Empty(p.t, rest, "nothing else on standard output")
	assert.Error(p.t, err)
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// freePorts asks for free ports: two that nobody listens on at this moment.
var freePorts = []string{"-namesrv", "127.0.0.1:0", "-group", "broker-a@127.0.0.1:0"}

func producerAt(t *testing.T, nameServer string) *pocketmq.Producer {
	t.Helper()
	return producerOver(t, pocketmq.TCP("127.0.0.1"), nameServer)
}

func producerOver(t *testing.T, over pocketmq.Transport, nameServer string) *pocketmq.Producer {
	t.Helper()
	p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: []string{nameServer}, Transport: over})
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

func adminAt(t *testing.T, nameServer string) *pocketmq.Admin {
	t.Helper()
	a, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: []string{nameServer}, Transport: pocketmq.TCP("127.0.0.1")})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, a.Close()) })
	return a
}

// stored counts the messages of a topic.
func stored(t *testing.T, nameServer, topic string) (n int64) {
	t.Helper()
	stats, err := adminAt(t, nameServer).TopicStats(t.Context(), topic)
	require.NoError(t, err)
	for _, s := range stats {
		n += s.MaxOffset
	}
	return n
}

func TestServeSaysWhereItServesAndEndsWithASignal(t *testing.T) {
	for _, end := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(end) {
				t.Skip("it is ignored here, as by nohup, and so it is by what this test starts")
			}
			p := start(t, "1", "serve", "-namesrv", "127.0.0.1:0", "-namesrv", "localhost:0",
				"-group", "broker-b@127.0.0.1:0", "-group", "broker-a:0", "-topic", "orders:3")
			first, second := p.ready("namesrv"), p.ready("namesrv")
			brokers := []string{p.ready("broker broker-b 0"), p.ready("broker broker-a 0")}
			assert.NotEqual(t, first, second)
			assert.NotEqual(t, brokers[0], brokers[1])

			for _, ns := range []string{first, second} {
				route, err := adminAt(t, ns).Route(t.Context(), "orders")
				require.NoError(t, err)
				require.Len(t, route.Queues, 2)
				for _, q := range route.Queues {
					assert.Equal(t, 3, q.WriteQueues)
				}
			}
			r, err := producerAt(t, first).Send(t.Context(), &pocketmq.Message{Topic: "orders", Body: []byte("one")})
			require.NoError(t, err)
			assert.NotEmpty(t, r.MsgID)

			assert.Equal(t, exitClean, p.end(end))
			assert.Empty(t, p.errs.String())
		})
	}
}

// TestServeReplicates: slaves are there, listen where they were told to, and have what
// was acknowledged.
func TestServeReplicates(t *testing.T) {
	for _, failover := range []bool{false, true} {
		t.Run(fmt.Sprint("failover ", failover), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			args := []string{"serve", "-dir", dir, "-namesrv", "127.0.0.1:0", "-replication", "sync", "-topic", "orders:2",
				"-group", "broker-a:2@127.0.0.1:0,127.0.0.2:0", "-group", "broker-b"}
			if failover {
				args = append(args, "-failover")
			}
			p := start(t, "1", args...)
			ns := p.ready("namesrv")
			p.ready("broker broker-a 0")
			assert.Contains(t, p.ready("broker broker-a 1"), "127.0.0.2:")
			assert.Contains(t, p.ready("broker broker-a 2"), "127.0.0.1:")
			p.ready("broker broker-b 0")

			route, err := adminAt(t, ns).Route(t.Context(), "orders")
			require.NoError(t, err)
			require.Len(t, route.Brokers, 2)
			assert.Len(t, route.Brokers[0].Addrs, 3)
			assert.Len(t, route.Brokers[1].Addrs, 1)
			producer := producerAt(t, ns)
			for _, group := range []string{"broker-a", "broker-b"} { // who has no slaves does not wait for any
				_, err := producer.SendTo(t.Context(), pocketmq.MessageQueue{Topic: "orders", BrokerName: group}, &pocketmq.Message{Topic: "orders", Body: []byte("one")})
				require.NoError(t, err, group)
			}
			assert.Equal(t, exitClean, p.end(os.Interrupt))
			assert.NotContains(t, p.errs.String(), "ERROR")
			for id := range 3 {
				assert.DirExists(t, filepath.Join(dir, fmt.Sprintf("broker-a-%d", id)))
			}
		})
	}
}

// TestSlavesFindTheirMasterWhateverClientsAreTold: members of a process find each other
// on this machine.
func TestSlavesFindTheirMasterWhateverClientsAreTold(t *testing.T) {
	var s settings
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	s.define(t.Context(), flags)
	require.NoError(t, flags.Parse([]string{"-namesrv", ":0", "-group", "broker-a:1@:0,:0", "-replication", "sync", "-advertise", "192.0.2.7"}))
	require.NoError(t, s.check())
	followed := make(chan pocketmq.MasterFollowed, 1)
	cfg := s.cluster(nil)
	cfg.OnEvent = func(e pocketmq.Event) {
		if e, ok := e.(pocketmq.MasterFollowed); ok {
			select {
			case followed <- e:
			default:
			}
		}
	}
	c, err := pocketmq.StartCluster(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	select {
	case e := <-followed:
		assert.Contains(t, e.Addr, "127.0.0.1:")
	case <-time.After(20 * time.Second):
		assert.Fail(t, "the slave does not follow", "%+v", c.Broker("broker-a", 1).Status().Master)
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	p := start(t, "hang")
	require.Equal(t, "ready", p.line())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "closing", p.line())
	assert.Equal(t, -1, p.end(syscall.SIGTERM))
}

// TestServeWithADirKeepsMessagesOverAKill: nothing that was acknowledged is
// lost, and settings that came over the wire are still there.
func TestServeWithADirKeepsMessagesOverAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := append([]string{"serve", "-dir", dir}, freePorts...)
	p := start(t, "1", args...)
	ns := p.ready("namesrv")
	p.ready("broker broker-a 0")
	require.NoError(t, adminAt(t, ns).CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "orders", ReadQueues: 2, WriteQueues: 2}))
	producer := producerAt(t, ns)
	const total = 20
	for i := range total {
		_, err := producer.Send(t.Context(), &pocketmq.Message{Topic: "orders", Body: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	assert.Equal(t, -1, p.end(os.Kill))

	p = start(t, "1", args...)
	ns = p.ready("namesrv")
	p.ready("broker broker-a 0")
	assert.EqualValues(t, total, stored(t, ns, "orders"))
	assert.Equal(t, exitClean, p.end(os.Interrupt))
}

func TestServeRefusesAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "1", append([]string{"serve", "-dir", dir}, freePorts...)...)
	p.ready("namesrv")
	p.ready("broker broker-a 0")
	got := call(t, "", append([]string{"serve", "-dir", dir}, freePorts...)...)
	assert.Equal(t, exitFailure, got.code)
	assert.Empty(t, got.out)
	assert.Regexp(t, `^pocketmq serve: -dir `+regexp.QuoteMeta(dir)+`: .*`+regexp.QuoteMeta(filepath.Join(dir, "broker-a-0"))+` is in use .*choose another folder.*\n$`, got.err)
	assert.Equal(t, exitClean, p.end(os.Interrupt))
}

func TestServeRefusesADirThatIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	got := call(t, "", append([]string{"serve", "-dir", file}, freePorts...)...)
	assert.Equal(t, exitUsage, got.code)
	assert.Regexp(t, `^pocketmq serve: -dir `+regexp.QuoteMeta(file)+`: it is a file, name a folder .*\n$`, got.err)
	got = call(t, "", append([]string{"serve", "-dir", filepath.Join(file, "data")}, freePorts...)...)
	assert.Equal(t, exitFailure, got.code)
	assert.Regexp(t, `^pocketmq serve: -dir `+regexp.QuoteMeta(file)+`/data: .*not a directory; choose a folder that can be made and written\n$`, got.err)
}

func TestServeNamesTheFlagWhosePortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	addr := taken.Addr().String()
	for flag, args := range map[string][]string{
		"-namesrv " + addr:        {"-namesrv", addr, "-group", "broker-a@127.0.0.1:0"},
		"-group broker-a@" + addr: {"-namesrv", "127.0.0.1:0", "-group", "broker-a@" + addr},
	} {
		got := call(t, "", append([]string{"serve"}, args...)...)
		assert.Equal(t, exitFailure, got.code)
		assert.Empty(t, got.out)
		assert.Regexp(t, `^pocketmq serve: `+regexp.QuoteMeta(flag)+`: .*in use; end what listens there, or choose another address or port 0\n$`, got.err)
	}
}

// TestServeRefusesWhatCannotWork: one line that names the flag, and exit code 2.
func TestServeRefusesWhatCannotWork(t *testing.T) {
	var all strings.Builder
	for _, args := range [][]string{
		{"-colour"},
		{"now"},
		{"-namesrv", "9876"},
		{"-namesrv", "127.0.0.1:none"},
		{"-namesrv", "127.0.0.1:70000"},
		{"-namesrv", "no-such-host.invalid:9876"},
		{"-namesrv", ":9876"},
		{"-namesrv", "127.0.0.1:9876", "-namesrv", "127.0.0.1:9876"},
		{"-namesrv", "127.0.0.1:10911"},
		{"-group", ""},
		{"-group", "broker a"},
		{"-group", "broker-a@"},
		{"-group", "broker-a:16"},
		{"-group", "broker-a:two"},
		{"-group", "broker-a@127.0.0.1:1,127.0.0.1:2"},
		{"-group", "broker-a:1@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"},
		{"-group", "broker-a:1@127.0.0.1:1,"},
		{"-group", "broker-a:1@127.0.0.1:1,127.0.0.1:1"},
		{"-namesrv", ":0", "-group", "broker-a:1@:0", "-advertise", "192.0.2.7"},
		{"-replication", "both"},
		{"-replication", "sync"},
		{"-failover"},
		{"-group", "broker-a:0", "-failover"},
		{"-group", "broker-a", "-group", "broker-a"},
		{"-group", "a@127.0.0.1:7000", "-group", "b@127.0.0.1:7000"},
		{"-group", "a@127.0.0.1:9876"},
		{"-group", "a@0.0.0.0:7000"},
		{"-group", "a@[::]:0"},
		{"-topic", "orders"},
		{"-topic", "orders:none"},
		{"-topic", "orders:0"},
		{"-topic", "orders:1000000"},
		{"-topic", "or ders:1"},
		{"-topic", "TBW102:1"},
		{"-topic", "broker-a:1"},
		{"-topic", "orders:1", "-topic", "orders:2"},
		{"-levels", "soon"},
		{"-levels", "1s  5s"},
		{"-levels", "0s"},
		{"-levels", ""},
		{"-advertise", "0.0.0.0"},
		{"-advertise", "192.0.2.7"},
		{"-namesrv", ":0", "-group", "broker-a", "-advertise", "192.0.2.7"},
		{"-log", "loud"},
		{"-dir"},
		{"-dir", ""},
	} {
		got := call(t, "", append([]string{"serve"}, args...)...)
		assert.Equal(t, exitUsage, got.code, args)
		assert.Empty(t, got.out, args)
		assert.Equal(t, 1, strings.Count(got.err, "\n"), "%q: one line, not\n%s", args, got.err)
		fmt.Fprintf(&all, "serve %s\n", strings.Join(args, " "))
		all.WriteString(got.err)
	}
	// What the resolver of this machine says of a name that nobody has.
	text := regexp.MustCompile(`lookup no-such-host.invalid[^;]*;`).ReplaceAllString(all.String(), "lookup no-such-host.invalid: no such host;")
	golden(t, "serve-refuses", "", told{out: text, code: exitUsage})
}

// TestServeTellsTheAdvertisedHost: brokers that listen on every interface tell
// clients where they are.
func TestServeTellsTheAdvertisedHost(t *testing.T) {
	p := start(t, "1", "serve", "-namesrv", ":0", "-group", "broker-a@0.0.0.0:0", "-advertise", "localhost")
	ns, broker := p.ready("namesrv"), p.ready("broker broker-a 0")
	assert.Regexp(t, `^127\.0\.0\.1:\d+$`, ns)
	assert.Regexp(t, `^127\.0\.0\.1:\d+$`, broker)
	_, err := producerAt(t, ns).Send(t.Context(), &pocketmq.Message{Topic: "orders", Body: []byte("one")})
	require.NoError(t, err)
	route, err := adminAt(t, ns).Route(t.Context(), "orders")
	require.NoError(t, err)
	require.Len(t, route.Brokers, 1)
	assert.Equal(t, broker, route.Brokers[0].Addrs[0])
	assert.Equal(t, exitClean, p.end(os.Interrupt))
}

// TestServeTakesTLSOnTheSamePort: its certificate is its own.
func TestServeTakesTLSOnTheSamePort(t *testing.T) {
	p := start(t, "1", append([]string{"serve"}, freePorts...)...)
	ns := p.ready("namesrv")
	p.ready("broker broker-a 0")
	secure := pocketmq.TCPWith(pocketmq.TCPConfig{Host: "127.0.0.1", DialTLS: &tls.Config{InsecureSkipVerify: true}})
	for _, producer := range []*pocketmq.Producer{producerAt(t, ns), producerOver(t, secure, ns)} {
		_, err := producer.Send(t.Context(), &pocketmq.Message{Topic: "orders", Body: []byte("one")})
		require.NoError(t, err)
	}
	assert.EqualValues(t, 2, stored(t, ns, "orders"))
	assert.Equal(t, exitClean, p.end(os.Interrupt))
}

func TestServeDelaysByItsLevels(t *testing.T) {
	p := start(t, "1", append([]string{"serve", "-topic", "orders:1", "-levels", "500s 1s"}, freePorts...)...)
	ns := p.ready("namesrv")
	p.ready("broker broker-a 0")
	begin := time.Now()
	_, err := producerAt(t, ns).Send(t.Context(), &pocketmq.Message{Topic: "orders", DelayLevel: 2, Body: []byte("later")})
	require.NoError(t, err)
	got := make(chan time.Time, 1)
	co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
		Group: "g", NameServers: []string{ns}, Transport: pocketmq.TCP("127.0.0.1"), From: pocketmq.FromFirstOffset,
		Subscriptions: map[string]pocketmq.Filter{"orders": {}},
		Handler: func(context.Context, []*pocketmq.MessageExt) error {
			got <- time.Now()
			return nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, co.Start(t.Context()))
	assert.GreaterOrEqual(t, (<-got).Sub(begin), time.Second)
	require.NoError(t, co.Close())
	assert.Equal(t, exitClean, p.end(os.Interrupt))
}

func TestServeLogsToStandardError(t *testing.T) {
	p := start(t, "1", append([]string{"serve", "-log", "info"}, freePorts...)...)
	p.ready("namesrv")
	p.ready("broker broker-a 0")
	assert.Equal(t, exitClean, p.end(os.Interrupt))
	assert.Contains(t, p.errs.String(), `msg="broker serves"`)
}

func TestServeWhoseStartIsCutShortLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	code := run(ctx, &environment{out: &out, err: &errs}, append([]string{"serve", "-dir", dir}, freePorts...))
	assert.Equal(t, exitClean, code)
	assert.Empty(t, out.String()+errs.String())
	assert.NoDirExists(t, filepath.Join(dir, "broker-a-0"))
}

func TestServeThatCannotTellIsAnError(t *testing.T) {
	var errs strings.Builder
	assert.Equal(t, exitFailure, run(t.Context(), &environment{out: full{}, err: &errs}, append([]string{"serve"}, freePorts...)))
	assert.Contains(t, errs.String(), "no space left")
}

// TestExamplesOfHelpTextsWork runs every example of every help text. Their
// ports become free ones, and their folders those of the test.
func TestExamplesOfHelpTextsWork(t *testing.T) {
	help := call(t, "", "help").out
	for _, c := range commands() {
		text := call(t, "", "help", c.name).out
		assert.Contains(t, text, "\nExamples:\n  pocketmq "+c.name, "help %s has examples", c.name)
		help += text
	}
	dir := t.TempDir()
	data := folder(t, func(s *store.Store) error { return s.Close() })
	port := regexp.MustCompile(`:\d{4,5}\b`)
	n := 0
	for line := range strings.Lines(help) {
		words, ok := strings.CutPrefix(strings.TrimSpace(line), "pocketmq ")
		if !ok || strings.HasPrefix(words, "COMMAND") {
			continue
		}
		n++
		t.Run(words, func(t *testing.T) {
			words := strings.ReplaceAll(port.ReplaceAllString(words, ":0"), "./data/broker-a-0", data)
			words = strings.ReplaceAll(words, "./data", filepath.Join(dir, fmt.Sprint(n)))
			args := split(words)
			if args[0] != "serve" {
				got := call(t, "", args...)
				assert.Equal(t, exitClean, got.code, got.err)
				return
			}
			if args = args[1:]; len(args) == 0 {
				args = freePorts // the defaults are a port that may be taken
			} else if !strings.Contains(words, "-group") {
				args = append(args, freePorts...)
			}
			p := start(t, "1", append([]string{"serve"}, args...)...)
			p.ready("namesrv")
			p.ready(`broker broker-\w 0`)
			if strings.Contains(words, "broker-a:2") {
				p.ready("broker broker-a 1")
				p.ready("broker broker-a 2")
			}
			if strings.Contains(words, "broker-b") {
				p.ready("broker broker-b 0")
			}
			assert.Equal(t, exitClean, p.end(os.Interrupt))
			if strings.Contains(words, "-failover") { // slaves may come before their master is ready for them
				assert.NotContains(t, p.errs.String(), "ERROR")
				return
			}
			assert.Empty(t, p.errs.String())
		})
	}
	assert.GreaterOrEqual(t, n, 10)
}

// split parts the words of a command line; those in quotes are one.
func split(line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// TestDefaultsAreThoseOfRocketMQ: 9876 for the name server and 10911 for the
// broker, which may be taken on this machine.
func TestDefaultsAreThoseOfRocketMQ(t *testing.T) {
	var s settings
	s.define(t.Context(), flag.NewFlagSet("serve", flag.ContinueOnError))
	require.NoError(t, s.check())
	cfg := s.cluster(nil)
	assert.Equal(t, []string{"127.0.0.1:9876"}, cfg.NameServerAddrs)
	assert.Equal(t, []pocketmq.BrokerGroup{{Name: "broker-a", Addrs: []string{"127.0.0.1:10911"}}}, cfg.Groups)
	assert.Empty(t, cfg.Dir)
	assert.Empty(t, cfg.Topics)
	assert.Empty(t, cfg.Timings.DelayLevels)
}
