package remoting

import "time"

const (
	// hereRest is how many requests of a connection are served by workers before
	// one is served by who reads, at first; hereLongest is the most that it becomes.
	hereRest    = 32
	hereLongest = 1 << 16
	// hereUsual is how long a request may take that is served by who reads, and
	// hereMost by how much such requests may be late together.
	hereUsual = 50 * time.Microsecond
	hereMost  = 4 * time.Millisecond
)

// here decides whether requests of a connection are served by who reads it, one
// by one, or by workers. The former saves waking a worker, and answers to what came
// together leave together; it is for requests that wait for nothing. Those that do
// gain from each other when they are served side by side, as sends do that are
// flushed to a disk. So workers serve while a request of the connection is served,
// and when requests have taken too long, each time for longer.
type here struct {
	rest  int           // requests before the next try
	again int           // what rest is when that fails
	good  int           // requests that were served here since again has changed
	over  time.Duration // by how much they took too long
}

func newHere() here { return here{rest: hereRest, again: hereRest} }

// may is asked for every request.
func (h *here) may() bool {
	if h.rest > 0 {
		h.rest--
	}
	return h.rest == 0
}

// took notes how long a request has taken that was served here. One that has lost
// the right to read has taken overdue: a busy machine makes any request late once
// in a while.
func (h *here) took(d time.Duration) {
	if h.over = max(0, h.over+d-hereUsual); h.over > hereMost {
		h.again = min(2*h.again, hereLongest)
		h.rest, h.good, h.over = h.again, 0, 0
	} else if h.good++; h.good >= h.again {
		h.good, h.again = 0, max(h.again/2, hereRest)
	}
}

// serveHere serves a request in the place of the goroutine that reads. It is
// false when another one has gone on reading meanwhile.
func (s *session[S]) serveHere(t task) bool {
	begun := time.Now()
	t.calls, t.later = s.calls, true
	s.calls.done.Add(1)
	s.link.right.free()
	t.run()
	if !s.link.right.again() {
		s.link.flush()
		return false
	}
	s.here.took(time.Since(begun))
	s.link.unsaid++
	return true
}
