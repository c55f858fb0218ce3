package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// settings are what the flags of serve say.
type settings struct {
	nameServers []netip.AddrPort
	groups      []group
	topics      map[string]int
	dir         string
	levels      []time.Duration
	advertise   netip.Addr // invalid: none
	replication pocketmq.ReplicationMode
	failover    bool
	unclean     bool
	log         slog.Level

	listens []listen // everything above with an address, for errors
}

// group is one -group.
type group struct {
	name   string
	slaves int
	addrs  []netip.AddrPort // by broker id; those that are missing are free ports of the loopback interface
}

// listen is an address with the flag that asks for it.
type listen struct {
	flag string // as it was given
	addr netip.AddrPort
}

// define adds the flags. ctx bounds the look-up of host names.
func (s *settings) define(ctx context.Context, flags *flag.FlagSet) {
	s.topics = make(map[string]int)
	s.log = slog.LevelWarn
	flags.Func("namesrv", "", func(text string) error {
		addr, err := parseAddr(ctx, text)
		if err != nil {
			return err
		}
		s.nameServers = append(s.nameServers, addr)
		return s.listen("-namesrv "+text, addr)
	})
	flags.Func("group", "", func(text string) error {
		g, err := parseGroup(ctx, text)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(s.groups, func(o group) bool { return o.name == g.name }) {
			return fmt.Errorf("there is a group %s already, give each a name of its own", g.name)
		}
		s.groups = append(s.groups, g)
		for _, addr := range g.addrs {
			if err := s.listen("-group "+text, addr); err != nil {
				return err
			}
		}
		return nil
	})
	flags.Func("replication", "", func(text string) error {
		switch text {
		case "async":
			s.replication = pocketmq.AsyncReplication
		case "sync":
			s.replication = pocketmq.SyncReplication
		default:
			return errors.New("want sync or async")
		}
		return nil
	})
	flags.BoolVar(&s.failover, "failover", false, "")
	flags.BoolVar(&s.unclean, "elect-unclean", false, "")
	flags.Func("topic", "", func(text string) error {
		name, queues, err := parseTopic(text)
		if err != nil {
			return err
		}
		if s.topics[name] > 0 {
			return fmt.Errorf("the topic %s has been given already, give it once", name)
		}
		s.topics[name] = queues
		return nil
	})
	flags.Func("dir", "", func(text string) error {
		if s.dir = text; text == "" {
			return errors.New("no folder: leave the flag out to keep nothing")
		}
		return nil
	})
	flags.Func("levels", "", func(text string) (err error) {
		if s.levels, err = message.ParseDelayLevels(text); err == nil && slices.Min(s.levels) <= 0 {
			err = errors.New("a level of no time: want times such as 1s")
		}
		return err
	})
	flags.Func("advertise", "", func(text string) (err error) {
		if s.advertise, err = parseHost(ctx, text); err == nil && s.advertise.IsUnspecified() {
			err = errors.New("no client could connect to every interface, name one address of this machine")
		}
		return err
	})
	flags.Func("log", "", func(text string) error {
		if s.log.UnmarshalText([]byte(text)) != nil {
			return errors.New("want debug, info, warn or error")
		}
		return nil
	})
}

// listen notes an address, unless another flag asks for the same.
func (s *settings) listen(flag string, addr netip.AddrPort) error {
	for _, l := range s.listens {
		if addr.Port() > 0 && l.addr.Port() == addr.Port() && (l.addr.Addr() == addr.Addr() || l.addr.Addr().IsUnspecified() || addr.Addr().IsUnspecified()) {
			return fmt.Errorf("its port is that of %s, choose another or 0", l.flag)
		}
	}
	s.listens = append(s.listens, listen{flag, addr})
	return nil
}

