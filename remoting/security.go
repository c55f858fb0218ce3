package remoting

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// TLSMode says which connections servers take. One port serves both kinds: the
// first byte of a TLS hello is none that a frame can begin with. Java:
// tls.server.mode, TlsMode.
type TLSMode int

const (
	TLSPermissive TLSMode = iota // with and without TLS
	TLSEnforcing                 // with TLS; others are closed
	TLSDisabled                  // without TLS; a TLS hello is closed
)

// String returns RocketMQ's name of the mode, "permissive" say.
func (m TLSMode) String() string {
	switch m {
	case TLSPermissive:
		return "permissive"
	case TLSEnforcing:
		return "enforcing"
	case TLSDisabled:
		return "disabled"
	}
	return fmt.Sprintf("TLSMode(%d)", int(m))
}

// Options are what else a Transport may be told. The zero value is RocketMQ's
// default, but for the PROXY preamble.
type Options struct {
	// TLS is which connections servers take [TLSPermissive].
	TLS TLSMode
	// ServerTLS is how servers do TLS. It is copied. Without certificates in it,
	// or nil, they get one that is made at the first hello and that nobody else
	// has signed, ECDSA on P-256. Java: tls.test.mode.enable, which is on.
	ServerTLS *tls.Config
	// DialTLS makes this side dial with TLS. It is copied; ServerName is the host
	// that is dialled unless it says otherwise. nil is without TLS, unless TLS is
	// TLSEnforcing: then it is with TLS, to servers of this Transport and to
	// nobody else, for it is their certificate that is trusted. Java: tls.enable.
	DialTLS *tls.Config
	// ProxyProtocol lets a connection begin with a PROXY preamble, v1 or v2,
	// whose source address then counts as that of the client.
	//
	// Differs: RocketMQ always takes one. Whoever can connect could then pass for
	// anybody.
	ProxyProtocol bool
}

// security is Options at work. Safe for concurrent use.
type security struct {
	mode  TLSMode
	proxy bool
	err   error // what is wrong with the options

	server *tls.Config // nil with TLSDisabled
	dial   *tls.Config // nil without TLS

	selfSigned func() (*tls.Certificate, error) // made by the first call
}

func newSecurity(o Options) *security {
	s := &security{mode: o.TLS, proxy: o.ProxyProtocol, selfSigned: sync.OnceValues(selfSigned)}
	if o.TLS < TLSPermissive || o.TLS > TLSDisabled {
		s.err = fmt.Errorf("%w: %v: want TLSPermissive, TLSEnforcing or TLSDisabled", protocol.ErrInvalidConfig, o.TLS)
		return s
	}
	if o.TLS != TLSDisabled {
		s.server = &tls.Config{}
		if o.ServerTLS != nil {
			s.server = o.ServerTLS.Clone()
		}
		if !hasCertificate(s.server) {
			s.server.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.selfSigned() }
		}
	}
	switch {
	case o.DialTLS != nil:
		s.dial = o.DialTLS.Clone()
	case o.TLS == TLSEnforcing && o.ServerTLS != nil && hasCertificate(o.ServerTLS) && len(o.ServerTLS.Certificates) == 0:
		s.err = fmt.Errorf("%w: the certificates of ServerTLS are chosen by a function, so that servers cannot be told by them; set DialTLS", protocol.ErrInvalidConfig)
	case o.TLS == TLSEnforcing:
		s.dial = &tls.Config{
			InsecureSkipVerify: true, // in favour of the closer check of isOurs
			VerifyConnection:   s.isOurs,
		}
		if o.ServerTLS != nil { // where both sides show certificates it is the same one
			s.dial.Certificates = slices.Clone(o.ServerTLS.Certificates)
		}
	}
	return s
}

func hasCertificate(c *tls.Config) bool {
	return len(c.Certificates) > 0 || c.GetCertificate != nil || c.GetConfigForClient != nil
}

// errNotOurs is a server with another certificate than this transport's own.
var errNotOurs = errors.New("the server's certificate is not the one of this transport")

// isOurs accepts servers with this transport's own certificate.
func (s *security) isOurs(with tls.ConnectionState) error {
	own := s.server.Certificates
	if len(own) == 0 {
		c, err := s.selfSigned()
		if err != nil {
			return err
		}
		own = []tls.Certificate{*c}
	}
	for _, c := range own {
		if len(c.Certificate) > 0 && len(with.PeerCertificates) > 0 && bytes.Equal(c.Certificate[0], with.PeerCertificates[0].Raw) {
			return nil
		}
	}
	return errNotOurs
}

// selfSigned makes a certificate for any name, valid as long as there may be.
func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "pocketmq self-signed"},
		NotBefore:    time.Now().AddDate(0, 0, -1), // clocks differ
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// secure makes a connection that was dialled one with TLS, unless it is to have
// none. On an error conn is closed.
func (s *security) secure(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	if s.dial == nil {
		return conn, nil
	}
	c := s.dial
	if c.ServerName == "" {
		host, _, _ := net.SplitHostPort(addr) // it was dialled
		c = c.Clone()
		c.ServerName = host
	}
	limited, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	secured := tls.Client(conn, c)
	start := time.Now()
	err := secured.HandshakeContext(limited)
	if err == nil {
		return secured, nil
	}
	_ = conn.Close() // The handshake's error says more.
	if ended := pastDeadline(ctx); ended != nil {
		return nil, errDialEnded(addr, time.Since(start), ended)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, protocol.Tagged(fmt.Sprintf("%s: no TLS connection: no answer to the hello within %v; without DialTLS it would be a plain one", addr, handshakeLimit), protocol.ErrUnreachable)
	}
	return nil, protocol.Tagged(fmt.Sprintf("%s: no TLS connection: %v; %s", addr, err, remedy(err)), protocol.ErrUnreachable, err)
}

// remedy is what to do about a failed handshake.
func remedy(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		header  tls.RecordHeaderError
	)
	switch {
	case errors.Is(err, errNotOurs):
		return "set DialTLS, and in it whom to trust"
	case errors.As(err, &unknown):
		return "put its certificate, or who signed it, into RootCAs of DialTLS; of a test server with a certificate of its own making set InsecureSkipVerify"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the server's certificate, or correct the clock of this machine"
	case errors.As(err, &invalid):
		return "the server needs another certificate"
	case errors.As(err, &name):
		return "set ServerName of DialTLS to a name that the certificate has, or dial that name"
	case errors.As(err, &header):
		return "what listens there speaks no TLS; without DialTLS the connection is a plain one"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), isReset(err):
		return "the server closed the connection at the hello: without TLS there (TLSDisabled) leave out DialTLS"
	case isAlert(err):
		return "the server refuses: look at Certificates, MinVersion and CipherSuites of DialTLS, and at ClientAuth and ClientCAs of its ServerTLS"
	}
	return "look at DialTLS, and at the server's ServerTLS"
}
