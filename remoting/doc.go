// Package remoting is RocketMQ's remoting protocol: frames, their two forms of
// header, and the bodies of requests and responses.
//
// A frame is a length, a header and a body. The header is JSON or RocketMQ's own
// binary form, each frame for itself; it carries a code, an id that pairs
// requests with responses (opaque), and a list of named texts (extFields).
//
// Each method of a service is one command: a value that server and client
// share, with the codes and both directions of request and response.
//
// What comes from the network is checked before anything is allocated for it. A
// frame that cannot be understood is an error, and whoever reads it closes the
// connection, as RocketMQ's servers do.
//
// # Fields of our own
//
// Members of this library tell each other in requests what RocketMQ has no field
// for. RocketMQ's servers pass over fields that they do not know, and ours over
// those that are absent:
//
//	pmq.node  the caller's node name, a client id or a broker's name; in the first
//	          request of a connection only
//	pmq.left  how many milliseconds longer the caller waits for the answer; in
//	          requests whose ctx has a deadline. The handler's ctx ends then
//
// A server says to whoever has named itself that it knows the following command,
// oneway, with code 31001. From then on either side says with code 31002, oneway,
// that it does not wait for an answer any more, and the handler's ctx ends:
//
//	pmq.opaque  the id of the request that nobody waits for
//
// So servers and clients of RocketMQ get neither.
package remoting
