//go:build mutate

package ha

// guards says which guard is taken away.
type guards struct{ gone guard }

func (g guards) lacks(one guard) bool { return one == g.gone }
