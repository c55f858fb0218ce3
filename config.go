package pocketmq

import (
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// loggerOf returns l with attributes, or a silent logger.
func loggerOf(l *slog.Logger, attrs ...any) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l.With(attrs...)
}

// checkAddr accepts "" and host:port with an IP literal.
func checkAddr(p *problems, field, addr string) {
	if addr == "" {
		return
	}
	if _, err := netip.ParseAddrPort(addr); err != nil {
		p.add("%s %q is not host:port with an IP literal", field, clip(addr))
	}
}

// checkAdvertised accepts "", an IP literal, and one with a port. It returns
// what a Transport is told, where port 0 stands for the one that is listened on.
func checkAdvertised(p *problems, field, addr string) string {
	if addr == "" {
		return ""
	}
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		var ip netip.Addr
		ip, err = netip.ParseAddr(addr)
		at = netip.AddrPortFrom(ip, 0)
	}
	switch {
	case err != nil:
		p.add("%s %q is neither an IP literal nor one with a port: clients store it in message ids", field, clip(addr))
		return ""
	case at.Addr().IsUnspecified():
		p.add("%s %q is a wildcard, which clients can't dial: give an address of this machine", field, addr)
	}
	return at.String()
}

// isWildcard tells whether addr, host:port, stands for all addresses of a
// machine.
func isWildcard(addr string) bool {
	at, err := netip.ParseAddrPort(addr)
	return err == nil && at.Addr().IsUnspecified()
}

// checkNameServers wants at least one usable address, host:port where host may
// be a name. It returns a copy with lists in RocketMQ's form, "a:9876;b:9876",
// taken apart.
func checkNameServers(p *problems, addrs []string) []string {
	if len(addrs) == 0 {
		p.add("NameServers is empty: give the address of at least one name server")
	}
	out := make([]string, 0, len(addrs))
	for _, list := range addrs {
		some := false
		for a := range strings.SplitSeq(list, ";") {
			if a = strings.TrimSpace(a); a == "" {
				continue
			}
			some = true
			host, port, err := net.SplitHostPort(a)
			n, bad := strconv.ParseUint(port, 10, 16)
			if err != nil || bad != nil || n == 0 || host == "" || strings.ContainsAny(host, " /,@") {
				p.add("NameServers %q is not host:port", clip(a))
				continue
			}
			out = append(out, a)
		}
		if !some {
			p.add("NameServers holds an empty address")
		}
	}
	return out
}

// positive replaces 0 by def and reports a negative value.
func positive[N int | int64 | time.Duration](p *problems, field string, n *N, def N) {
	switch {
	case *n == 0:
		*n = def
	case *n < 0:
		p.add("%s is %v, must be positive (0 = %v)", field, *n, def)
	}
}

// defaultOrNone reports a negative value that is not -1, which means none.
func defaultOrNone[N int | int64 | time.Duration](p *problems, field string, n N) {
	if n < -1 {
		p.add("%s is %v, must be positive, -1 (none) or 0 (the default)", field, n)
	}
}

// nonNegative reports a negative value.
func nonNegative[N int | int64 | time.Duration](p *problems, field string, n N) {
	if n < 0 {
		p.add("%s is %v, must not be negative", field, n)
	}
}
