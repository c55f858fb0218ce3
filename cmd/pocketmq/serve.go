package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/store"
)

const serveHelp = `usage: pocketmq serve [flags]

Runs name servers and brokers on TCP. Clients of RocketMQ, in whatever language,
take them for RocketMQ: their tests need neither Java nor a container.

When everything serves, lines in this form go to standard output, first those of
the name servers, then those of the brokers by group (ID 0 is the master, with
-failover at first):

  namesrv ADDR ready
  broker NAME ID ADDR ready

Clients are given the addresses of the name servers; there they find the brokers.
SIGINT, SIGTERM or SIGHUP (a terminal that is gone) ends it; a second one does not
wait for files to be closed.

Flags (those with ... may be given several times):
  -namesrv ADDR ...     a name server [127.0.0.1:9876]
  -group NAME[:SLAVES][@ADDR[,ADDR...]] ...
                        a broker group of a master and up to 15 slaves, and where
                        they listen, by ID; those without ADDR take free ports of
                        127.0.0.1 [broker-a@127.0.0.1:10911]
  -replication MODE     of groups with slaves: with sync a send is answered when a
                        slave has the message, too, with async before [async]
  -failover             groups with slaves elect another master when theirs is lost;
                        with sync nothing that was acknowledged is lost by that
  -elect-unclean        with -failover: at the start, when no member is sure to have
                        all that was acknowledged, the one with the longest log is
                        elected; otherwise that is an error
  -topic NAME:QUEUES ...
                        a topic that is there from the beginning, with as many
                        queues on every group; others are made by the first send
  -dir DIR              where messages, offsets and settings stay when it ends;
                        without it they go with it; one that is killed (SIGKILL)
                        leaves a folder pocketmq-* in the temporary directory
  -levels "TIME ..."    how long delayed messages wait, by level, and failed ones
                        before they come again ["1s 5s 10s 30s 1m 2m 3m 4m 5m 6m
                        7m 8m 9m 10m 20m 30m 1h 2h"]
  -advertise HOST       the host that clients are told in place of those where
                        brokers listen; needed when that is every interface
  -log LEVEL            what goes to standard error: debug, info, warn, error [warn]

ADDR is HOST:PORT. Port 0 is any free one; without HOST it is every interface.

Examples:
  pocketmq serve
  pocketmq serve -dir ./data -topic orders:8
  pocketmq serve -namesrv 127.0.0.1:0 -group broker-a -group broker-b
  pocketmq serve -levels "1s 2s 3s"
  pocketmq serve -group broker-a:2@127.0.0.1:10911 -replication sync -failover
  pocketmq serve -namesrv :9876 -group broker-a@:10911 -advertise 127.0.0.1

The first is enough for most tests. The third takes free ports, so that several may
run side by side: the ready lines tell which. The fifth keeps three copies of each
message. The last one is for a container whose ports 9876 and 10911 are published
under the same numbers.

Exit codes:
  0  ended by a signal
  1  could not start, or could not close its files
  2  wrong usage
`

// Exit codes of serve.
const (
	exitFailure = 1
	exitUsage   = 2
)

func serve(ctx context.Context, env *environment, args []string) int {
	var s settings
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are told below, in one line
	s.define(ctx, flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.out, serveHelp)
		return exitClean
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("%q is no flag, and nothing else is expected", flags.Arg(0))
	case err == nil:
		err = s.check()
	}
	if err != nil {
		fmt.Fprintf(env.err, "pocketmq serve: %v (more: pocketmq serve -h)\n", err)
		return exitUsage
	}
	if err := s.serve(ctx, env); err != nil {
		fmt.Fprintf(env.err, "pocketmq serve: %v\n", err)
		if errors.Is(err, pocketmq.ErrInvalidConfig) {
			return exitUsage
		}
		return exitFailure
	}
	return exitClean
}

// serve runs the cluster until ctx ends.
func (s *settings) serve(ctx context.Context, env *environment) error {
	level := new(slog.LevelVar)
	level.Set(s.log)
	c, err := pocketmq.StartCluster(ctx, s.cluster(slog.New(slog.NewTextHandler(env.err, &slog.HandlerOptions{Level: level}))))
	if err != nil {
		if ctx.Err() != nil { // the signal came early, and nothing is left
			return nil
		}
		return s.explain(err)
	}
	if err := s.tell(env.out, c); err != nil {
		return errors.Join(err, end(ctx, c))
	}
	<-ctx.Done()
	if s.log == slog.LevelWarn { // that members miss each other now is no news
		level.Set(slog.LevelError)
	}
	return end(context.WithoutCancel(ctx), c)
}

// endLimit bounds how long brokers finish sends in flight and say goodbye to
// the name servers.
const endLimit = 3 * time.Second

// end closes the cluster: brokers first, each in good order. Masters go before their
// slaves, for whom sends in flight may wait; a group that elects has another master then,
// which is the next one to go.
func end(ctx context.Context, c *pocketmq.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	left := slices.Collect(c.Brokers())
	var errs []error
	for len(left) > 0 {
		next := slices.DeleteFunc(slices.Clone(left), func(b *pocketmq.Broker) bool { return b.Role() != pocketmq.RoleMaster })
		if len(next) == 0 {
			next = left
		}
		left = slices.DeleteFunc(slices.Clone(left), func(b *pocketmq.Broker) bool { return slices.Contains(next, b) })
		each := make([]error, len(next))
		var ending sync.WaitGroup
		for i, b := range next {
			ending.Go(func() { each[i] = b.Shutdown(ctx) })
		}
		ending.Wait()
		errs = append(errs, each...)
	}
	return errors.Join(append(errs, c.Close())...)
}

// tell says that everything serves, and where.
func (s *settings) tell(w io.Writer, c *pocketmq.Cluster) error {
	var lines []byte
	for _, addr := range c.NameServerAddrs() {
		lines = fmt.Appendf(lines, "namesrv %s ready\n", s.told(addr))
	}
	for b := range c.Brokers() {
		lines = fmt.Appendf(lines, "broker %s %d %s ready\n", b.Name(), b.ID(), b.Addr())
	}
	_, err := w.Write(lines)
	return err
}

// explain names the flag behind an error of the start, and the remedy.
func (s *settings) explain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "listen" && op.Addr != nil {
		return fmt.Errorf("%s: %v; end what listens there, or choose another address or port 0", s.flagOf(op.Addr.String()), op)
	}
	var path *fs.PathError
	for _, kind := range []error{store.ErrInUse, store.ErrForeign, store.ErrNewerFormat, store.ErrNotAStore} {
		if s.dir != "" && errors.Is(err, kind) {
			return fmt.Errorf("-dir %s: %w", s.dir, err)
		}
	}
	if s.dir != "" && errors.As(err, &path) {
		return fmt.Errorf("-dir %s: %w; choose a folder that can be made and written", s.dir, path)
	}
	return err
}

// flagOf returns the flag that made the cluster listen on addr.
func (s *settings) flagOf(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return "listen"
	}
	for _, l := range s.listens {
		if l.addr == at {
			return l.flag
		}
	}
	return "listen"
}
