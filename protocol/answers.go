package protocol

import "context"

// Answers bounds the bytes of answers that a server makes at a time. A transport
// whose clients may be slow readers gives one to each request whose answer may be
// large. Used by one goroutine at a time.
type Answers interface {
	// Reserve waits, at most until ctx ends, until an answer of so many bytes may be
	// made. It is for one who has nothing reserved.
	Reserve(ctx context.Context, bytes int) error
	// Release gives back what is reserved, if anything is.
	Release()
}

type answersKey struct{}

// WithAnswers returns ctx for a request whose answer a bounds. When the request has
// been served the transport releases what is left.
func WithAnswers(ctx context.Context, a Answers) context.Context {
	return context.WithValue(ctx, answersKey{}, a)
}

// ReserveAnswer is called by a server before it reads what may be large and goes into
// the answer to the request of ctx: at most so many bytes. It blocks, and fails with
// ctx's error when ctx ends. Where nothing bounds answers it does nothing.
func ReserveAnswer(ctx context.Context, bytes int) error {
	if a, ok := ctx.Value(answersKey{}).(Answers); ok {
		return a.Reserve(ctx, bytes)
	}
	return nil
}

// ReleaseAnswer gives back what ReserveAnswer has taken: nothing large was found, and
// the server may wait before it looks again.
func ReleaseAnswer(ctx context.Context) {
	if a, ok := ctx.Value(answersKey{}).(Answers); ok {
		a.Release()
	}
}
