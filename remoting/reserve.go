package remoting

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// readsPerConn is how many requests of a connection make large answers at a time.
const readsPerConn = 2

// reservation is what one request has of the bytes for answers that are being made. It
// has them from before their records are read until the backlog counts the answer. The
// methods of a nil one do nothing.
type reservation struct {
	link   *link
	making *semaphore.Weighted // of the server
	most   int64               // of making
	bytes  int64               // 0: nothing
}

// Reserve implements protocol.Answers. Nothing is read for a client whose answers
// wait to be written.
func (r *reservation) Reserve(ctx context.Context, bytes int) error {
	select {
	case r.link.reads <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	n := min(int64(bytes), r.most)
	err := r.link.awaitRoom(ctx)
	if err == nil && !r.making.TryAcquire(n) {
		err = r.making.Acquire(ctx, n)
	}
	if err == nil && r.link.reader.Err() != nil {
		r.making.Release(n)
		err = context.Canceled // as ctx is, or will be
	}
	if err != nil {
		<-r.link.reads
		return err
	}
	r.bytes = n
	return nil
}

// Release implements protocol.Answers.
func (r *reservation) Release() {
	if r != nil && r.bytes > 0 {
		r.making.Release(r.bytes)
		r.bytes = 0
		<-r.link.reads
	}
}
