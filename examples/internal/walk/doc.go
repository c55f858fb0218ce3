// Package walk is what the walkthroughs share: their flags ([Run]), a clock that
// runs faster than the one on the wall ([Clock]), a story told step by step
// ([Story]), what has happened in the cluster ([Log]), and a chart of it
// ([Chart]).
//
// The examples that use it are about RocketMQ; this package is not, so a reader
// can do without it.
package walk
