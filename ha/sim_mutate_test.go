//go:build mutate

package ha

func guardsWithout(g guard) guards { return guards{1 << g} }

const mutating = true
