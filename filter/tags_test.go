package filter

import (
	"slices"
	"strings"
	"testing"

	"github.com/pocketmq/pocketmq/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheZeroValueMatchesEverything(t *testing.T) {
	var all Tags
	assert.True(t, all.All())
	assert.True(t, all.MatchCode(0))
	assert.True(t, all.MatchCode(-1))
	assert.True(t, all.MatchTag(""))
	assert.True(t, all.MatchTag("a"))
	assert.Nil(t, all.List())
	assert.Nil(t, all.Codes())
}

func TestAForeignTagOfEqualHashPassesTheBrokerOnly(t *testing.T) {
	tags, err := ParseTags("Aa")
	require.NoError(t, err)
	assert.True(t, tags.MatchCode(int64(message.TagHash("BB"))))
	assert.False(t, tags.MatchTag("BB"))
	assert.True(t, tags.MatchTag("Aa"))
}

func TestOnlyTheLow32BitsOfACodeCount(t *testing.T) {
	tags, err := ParseTags("polygenelubricants") // hashes to the smallest int32
	require.NoError(t, err)
	assert.True(t, tags.MatchCode(-1<<31))
	assert.True(t, tags.MatchCode(1<<31))
	assert.False(t, tags.MatchCode(0))
}

func TestAMessageWithoutATagMatchesNoList(t *testing.T) {
	tags, err := ParseTags("a || b")
	require.NoError(t, err)
	assert.False(t, tags.MatchTag(""))
	assert.False(t, tags.MatchCode(0))
}

func TestWhatTagsReturnIsTheCallers(t *testing.T) {
	tags, err := ParseTags("b || a")
	require.NoError(t, err)
	tags.List()[0], tags.Codes()[0] = "x", 7
	assert.Equal(t, []string{"a", "b"}, tags.List())
	assert.Equal(t, []int32{97, 98}, tags.Codes())
}

func TestASyntaxErrorNamesTheExpressionAndTheRemedy(t *testing.T) {
	_, err := ParseTags("||")
	assert.EqualError(t, err, `filter syntax error: tag expression "||" has separators but no tag; write "TagA || TagB", or "*" for all`)
}

func TestMatchingDoesNotAllocate(t *testing.T) {
	tags, err := ParseTags("a || b || c")
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		tags.MatchCode(98)
		tags.MatchTag("b")
	}))
}

func FuzzParseTags(f *testing.F) {
	g := loadGolden(f)
	for _, row := range rows[struct{ SubExpression string }](f, g, "build_subscription_data") {
		f.Add(row.SubExpression)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		tags, err := ParseTags(expr)
		if err != nil {
			require.ErrorIs(t, err, ErrSyntax)
			return
		}
		list := tags.List()
		require.True(t, slices.IsSorted(list))
		require.LessOrEqual(t, len(tags.Codes()), len(list))
		require.Equal(t, len(list) == 0, tags.All())
		for _, tag := range list {
			require.True(t, tags.MatchTag(tag))
			require.True(t, tags.MatchCode(int64(message.TagHash(tag))))
		}
		again, err := ParseTags(strings.Join(list, " || "))
		require.NoError(t, err)
		if !slices.Equal(list, []string{"*"}) { // " *" is the tag, "*" is everything
			require.Equal(t, tags, again)
		}
	})
}
