//go:build !mutate

package ha

func guardsWithout(guard) guards { return guards{} }

const mutating = false
