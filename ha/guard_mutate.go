//go:build mutate

package ha

// guards says which guards are taken away: a bit for each.
type guards struct{ gone uint64 }

func (g guards) lacks(one guard) bool { return g.gone>>one&1 == 1 }
