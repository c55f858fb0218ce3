package remoting

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWholeNumbersAreExactHoweverTheyAreWritten(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "-0.0": 0, "0e5": 0, "7.0": 7, "+7": 7, "-7.00": -7, "007.0": 7, "1e3": 1000, "1E+3": 1000, "1.5e1": 15, "1500e-2": 15, "5.": 5, ".5e1": 5,
		"9007199254740993.0":           1<<53 + 1, // between two floats
		"9.007199254740993e15":         1<<53 + 1,
		"9223372036854775807.0":        math.MaxInt64,
		"-9223372036854775808.0":       math.MinInt64,
		"922337203685477580700e-2":     math.MaxInt64,
		"0.000000000000000001e18":      1,
		"1000000000000000000000000e-6": 1e18,
	} {
		n, ok := parseInteger(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, n, text)
	}
	for _, text := range []string{
		"", "-", "+", ".", "e", "e5", "1e", "1e1.5", "--1", "1-", "1.2.3", "0x10", "0x1p4", "1_000", "inf", "NaN", "true", " 1", "1,000",
		"1.5", "15e-1", "0.1", // fractions
		"9223372036854775808", "9223372036854775808.0", "-9223372036854775809", "1e19", "1e400", "1e99999999999999999999", "1e9223372036854775807", "1e-9223372036854775808", // beyond 64 bits
	} {
		_, ok := parseInteger(text)
		assert.False(t, ok, text)
	}
}

func FuzzInteger(f *testing.F) {
	f.Add(int64(math.MaxInt64), int16(-3), uint8(2))
	f.Add(int64(1<<53+1), int16(0), uint8(1))
	f.Fuzz(func(t *testing.T, mantissa int64, exponent int16, fraction uint8) {
		exponent %= 400
		text := fmt.Sprintf("%d.%de%d", mantissa, fraction, exponent)
		exact, ok := new(big.Rat).SetString(text)
		require.True(t, ok, text)
		n, ok := parseInteger(text)
		assert.Equal(t, exact.IsInt() && exact.Num().IsInt64(), ok, text)
		if ok {
			assert.Equal(t, exact.Num().Int64(), n, text)
		}
	})
}
