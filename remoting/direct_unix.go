//go:build unix

package remoting

import (
	"errors"
	"net"
	"syscall"
)

// direct writes to a connection what the system takes at once, without waiting.
// It is for one goroutine at a time.
type direct struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // made once
	b   []byte
	n   int
	err error
}

// directOf is nil for a connection that cannot be written to without waiting.
func directOf(conn net.Conn) nonblocking {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	d.try = func(fd uintptr) bool {
		d.n, d.err = syscall.Write(int(fd), d.b)
		return true // or raw would wait until it can be written to
	}
	return d
}

func (d *direct) write(b []byte) (int, error) {
	d.b, d.n, d.err = b, 0, nil
	err := d.raw.Write(d.try)
	d.b = nil
	if err == nil {
		err = d.err
	}
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = nil
	}
	return max(d.n, 0), err
}
