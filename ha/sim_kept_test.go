//go:build !mutate

package ha

func without1(guard) guards { return guards{} }

const mutating = false
