package remoting

import (
	"context"
	"strconv"
	"time"

	"github.com/pocketmq/pocketmq/internal/deadline"
)

// Fields of requests between members of this library; see the package's
// documentation. Servers of RocketMQ pass over what they do not know.
const (
	fieldNode = "pmq.node"
	fieldLeft = "pmq.left"
)

// maxNode is how long a node's name may be; a longer one is none.
const maxNode = 255

// putLeft says how much longer somebody waits for the answer, in milliseconds,
// rounded up: a server that gives up must not be the first to do so.
func (f *Frame) putLeft(left time.Duration) {
	ms := int64((left + time.Millisecond - 1) / time.Millisecond)
	f.Ext = append(f.Ext, Field{fieldLeft, strconv.FormatInt(max(ms, 1), 10)})
}

// left is what putLeft has said. It is false when nothing was said.
func (f *Frame) left() (time.Duration, bool) {
	text, ok := f.Ext.Get(fieldLeft)
	if !ok {
		return 0, false
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 {
		return 0, false
	}
	return duration(ms), true
}

// node is the name of the node that sends a request, "" for one that says none.
func (f *Frame) node() string {
	name, _ := f.Ext.Get(fieldNode)
	if len(name) > maxNode {
		return ""
	}
	return name
}

// until is when the caller, as it says, has given up; zero when it says nothing.
func (f *Frame) until() time.Time {
	if left, ok := f.left(); ok {
		return time.Now().Add(left)
	}
	return time.Time{}
}

// serveUntil is row.serve for f with a ctx that ends at until, unless that is
// zero. What has not begun by then is not served at all.
func serveUntil[S any](ctx context.Context, until time.Time, row row[S], srv S, at site, f *Frame) *Frame {
	if until.IsZero() {
		return serveAlive(ctx, row, srv, at, f)
	}
	var own deadline.Context
	own.Set(ctx, until)
	defer own.End()
	return serveAlive(&own, row, srv, at, f)
}

// serveAlive is row.serve unless ctx has ended.
func serveAlive[S any](ctx context.Context, row row[S], srv S, at site, f *Frame) *Frame {
	if ctx.Err() != nil {
		return nil
	}
	return row.serve(ctx, srv, at, f)
}
