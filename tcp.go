package pocketmq

import (
	"crypto/tls"

	"github.com/pocketmq/pocketmq/remoting"
)

// TCP makes a Transport that speaks RocketMQ's remoting protocol, so that
// official clients and tools can take part. Servers listen on host, an IP
// literal or a name that is resolved when the first of them does, and on a port
// that is free, unless their Addr says otherwise; a node that listens again
// gets the port that it had. They take connections with and without TLS on one
// port, and nobody has to say who he is: choose a host that only friends reach,
// such as 127.0.0.1. Clients listen nowhere, and need no host; brokers on a
// wildcard host, 0.0.0.0 or ::, need BrokerConfig.AdvertiseAddr. Several
// clusters may share one. It holds no resources: there is nothing to close. Safe
// for concurrent use.
func TCP(host string) Transport { return TCPWith(TCPConfig{Host: host}) }

// TCPWith is TCP with more to say. What is wrong with cfg is ErrInvalidConfig
// at the Start of whoever uses the Transport.
func TCPWith(cfg TCPConfig) Transport {
	return remoting.NewTransportWith(cfg.Host, remoting.TCP{}, remoting.Options{
		TLS: cfg.TLS, ServerTLS: cfg.ServerTLS, DialTLS: cfg.DialTLS, ProxyProtocol: cfg.ProxyProtocol,
	})
}

// TCPConfig is how a Transport over TCP listens and dials.
type TCPConfig struct {
	// Host is where servers listen, as in TCP. Required for servers whose Addr
	// is not set.
	Host string

	// TLS is which connections servers take [TLSPermissive: with and without].
	// The first bytes of a connection tell. A handshake may take 10 s. RocketMQ:
	// tls.server.mode.
	TLS TLSMode

	// ServerTLS is how servers do TLS. It is copied. Set Certificates, and
	// ClientAuth and ClientCAs to let only those in who show a certificate. nil,
	// or one without certificates, gets a certificate that is made at the first
	// hello and that nobody else has signed: it keeps listeners out, but clients
	// cannot tell by it whom they talk to, and have to skip its verification, as
	// RocketMQ's own do unless told otherwise. RocketMQ: tls.server.certPath,
	// tls.server.keyPath, tls.server.need.client.auth, tls.test.mode.enable.
	ServerTLS *tls.Config

	// DialTLS makes clients, and brokers that call others, dial with TLS. It is
	// copied. ServerName is the host that is dialled, unless it is set. A server
	// that is not trusted is ErrUnreachable; the error says what to do, and
	// errors.As finds the one of crypto/x509 in it. nil is without TLS, unless TLS
	// is TLSEnforcing: then members that share the Transport trust its servers'
	// certificate, and no other. RocketMQ: tls.enable, tls.client.*.
	DialTLS *tls.Config

	// ProxyProtocol lets a connection begin with a PROXY preamble, v1 or v2, as
	// HAProxy and load balancers send it: the address in it is the born host of
	// what the client sends, and its address in Admin.Members. Set it only where
	// nobody but the proxy can connect, because anybody may write anything there.
	//
	// Differs: RocketMQ always takes a preamble.
	ProxyProtocol bool
}

// TLSMode says which connections servers take: with TLS, without, or both.
type TLSMode = remoting.TLSMode

// Modes of TLS. Java: TlsMode.
const (
	TLSPermissive = remoting.TLSPermissive // both
	TLSEnforcing  = remoting.TLSEnforcing  // with TLS; others are closed
	TLSDisabled   = remoting.TLSDisabled   // without; a TLS hello is closed
)
