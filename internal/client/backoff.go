package client

import "time"

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Backoff tells when somebody who failed may be asked again: 100 ms after the
// first failure, doubling to 5 s with each one in a row. The zero value is one
// that never failed; assigning it notes a success. It has no lock.
type Backoff struct {
	Until time.Time     // not to be asked before
	last  time.Duration // 0 = no failure since the last success
}

// Failed notes a failure at now.
func (b *Backoff) Failed(now time.Time) {
	b.last = min(max(2*b.last, firstBackoff), maxBackoff)
	b.Until = now.Add(b.last)
}
