// Package protocol holds the typed contract between the members of a
// cluster: requests and responses, the services that answer them, the
// Transport that carries them, the codes, and the errors.
//
// A service method is a plain Go call, (ctx, *Request) (*Response, error). In
// memory it reaches the server directly; over TCP the same method becomes one
// RocketMQ command. Both behave the same:
//
//   - the callee keeps nothing of a request after it has returned;
//   - byte slices in a response are read-only for both sides;
//   - an answer that is not a success is an [*Error] with the server's code,
//     remark and name; a call without an answer is ErrUnreachable (nothing
//     left) or ErrUnknownOutcome (the request may have been served);
//   - the deadline of ctx is the timeout of the call.
//
// Times are time.Time and time.Duration here; milliseconds exist only on the
// wire and in stored records.
package protocol
