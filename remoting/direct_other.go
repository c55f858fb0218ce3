//go:build !unix

package remoting

import "net"

// directOf is nil: a goroutine of the link writes.
func directOf(net.Conn) nonblocking { return nil }
