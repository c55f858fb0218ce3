package remoting

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// Beginnings of a PROXY preamble. https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
const (
	proxyText   = "PROXY "
	proxyBinary = "\r\n\r\n\x00\r\nQUIT\n"
)

// maxProxyText is the most bytes of a preamble in text form, its end included.
const maxProxyText = 107

// errProxy is matched by the errors of preambles that cannot be understood.
var errProxy = errors.New("bad PROXY preamble")

// readProxy takes a PROXY preamble off r, if there is one. Of where it comes
// from it returns the source; an invalid address when the preamble does not
// tell, as one of a health check, and when there is none.
func readProxy(r *bufio.Reader) (from netip.AddrPort, err error) {
	first, err := r.Peek(1)
	if err != nil {
		return from, err
	}
	switch first[0] {
	case proxyText[0]:
		return readProxyText(r)
	case proxyBinary[0]:
		return readProxyBinary(r)
	}
	return from, nil
}

// readProxyText reads "PROXY TCP4 source destination port port\r\n".
func readProxyText(r *bufio.Reader) (from netip.AddrPort, err error) {
	var line []byte
	for len(line) < maxProxyText && !bytes.HasSuffix(line, []byte("\r\n")) {
		b, err := r.ReadByte()
		if err != nil {
			return from, err
		}
		if line = append(line, b); !strings.HasPrefix(proxyText, string(line[:min(len(line), len(proxyText))])) {
			return from, errProxy
		}
	}
	text, ended := strings.CutSuffix(string(line), "\r\n")
	parts := strings.Split(text, " ")
	if !ended || len(parts) < 2 {
		return from, errProxy
	}
	if parts[1] == "UNKNOWN" {
		return from, nil
	}
	if len(parts) != 6 || parts[1] != "TCP4" && parts[1] != "TCP6" {
		return from, errProxy
	}
	source, err := netip.ParseAddr(parts[2])
	if err != nil || source.Is4() != (parts[1] == "TCP4") {
		return from, errProxy
	}
	port, err := strconv.ParseUint(parts[4], 10, 16)
	if err != nil {
		return from, errProxy
	}
	return netip.AddrPortFrom(source.Unmap().WithZone(""), uint16(port)), nil
}

// readProxyBinary reads the signature, version and command, family, a length
// and as many bytes, of which the addresses come first.
func readProxyBinary(r *bufio.Reader) (from netip.AddrPort, err error) {
	for i := range len(proxyBinary) {
		b, err := r.ReadByte()
		if err != nil {
			return from, err
		}
		if b != proxyBinary[i] {
			return from, errProxy
		}
	}
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return from, err
	}
	const version, local, proxied = 0x20, 0x00, 0x01
	left := int(binary.BigEndian.Uint16(head[2:]))
	if head[0] != version|local && head[0] != version|proxied {
		return from, fmt.Errorf("%w: version and command %#x", errProxy, head[0])
	}
	const tcp4, tcp6 = 0x11, 0x21
	size := map[byte]int{tcp4: 4, tcp6: 16}[head[1]]
	if head[0] == version|local {
		size = 0
	}
	if size > 0 {
		addrs := make([]byte, 2*size+4) // source, destination, and their ports
		if left < len(addrs) {
			return from, fmt.Errorf("%w: %d bytes of addresses", errProxy, left)
		}
		if _, err := io.ReadFull(r, addrs); err != nil {
			return from, err
		}
		left -= len(addrs)
		source, _ := netip.AddrFromSlice(addrs[:size]) // the sizes are right
		from = netip.AddrPortFrom(source.Unmap(), binary.BigEndian.Uint16(addrs[2*size:]))
	}
	_, err = r.Discard(left)
	return from, err
}
