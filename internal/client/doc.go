// Package client is what Producer, Consumer and Admin share: the choice of a
// name server, the cache of routes, the sessions with brokers, and the
// heartbeats. Java: MQClientInstance, MQClientAPIImpl.
//
//	Client
//	 |-- nameServers  one chosen, sticky; the next one on an error; back-off
//	 |-- routes       topic -> *Route, refreshed by the loop and by Refresh
//	 |-- addresses    broker name -> addresses, from all routes seen
//	 '-- brokers      address -> session, dialled on first use
//
// A Client belongs to one user of it. It has one goroutine from Start to
// Close, and one for each dial or lookup that callers share while it lasts;
// Close joins all of them. What a caller waits for is bounded by its own ctx:
// work that is shared goes on for the others.
//
// Finding the route, the address and the session of a send costs three loads
// and map lookups, without a lock.
package client
