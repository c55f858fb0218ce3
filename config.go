package pocketmq

import (
	"log/slog"
	"net/netip"
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
		p.add("%s %q is not host:port with an IP literal", field, addr)
	}
}

// checkNameServers wants at least one usable address.
func checkNameServers(p *problems, addrs []string) {
	if len(addrs) == 0 {
		p.add("NameServers is empty: give the address of at least one name server")
	}
	for _, a := range addrs {
		if a == "" {
			p.add("NameServers holds an empty address")
			continue
		}
		checkAddr(p, "NameServers", a)
	}
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
