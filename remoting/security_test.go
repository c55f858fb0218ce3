package remoting

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// authority signs certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{cert, key}
}

// sign makes a certificate for 127.0.0.1 that is valid until a time.
func (a authority) sign(t testing.TB, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// securedPair is a broker whose transport has options.
type securedPair struct {
	*pair
	dial func(Options) (protocol.BrokerConn, error)
}

func newSecured(t *testing.T, o Options) *securedPair {
	t.Helper()
	n := pipenet.New()
	s := newSecuredOn(t, n, o)
	s.net = n
	return s
}

func newSecuredOn(t *testing.T, n Network, o Options) *securedPair {
	t.Helper()
	tr := NewTransportWith("127.0.0.1", n, o)
	b := &fakeBroker{recordedBroker: recordedBroker{&recorder{}}}
	lis, err := tr.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	return &securedPair{&pair{t: tr, broker: b, lis: lis}, func(o Options) (protocol.BrokerConn, error) {
		return NewTransportWith("127.0.0.1", n, o).DialBroker(t.Context(), protocol.Dial{Addr: lis.Addr()})
	}}
}

func ask(t *testing.T, conn protocol.BrokerConn) error {
	t.Helper()
	_, err := conn.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
	return err
}

var anybody = &tls.Config{InsecureSkipVerify: true}

func TestOnePortServesWithAndWithoutTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, Options{})
		for _, o := range []Options{{}, {DialTLS: anybody}, {DialTLS: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}}} {
			conn, err := s.dial(o)
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, ask(t, conn))
			}
			// More than one record of TLS, and more than one write.
			_, err = conn.SendMessage(t.Context(), &protocol.SendMessageRequest{Topic: "T", Body: make([]byte, 4<<20)})
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
		require.NoError(t, s.lis.Close())
	})
}

func TestWhoClosesOverTLSIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, Options{})
		var got atomic.Int64
		s.broker.commit = func(context.Context, *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
			got.Add(1)
			return &protocol.UpdateConsumerOffsetResponse{}, nil
		}
		gone := make(chan struct{})
		s.broker.close = func() { close(gone) }
		conn, err := s.dial(Options{DialTLS: anybody})
		require.NoError(t, err)
		for i := range int64(100) {
			_, err := conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Offset: i, Oneway: true})
			require.NoError(t, err)
		}
		start := time.Now()
		require.NoError(t, conn.Close())
		<-gone
		assert.Zero(t, time.Since(start))
		assert.EqualValues(t, 100, got.Load())
		require.NoError(t, s.lis.Close())
	})
}

func TestModesOfTLS(t *testing.T) {
	for mode, want := range map[TLSMode]struct{ plain, secured string }{
		TLSPermissive: {},
		TLSEnforcing:  {plain: "lost before it answered anything; where only TLS is taken (TLSEnforcing), set DialTLS"},
		TLSDisabled:   {secured: "the server closed the connection at the hello: without TLS there (TLSDisabled) leave out DialTLS"},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSecured(t, Options{TLS: mode})
				conn, err := s.dial(Options{})
				require.NoError(t, err)
				err = ask(t, conn)
				if want.plain == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
					assert.ErrorContains(t, err, want.plain)
				}
				require.NoError(t, conn.Close())

				conn, err = s.dial(Options{DialTLS: anybody})
				if want.secured == "" {
					require.NoError(t, err)
					assert.NoError(t, ask(t, conn))
					require.NoError(t, conn.Close())
				} else {
					assert.ErrorIs(t, err, protocol.ErrUnreachable)
					assert.ErrorContains(t, err, want.secured)
				}
				require.NoError(t, s.lis.Close())
			})
		})
	}
	for _, o := range []Options{{TLS: 3}, {TLS: -1}, {TLS: TLSEnforcing, ServerTLS: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }}}} {
		tr := NewTransportWith("127.0.0.1", pipenet.New(), o)
		_, err := tr.ListenBroker(t.Context(), protocol.Listen{}, &fakeBroker{})
		assert.ErrorIs(t, err, protocol.ErrInvalidConfig)
		_, err = tr.DialBroker(t.Context(), protocol.Dial{Addr: "127.0.0.1:1"})
		assert.ErrorIs(t, err, protocol.ErrInvalidConfig)
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
	}
	assert.Equal(t, "TLSMode(7)", TLSMode(7).String())
}

func TestAHelloThatDoesNotGoOnHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, Options{})
		start := time.Now()
		silent, trickle := s.raw(t), s.raw(t)
		_, err := silent.Write([]byte{helloByte})
		require.NoError(t, err)
		go func() {
			for _, b := range []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on, a byte a second, for half a minute") {
				if _, err := trickle.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		conn, err := s.dial(Options{})
		require.NoError(t, err)
		require.NoError(t, ask(t, conn))
		assert.Zero(t, time.Since(start), "others do not wait")
		for _, c := range []net.Conn{silent, trickle} {
			_, err = io.Copy(io.Discard, c)
			require.NoError(t, err)
			assert.Equal(t, handshakeLimit, time.Since(start))
		}
		// A server that closes waits for no handshake.
		_, err = s.raw(t).Write([]byte{helloByte})
		require.NoError(t, err)
		closing := time.Now()
		require.NoError(t, errors.Join(s.lis.Close(), conn.Close()))
		assert.Zero(t, time.Since(closing))
		time.Sleep(time.Minute)
	})
	synctest.Test(t, func(t *testing.T) { // a server that does not answer a hello
		n := pipenet.New()
		lis, err := n.Listen(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			for {
				conn, err := lis.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
		}()
		tr := NewTransportWith("127.0.0.1", n, Options{DialTLS: anybody})
		start := time.Now()
		_, err = tr.DialBroker(t.Context(), protocol.Dial{Addr: lis.Addr().String()})
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.ErrorContains(t, err, "no answer to the hello within 10s")
		assert.Equal(t, handshakeLimit, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = tr.DialBroker(ctx, protocol.Dial{Addr: lis.Addr().String()})
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, lis.Close())
	})
}

func TestCertificatesThatAreRefusedSayWhatToDo(t *testing.T) {
	// Over TCP: on a pipe without a buffer both sides of a failed handshake write.
	ours, theirs := newAuthority(t), newAuthority(t)
	good := ours.sign(t, time.Now().Add(time.Hour))
	for what, c := range map[string]struct {
		server, client *tls.Config
		late           bool // the error comes with the first call
		as             any
		says           string
	}{
		"nobody signed it": {nil, &tls.Config{RootCAs: ours.pool()}, false, new(x509.UnknownAuthorityError), "into RootCAs of DialTLS"},
		"somebody else signed it": {
			&tls.Config{Certificates: []tls.Certificate{theirs.sign(t, time.Now().Add(time.Hour))}}, &tls.Config{RootCAs: ours.pool()}, false,
			new(x509.UnknownAuthorityError), "into RootCAs of DialTLS",
		},
		"it has expired": {
			&tls.Config{Certificates: []tls.Certificate{ours.sign(t, time.Now().Add(-time.Minute))}}, &tls.Config{RootCAs: ours.pool()}, false,
			new(x509.CertificateInvalidError), "renew the server's certificate",
		},
		"it is for another name": {
			&tls.Config{Certificates: []tls.Certificate{good}}, &tls.Config{RootCAs: ours.pool(), ServerName: "broker.example"}, false,
			new(x509.HostnameError), "set ServerName of DialTLS",
		},
		"the client has none": {
			&tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool()}, &tls.Config{RootCAs: ours.pool()}, true,
			nil, "Certificates",
		},
		"the client is too old": {
			&tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS13}, &tls.Config{RootCAs: ours.pool(), MaxVersion: tls.VersionTLS12}, false,
			nil, "look at Certificates, MinVersion and CipherSuites of DialTLS",
		},
	} {
		s := newSecuredOn(t, TCP{}, Options{ServerTLS: c.server})
		conn, err := s.dial(Options{DialTLS: c.client})
		if c.late {
			require.NoError(t, err, what)
			err = ask(t, conn)
			assert.True(t, errors.Is(err, protocol.ErrUnknownOutcome) || errors.Is(err, protocol.ErrUnreachable), what)
			require.NoError(t, conn.Close())
		} else {
			assert.ErrorIs(t, err, protocol.ErrUnreachable, what)
		}
		assert.ErrorContains(t, err, s.lis.Addr(), what)
		assert.ErrorContains(t, err, c.says, what)
		if c.as != nil {
			assert.ErrorAs(t, err, c.as, what)
		}
		// Nobody else is harmed.
		conn, err = s.dial(Options{})
		require.NoError(t, err)
		require.NoError(t, ask(t, conn))
		require.NoError(t, errors.Join(conn.Close(), s.lis.Close()))
	}

	s := newSecuredOn(t, TCP{}, Options{TLS: TLSEnforcing, ServerTLS: &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool()}})
	conn, err := s.dial(Options{DialTLS: &tls.Config{RootCAs: ours.pool(), Certificates: []tls.Certificate{ours.sign(t, time.Now().Add(time.Hour))}}})
	require.NoError(t, err)
	assert.NoError(t, ask(t, conn))
	require.NoError(t, conn.Close())
	conn, err = s.t.DialBroker(t.Context(), protocol.Dial{Addr: s.lis.Addr()})
	require.NoError(t, err, "of the same transport, with its certificate on both sides")
	assert.NoError(t, ask(t, conn))
	require.NoError(t, errors.Join(conn.Close(), s.lis.Close()))
}

