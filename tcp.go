package pocketmq

import "github.com/pocketmq/pocketmq/remoting"

// TCP makes a Transport that speaks RocketMQ's remoting protocol, so that
// official clients and tools can take part. Servers listen on host, an IP
// literal or a name that is resolved when the first of them does, and on a port
// that is free, unless their Addr says otherwise; a node that listens again
// gets the port that it had. Several clusters may share one. It holds no
// resources: there is nothing to close. Safe for concurrent use.
func TCP(host string) Transport { return remoting.NewTransport(host, remoting.TCP{}) }
