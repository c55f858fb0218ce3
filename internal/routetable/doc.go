// Package routetable holds the tables of a name server: which topics lie on
// which broker groups, which addresses a group has, and which of them are
// alive. Java: RouteInfoManager.
//
//	topic   -> broker name -> queue counts and permissions
//	broker name            -> cluster, broker id -> address
//	cluster                -> broker names
//	(cluster, address)     -> last sign of life, data version, connection
//	(cluster, address)     -> filter servers
//
// Brokers bring everything in by registering, again and again; nothing is
// stored. A broker leaves by unregistering, by losing its connection, or by
// staying silent.
//
// The package knows no clock, no network and no goroutine: the time is a
// parameter, and what callers should announce is returned as a value. It does
// not keep the KV configuration of a name server.
package routetable