func TestMembersOfAnEnforcingTransportTrustEachOtherOnly(t *testing.T) {
	s := newSecuredOn(t, TCP{}, Options{TLS: TLSEnforcing})
	conn, err := s.t.DialBroker(t.Context(), protocol.Dial{Addr: s.lis.Addr()})
	require.NoError(t, err)
	assert.NoError(t, ask(t, conn))
	require.NoError(t, conn.Close())
	_, err = s.dial(Options{TLS: TLSEnforcing})
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	assert.ErrorContains(t, err, "is not the one of this transport; set DialTLS")
	require.NoError(t, s.lis.Close())
}

func TestACertificateIsMadeOnceAndNotBeforeAHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, Options{})
		made := 0
		once := s.t.secure.selfSigned
		s.t.secure.selfSigned = func() (*tls.Certificate, error) {
			made++
			return once()
		}
		conn, err := s.dial(Options{})
		require.NoError(t, err)
		require.NoError(t, ask(t, conn))
		require.NoError(t, conn.Close())
		assert.Zero(t, made)
		second, err := s.t.ListenBroker(t.Context(), protocol.Listen{Node: "broker-b/0"}, s.broker)
		require.NoError(t, err)
		var seen [][]byte
		for _, addr := range []string{s.lis.Addr(), second.Addr(), second.Addr()} {
			dial := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(c tls.ConnectionState) error {
				seen = append(seen, c.PeerCertificates[0].Raw)
				return nil
			}}
			conn, err := NewTransportWith("", s.net, Options{DialTLS: dial}).DialBroker(t.Context(), protocol.Dial{Addr: addr})
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
		assert.Equal(t, 3, made)
		assert.Equal(t, [][]byte{seen[0], seen[0], seen[0]}, seen)
		require.NoError(t, errors.Join(s.lis.Close(), second.Close()))
	})
}

func TestSilenceOverTLSEndsAfterTheIdleLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, Options{})
		conn, err := s.dial(Options{DialTLS: anybody})
		require.NoError(t, err)
		for range 3 { // deadlines pass within a read of TLS, and it goes on
			time.Sleep(restLimit - time.Second)
			require.NoError(t, ask(t, conn))
		}
		time.Sleep(idleLimit)
		synctest.Wait()
		assert.False(t, conn.(brokerClient).Alive())
		require.NoError(t, errors.Join(conn.Close(), s.lis.Close()))
	})
}
