package rebalance

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func TestDiff(t *testing.T) {
	q := queuesOf(6, "a")
	cases := []struct{ held, assigned, revoked, added []message.Queue }{
		{nil, nil, nil, nil},
		{q[:3], q[:3], nil, nil},
		{nil, q[:2], nil, q[:2]},
		{q[:2], nil, q[:2], nil},
		{q[:4], q[2:], q[:2], q[4:]},
		{[]message.Queue{q[3], q[1], q[3]}, []message.Queue{q[2], q[0], q[2]}, []message.Queue{q[3], q[1]}, []message.Queue{q[2], q[0]}},
	}
	for _, c := range cases {
		held, assigned := slices.Clone(c.held), slices.Clone(c.assigned)
		revoked, added := Diff(c.held, c.assigned)
		assert.Equal(t, c.revoked, revoked)
		assert.Equal(t, c.added, added)
		assert.Equal(t, held, c.held)
		assert.Equal(t, assigned, c.assigned)
	}
}

func TestDiffTurnsHeldIntoAssigned(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	all := queuesOf(8, "a", "b")
	pick := func() []message.Queue {
		var s []message.Queue
		for range rng.IntN(len(all)) {
			if q := all[rng.IntN(len(all))]; !slices.Contains(s, q) {
				s = append(s, q)
			}
		}
		return s
	}
	for range 500 {
		held, assigned := pick(), pick()
		revoked, added := Diff(held, assigned)
		got := slices.DeleteFunc(slices.Clone(held), func(q message.Queue) bool { return slices.Contains(revoked, q) })
		got = append(got, added...)
		require.ElementsMatch(t, assigned, got)
		for _, q := range added {
			require.NotContains(t, held, q)
		}
	}
}

func TestMembersSortByUTF16(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	alphabet := []rune("aZ0#@éߐ\u0800\uD7FF\uE000\uEFFF\uFF5E\uFFFD\U00010000😀\U0010FFFF")
	text := func() string {
		var b strings.Builder
		for range rng.IntN(5) {
			b.WriteRune(alphabet[rng.IntN(len(alphabet))])
		}
		return b.String()
	}
	sign := func(n int) int { return min(max(n, -1), 1) }
	for range 5_000 {
		a, b := text(), text()
		want := slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		require.Equal(t, want, sign(compareNames(a, b)), "%q %q", a, b)
	}
}
