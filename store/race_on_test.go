//go:build race

package store

// raceDetector says that this binary was built with -race: everything takes ten
// times as long.
const raceDetector = true
