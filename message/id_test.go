package message

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpperHexIsThatOfFmt(t *testing.T) {
	for n := range 256 {
		var b [8]byte
		for i := range b {
			b[i] = byte(n + i*37)
		}
		for _, size := range []int{2, 4, 6, 8} {
			assert.Equal(t, fmt.Sprintf("%X", b[:size]), string(appendUpperHex(nil, b[:size])))
		}
	}
}

func TestOffsetMsgIDsComeBack(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		position := int64(rnd.Uint64())
		port := uint16(rnd.Uint32())
		addr := netip.AddrFrom4([4]byte{byte(rnd.Uint32()), 2, 3, 4})
		if rnd.IntN(2) == 0 {
			addr = netip.AddrFrom16([16]byte{0x20, 1, byte(rnd.Uint32()), 15: byte(rnd.Uint32())})
		}
		host := netip.AddrPortFrom(addr, port)
		gotHost, gotPosition, err := ParseOffsetMsgID(OffsetMsgID(host, position))
		require.NoError(t, err, "seed %d", seed)
		assert.Equal(t, host, gotHost, "seed %d", seed)
		assert.Equal(t, position, gotPosition, "seed %d", seed)
	}
}

func TestABadOffsetMsgIDIsNamed(t *testing.T) {
	for _, c := range []struct{ id, want string }{
		{"", `bad message id: "" has 0 characters, an offset message id has 32, or 56 with an IPv6 host`},
		{strings.Repeat("a", 1000), `bad message id: "` + strings.Repeat("a", 64) + `" has 1000 characters, an offset message id has 32, or 56 with an IPv6 host`},
		{"ZZA8000900002A9F0000000000000400", `bad message id: "ZZA8000900002A9F0000000000000400" is not all hex digits`},
		{"C0A8000900012A9F0000000000000400", `bad message id: "C0A8000900012A9F0000000000000400" holds port 76447`},
	} {
		_, _, err := ParseOffsetMsgID(c.id)
		assert.EqualError(t, err, c.want)
		assert.ErrorIs(t, err, ErrBadID)
	}
}
