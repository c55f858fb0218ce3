package remoting

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// proxyV2 makes a preamble in binary form.
func proxyV2(command, family byte, rest string) string {
	return proxyBinary + string([]byte{command, family}) + string(binary.BigEndian.AppendUint16(nil, uint16(len(rest)))) + rest
}

// Addresses of preambles in binary form.
const (
	proxyV4 = "\x0a\x00\x00\x07\x7f\x00\x00\x01\x30\x39\x2a\x9f"
	proxyV6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" + "\x30\x39\x2a\x9f"
)

func TestPreamblesNameTheirSource(t *testing.T) {
	for preamble, want := range map[string]string{
		"":         "",
		"\x00\x00": "",
		"PROXY TCP4 10.0.0.7 127.0.0.1 12345 10911\r\n":            "10.0.0.7:12345",
		"PROXY TCP6 2001:db8::7 ::1 12345 10911\r\n":               "[2001:db8::7]:12345",
		"PROXY TCP6 ::ffff:10.0.0.7 ::1 1 2\r\n":                   "10.0.0.7:1",
		"PROXY UNKNOWN\r\n":                                        "",
		"PROXY UNKNOWN ffff:f::1 ffff:f::2 65535 65535\r\n":        "",
		proxyV2(0x21, 0x11, proxyV4):                               "10.0.0.7:12345",
		proxyV2(0x21, 0x11, proxyV4+"\x03\x00\x04abcd"):            "10.0.0.7:12345",
		proxyV2(0x21, 0x21, proxyV6):                               "[2001:db8::7]:12345",
		proxyV2(0x20, 0x00, ""):                                    "",
		proxyV2(0x20, 0x11, proxyV4):                               "",
		proxyV2(0x21, 0x00, ""):                                    "",
		proxyV2(0x21, 0x31, strings.Repeat("/", 216)):              "",
		proxyV2(0x21, 0x12, proxyV4):                               "",
		proxyV2(0x21, 0x11, proxyV4+strings.Repeat("\x04", 65000)): "10.0.0.7:12345",
	} {
		r := bufio.NewReaderSize(strings.NewReader(preamble+"\x00rest"), firstBuffer)
		from, err := readProxy(r)
		require.NoError(t, err, "%q", preamble)
		if want == "" {
			assert.False(t, from.IsValid(), "%q", preamble)
		} else {
			assert.Equal(t, netip.MustParseAddrPort(want), from, "%q", preamble)
		}
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		after := "\x00rest"
		if preamble == "\x00\x00" {
			after = preamble + after
		}
		assert.Equal(t, after, string(rest), "%q", preamble)
	}
}

func TestPreamblesThatAreNoneAreErrors(t *testing.T) {
	for _, preamble := range []string{
		"PRI * HTTP/2.0\r\n", "PROXY\r\n", "PROXY \r\n", "PROXY TCP4\r\n", "PROXY TCP4 10.0.0.7 127.0.0.1 12345\r\n", "PROXY TCP4 10.0.0.7 127.0.0.1 65536 1\r\n",
		"PROXY TCP4 x 127.0.0.1 1 1\r\n", "PROXY TCP4 ::1 ::1 1 1\r\n", "PROXY TCP6 10.0.0.7 127.0.0.1 1 1\r\n", "PROXY UDP4 10.0.0.7 127.0.0.1 1 1\r\n",
		"PROXY TCP4 10.0.0.7 127.0.0.1 1 1 \r\n", "PROXY TCP4 " + strings.Repeat("1", 200) + "\r\n", "\r\n\r\n\x00\r\nQUIX\n    ",
		proxyV2(0x11, 0x11, proxyV4), proxyV2(0x22, 0x11, proxyV4), proxyV2(0x21, 0x11, proxyV4[:11]), proxyV2(0x21, 0x21, proxyV4),
	} {
		_, err := readProxy(bufio.NewReader(strings.NewReader(preamble + strings.Repeat("\x00", 200))))
		assert.ErrorIs(t, err, errProxy, "%q", preamble)
	}
	for _, whole := range []string{"PROXY TCP4 10.0.0.7 127.0.0.1 12345 10911\r\n", proxyV2(0x21, 0x11, proxyV4+"\x04\x00\x01x")} {
		for n := range len(whole) {
			_, err := readProxy(bufio.NewReader(strings.NewReader(whole[:n])))
			assert.Error(t, err, "%q", whole[:n])
		}
	}
}

func FuzzProxy(f *testing.F) {
	for _, b := range []string{"PROXY TCP4 10.0.0.7 127.0.0.1 12345 10911\r\n", "PROXY UNKNOWN\r\n", proxyV2(0x21, 0x11, proxyV4), proxyV2(0x21, 0x21, proxyV6), proxyV2(0x20, 0, "")} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		from, err := readProxy(bufio.NewReader(strings.NewReader(string(b))))
		if err == nil && from.IsValid() {
			require.Empty(t, from.Addr().Zone())
			require.False(t, from.Addr().Is4In6())
		}
	})
}

func TestAPreambleIsTheClientsAddressWhereItIsWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, Options{ProxyProtocol: true})
		request := getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T"})
		for _, preamble := range []string{"PROXY TCP4 10.0.0.7 127.0.0.1 12345 10911\r\n", proxyV2(0x21, 0x11, proxyV4), "", "PROXY UNKNOWN\r\n"} {
			for _, secure := range []bool{false, true} {
				conn := s.raw(t)
				if preamble != "" {
					_, err := conn.Write([]byte(preamble))
					require.NoError(t, err)
				}
				var over net.Conn = conn
				if secure {
					over = tls.Client(conn, anybody)
				}
				write(t, over, request)
				_, err := Read(over)
				require.NoError(t, err)
				want := conn.LocalAddr().String()
				if strings.Contains(preamble, "10.0.0.7") || preamble != "" && preamble[0] == '\r' {
					want = "10.0.0.7:12345"
				}
				assert.Equal(t, want, s.broker.session.Remote.String(), "%q", preamble)
				require.NoError(t, conn.Close())
			}
		}
		// A part of a preamble, and one that is none.
		start := time.Now()
		conn := s.raw(t)
		_, err := conn.Write([]byte("PROXY TCP4 10.0"))
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, handshakeLimit, time.Since(start))
		conn = s.raw(t)
		write(t, conn)
		go func() { _, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) }()
		_, err = conn.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
		require.NoError(t, s.lis.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, Options{})
		conn := s.raw(t)
		go func() { _, _ = conn.Write([]byte("PROXY TCP4 10.0.0.7 127.0.0.1 12345 10911\r\n")) }()
		_, err := conn.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err, "it is no frame")
		require.NoError(t, errors.Join(conn.Close(), s.lis.Close()))
	})
}
