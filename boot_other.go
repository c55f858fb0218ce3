//go:build !linux

package pocketmq

// bootID names the time since the machine began to run. Here nothing does: a broker
// that was killed counts as one that has lost power.
func bootID() string { return "" }
