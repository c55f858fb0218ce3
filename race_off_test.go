//go:build !race

package pocketmq_test

// raceDetector says that this binary was built with -race.
const raceDetector = false
