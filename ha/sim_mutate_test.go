//go:build mutate

package ha

func without1(g guard) guards { return guards{g} }

const mutating = true
