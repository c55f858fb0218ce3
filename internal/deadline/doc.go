// Package deadline has contexts that end at a given time without the price of
// context.WithDeadline: no timer is made before somebody waits.
package deadline
