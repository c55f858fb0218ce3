package remoting

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"
)

// handshakeLimit is how long a PROXY preamble, and then a TLS handshake, may
// take once it has begun. Java: SslHandler's handshakeTimeout.
const handshakeLimit = 10 * time.Second

// helloByte is the first byte of a TLS hello. A frame begins with a 0.
const helloByte = 0x16

// errPlain is a connection without TLS where that is needed.
var errPlain = errors.New("no TLS, which is enforced")

// greet reads what comes before the first frame of a connection to a server: a
// PROXY preamble and a TLS handshake, as far as they are welcome. It returns
// the source of the preamble, if that names one. It runs on the reading
// goroutine, before anything is written.
func (s *security) greet(l *link) (from netip.AddrPort, err error) {
	if s.mode == TLSDisabled && !s.proxy {
		return from, nil
	}
	first, err := l.in.Peek(1)
	if err != nil {
		return from, err
	}
	if s.proxy && (first[0] == proxyText[0] || first[0] == proxyBinary[0]) {
		if err := l.within(handshakeLimit, func() error { from, err = readProxy(l.in); return err }); err != nil {
			return from, err
		}
		if first, err = l.in.Peek(1); err != nil {
			return from, err
		}
	}
	switch hello := first[0] == helloByte; {
	case hello && s.mode != TLSDisabled:
		return from, s.handshake(l)
	case !hello && s.mode == TLSEnforcing:
		return from, errPlain
	}
	return from, nil // a hello that is not welcome is no frame either
}

// handshake makes a link one with TLS.
func (s *security) handshake(l *link) error {
	ahead, err := l.in.Peek(l.in.Buffered())
	if err != nil {
		return err
	}
	secured := tls.Server(&begun{l.conn, bytes.NewReader(bytes.Clone(ahead))}, s.server)
	if err := l.within(handshakeLimit, secured.Handshake); err != nil {
		return err
	}
	l.use(secured)
	return nil
}

// begun is a connection of which something has been read ahead.
type begun struct {
	net.Conn
	ahead *bytes.Reader
}

func (c *begun) Read(b []byte) (int, error) {
	if c.ahead.Len() > 0 {
		return c.ahead.Read(b)
	}
	return c.Conn.Read(b)
}
