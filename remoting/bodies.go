package remoting

import (
	"bytes"
	"context"

	"golang.org/x/sync/semaphore"
)

const (
	// mostMade bounds what a body becomes when it is read: it has no more than
	// maxValues values.
	mostMade = 128 << 20
	// smallMade is up to what it is not counted.
	smallMade = 16 << 10
	// madeValue is the most that becomes of a value that takes two bytes in a body, a
	// subscription without members say, in a list that has grown.
	madeValue = 192
)

// bodies bounds what servers make of the bodies of requests: how many large ones are
// read at a time, and the bytes of what has been read and is held by a handler.
type bodies struct {
	reading chan struct{} // a place for each large body that is being read
	made    *semaphore.Weighted
	most    int64
}

func newBodies(reading int, most int64) *bodies {
	return &bodies{reading: make(chan struct{}, reading), made: semaphore.NewWeighted(most), most: most}
}

// reserve waits until there is room for what becomes of the body of a request of a
// kind, or ctx ends. What it returns is to be given to release when nobody holds it
// any more. Whoever waits here has no place to read, so that who has room may wait
// for one. Nothing is done by a nil one.
func (b *bodies) reserve(ctx context.Context, kind bodyKind, body []byte) (int64, error) {
	if b == nil || kind == bodyBytes || len(body) == 0 {
		return 0, nil
	}
	size := madeOf(kind, body)
	if size <= smallMade {
		return 0, nil
	}
	size = min(size, b.most)
	if err := b.made.Acquire(ctx, size); err != nil {
		return 0, ctx.Err()
	}
	return size, nil
}

func (b *bodies) release(size int64) {
	if size > 0 {
		b.made.Release(size)
	}
}

// madeOf is at most how many bytes a body becomes. Before each value stands a comma or
// what opens a list or an object; a table may be compressed, and hide them.
func madeOf(kind bodyKind, body []byte) int64 {
	if first := bytes.TrimLeft(body, " \t\r\n"); kind == bodyTable && (len(first) == 0 || first[0] != '{' && first[0] != '[') {
		return mostMade
	}
	values := bytes.Count(body, []byte{','}) + bytes.Count(body, []byte{'{'}) + bytes.Count(body, []byte{'['})
	return min(mostMade, int64(values)*madeValue+2*int64(len(body)))
}