// check fills in what no flag says, and finds what is wrong with all of them
// together.
func (s *settings) check() error {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if len(s.nameServers) == 0 {
		addr := netip.AddrPortFrom(loopback, 9876)
		s.nameServers = append(s.nameServers, addr)
		if err := s.listen("-namesrv 127.0.0.1:9876 (the default)", addr); err != nil {
			return fmt.Errorf("-namesrv is 127.0.0.1:9876: %w", err)
		}
	}
	if len(s.groups) == 0 {
		addr := netip.AddrPortFrom(loopback, 10911)
		s.groups = append(s.groups, group{name: "broker-a", addrs: []netip.AddrPort{addr}})
		if err := s.listen("-group broker-a@127.0.0.1:10911 (the default)", addr); err != nil {
			return fmt.Errorf("-group is broker-a@127.0.0.1:10911: %w", err)
		}
	}
	if s.unclean && !s.failover {
		return errors.New("-elect-unclean: groups elect only with -failover")
	}
	if !slices.ContainsFunc(s.groups, func(g group) bool { return g.slaves > 0 }) {
		switch {
		case s.failover:
			return errors.New("-failover: no group has slaves, of which one could become master: write -group NAME:2")
		case s.replication == pocketmq.SyncReplication:
			return errors.New("-replication sync: no group has slaves that a send could wait for: write -group NAME:1")
		}
	}
	if info, err := os.Stat(s.dir); s.dir != "" && err == nil && !info.IsDir() {
		return fmt.Errorf("-dir %s: it is a file, name a folder", s.dir)
	}
	for _, l := range s.listens {
		if l.addr.Addr().IsUnspecified() && !s.advertise.IsValid() {
			return fmt.Errorf("%s listens on every interface: say with -advertise HOST where clients find it", l.flag)
		}
		if err := s.reachable(l.flag, l.addr.Addr()); err != nil {
			return err
		}
	}
	for _, g := range s.groups {
		if len(g.addrs) < 1+g.slaves {
			if err := s.reachable("-group "+g.name, loopback); err != nil {
				return err
			}
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(s.topics)) {
		for _, g := range s.groups {
			if message.IsSystemTopic(topic, "DefaultCluster", g.name) {
				return fmt.Errorf("-topic %s:%d: the name is one of RocketMQ's own, choose another", topic, s.topics[topic])
			}
		}
	}
	return nil
}

// reachable refuses to send clients to a host where what a flag starts does not
// listen.
func (s *settings) reachable(what string, at netip.Addr) error {
	if !s.advertise.IsValid() || at.IsUnspecified() || at == s.advertise {
		return nil
	}
	return fmt.Errorf("%s listens on %v only, where clients that are told -advertise %v don't find it: let it listen on every interface, as -namesrv :9876 or -group NAME@:10911 does", what, at, s.advertise)
}

// cluster is the config of what the flags ask for.
func (s *settings) cluster(log *slog.Logger) pocketmq.ClusterConfig {
	cfg := pocketmq.ClusterConfig{
		Topics: s.topics, Dir: s.dir, Logger: log, Timings: pocketmq.Timings{DelayLevels: s.levels},
		Transport: throughLoopback{pocketmq.TCP("127.0.0.1")},
	}
	for _, addr := range s.nameServers {
		cfg.NameServerAddrs = append(cfg.NameServerAddrs, addr.String())
	}
	for _, g := range s.groups {
		group := pocketmq.BrokerGroup{Name: g.name, Slaves: g.slaves}
		for _, addr := range g.addrs {
			group.Addrs = append(group.Addrs, addr.String())
		}
		if g.slaves > 0 { // a group of one has nobody to wait for, and nobody to elect
			group.Config.Replication, group.Config.Failover, group.Config.ElectUncleanMaster = s.replication, s.failover, s.unclean
		}
		if s.advertise.IsValid() {
			group.Config.AdvertiseAddr = s.advertise.String()
		}
		cfg.Groups = append(cfg.Groups, group)
	}
	return cfg
}

// told is the address of a name server as clients are to dial it.
func (s *settings) told(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !s.advertise.IsValid() {
		return addr
	}
	return netip.AddrPortFrom(s.advertise, at.Port()).String()
}

// throughLoopback is a Transport over which the members of this process find each
// other on this machine, whatever clients elsewhere are told.
type throughLoopback struct{ pocketmq.Transport }

// ListenNameServer implements Transport. Those who dial the address that it
// gives away are the brokers of this process: they need no way around.
func (t throughLoopback) ListenNameServer(ctx context.Context, l protocol.Listen, s protocol.NameServer) (protocol.Listener, error) {
	if at, err := netip.ParseAddrPort(l.Addr); err == nil && at.Addr().IsUnspecified() {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if at.Addr().Is6() {
			loopback = netip.IPv6Loopback()
		}
		l.Advertise = netip.AddrPortFrom(loopback, 0).String()
	}
	return t.Transport.ListenNameServer(ctx, l, s)
}

// ListenStream implements Transport. Those who dial are the slaves of this process.
func (t throughLoopback) ListenStream(ctx context.Context, l protocol.Listen) (net.Listener, error) {
	l.Advertise = ""
	return t.Transport.ListenStream(ctx, l)
}

// maxSlaves bounds the slaves of a group, as the library does.
const maxSlaves = 15

// parseGroup reads NAME[:SLAVES][@ADDR[,ADDR...]].
func parseGroup(ctx context.Context, text string) (g group, err error) {
	members, addrs, hasAddr := strings.Cut(text, "@")
	name, slaves, hasSlaves := strings.Cut(members, ":")
	if message.ValidateTopic(name) != nil {
		return g, fmt.Errorf("the name %q: want up to %d of the characters a-z A-Z 0-9 _ - %% |, such as broker-a or broker-a@127.0.0.1:10911", name, message.MaxTopicLength)
	}
	g.name = name
	if hasSlaves {
		n, err := strconv.ParseUint(slaves, 10, 8)
		if err != nil || n > maxSlaves {
			return g, fmt.Errorf("%q slaves: want 0 to %d, such as %s:2", slaves, maxSlaves, name)
		}
		g.slaves = int(n)
	}
	if !hasAddr {
		return g, nil
	}
	texts := strings.Split(addrs, ",")
	if len(texts) > 1+g.slaves {
		return g, fmt.Errorf("%d addresses for a master and %s: write %s:%d, or fewer addresses", len(texts), count(int64(g.slaves), "slave"), name, len(texts)-1)
	}
	for _, text := range texts {
		addr, err := parseAddr(ctx, text)
		if err != nil {
			return g, err
		}
		g.addrs = append(g.addrs, addr)
	}
	return g, nil
}

// parseTopic reads NAME:QUEUES.
func parseTopic(text string) (name string, queues int, err error) {
	name, count, _ := strings.Cut(text, ":")
	if message.ValidateTopic(name) != nil {
		return "", 0, fmt.Errorf("the name %q: want up to %d of the characters a-z A-Z 0-9 _ - %% |, such as orders:8", name, message.MaxTopicLength)
	}
	n, err := strconv.ParseUint(count, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("want NAME:QUEUES with 1 to 65535 queues, such as %s:8", name)
	}
	return name, int(n), nil
}

// parseAddr reads HOST:PORT; no host is every interface.
func parseAddr(ctx context.Context, text string) (addr netip.AddrPort, err error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return addr, errors.New("want HOST:PORT, such as 127.0.0.1:9876")
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return addr, fmt.Errorf("port %q: want 0 to 65535, 0 is any free one", portText)
	}
	ip := netip.IPv4Unspecified()
	if host != "" {
		if ip, err = parseHost(ctx, host); err != nil {
			return addr, err
		}
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}

// parseHost reads an IP address, or looks a name up.
func parseHost(ctx context.Context, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w; write an IP address", err)
	}
	for i, ip := range ips {
		ips[i] = ip.Unmap()
	}
	if i := slices.IndexFunc(ips, netip.Addr.Is4); i >= 0 { // RocketMQ's clients know IPv4 best
		return ips[i], nil
	}
	return ips[0], nil
}
