// Package ha replicates a log from its master to slaves, and elects a master when
// there is none. It knows no messages and no files: a log is positions, epochs and
// records of bytes behind a small interface, a network is connections.
//
// # Terms
//
// A position counts the records of a log from 1, without gaps; the end of a log is
// its last position, 0 when it never had one. An epoch is the time of one master:
// each election begins the next, and every record belongs to the one in which it was
// written. Where two logs have parted is told by their histories of epochs, never by
// positions alone (see [Diverge]).
//
// Decisions are pure functions and state machines without clocks, goroutines and
// connections; what performs them is thin.
package ha
