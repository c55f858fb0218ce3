//go:build !race

package store

// raceDetector says that this binary was built with -race.
const raceDetector = false
