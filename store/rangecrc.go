package store

import (
	"hash/crc32"
	"math/bits"
)

const (
	rangeStep  = 4 << 10
	rangeSmall = 16 << 10 // shorter ranges are summed as they are
)

// rangeCRC computes the CRC-32C of any range of some bytes at a cost that does
// not grow with the range, so that nested lengths in hostile bytes cannot make a
// search quadratic. It knows the sums of all prefixes at a step, and takes one
// from the other: crc(AB) = shift(crc(A), len(B)) xor crc(B).
type rangeCRC struct {
	data []byte
	sums []uint32 // of data[:i*rangeStep]; nil until it is needed
	// zeros[k] is the linear map over bits that 2^k zero bytes apply to a sum.
	zeros [40]bitMatrix
}

// bitMatrix is a linear map of 32 bits: the images of the single bits.
type bitMatrix [32]uint32

func (m *bitMatrix) times(v uint32) (sum uint32) {
	for ; v != 0; v &= v - 1 {
		sum ^= m[bits.TrailingZeros32(v)]
	}
	return sum
}

func (m *bitMatrix) squared() (s bitMatrix) {
	for i, v := range m {
		s[i] = m.times(v)
	}
	return s
}

// sum is the checksum of data[from:to].
func (r *rangeCRC) sum(from, to int) uint32 {
	if to-from < rangeSmall {
		return crc32.Checksum(r.data[from:to], castagnoli)
	}
	if r.sums == nil {
		r.prepare()
	}
	shifted := r.prefix(from)
	for n, k := uint64(to-from), 0; n != 0; n, k = n>>1, k+1 {
		if n&1 != 0 {
			shifted = r.zeros[k].times(shifted)
		}
	}
	return shifted ^ r.prefix(to)
}

func (r *rangeCRC) prefix(n int) uint32 {
	i := n / rangeStep
	return crc32.Update(r.sums[i], castagnoli, r.data[i*rangeStep:n])
}

func (r *rangeCRC) prepare() {
	r.sums = make([]uint32, 1, len(r.data)/rangeStep+1)
	for n := rangeStep; n <= len(r.data); n += rangeStep {
		r.sums = append(r.sums, crc32.Update(r.sums[len(r.sums)-1], castagnoli, r.data[n-rangeStep:n]))
	}
	var bit bitMatrix // of one zero bit
	bit[0] = crc32.Castagnoli
	for i := 1; i < 32; i++ {
		bit[i] = 1 << (i - 1)
	}
	two := bit.squared()
	four := two.squared()
	r.zeros[0] = four.squared()
	for k := 1; k < len(r.zeros); k++ {
		r.zeros[k] = r.zeros[k-1].squared()
	}
}
