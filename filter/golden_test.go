package filter

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goldenFile holds what the reference implementation answered. Sections that
// start with go_ are about the official Go client and are not read.
type goldenFile map[string]json.RawMessage

func loadGolden(t testing.TB) goldenFile {
	t.Helper()
	text, err := os.ReadFile("testdata/subscription.json")
	require.NoError(t, err)
	var g goldenFile
	require.NoError(t, json.Unmarshal(text, &g))
	return g
}

func rows[T any](t testing.TB, g goldenFile, section string) []T {
	t.Helper()
	var list []T
	require.NoError(t, json.Unmarshal(g[section], &list), section)
	require.NotEmpty(t, list, section)
	return list
}

type tally struct {
	passed  int
	skipped []string
}

func (c *tally) skip(format string, args ...any) {
	c.skipped = append(c.skipped, fmt.Sprintf(format, args...))
}

var goldenSections = []struct {
	name string
	run  func(*testing.T, goldenFile, *tally)
}{
	{"build_subscription_data", goldenBuildSubscriptionData},
	{"build", goldenBuild},
	{"is_tag_type", goldenIsTagType},
	{"tag_match", goldenTagMatch},
}

func TestGoldenRows(t *testing.T) {
	g := loadGolden(t)
	var table strings.Builder
	known := map[string]bool{"reference": true, "notes": true}
	for _, s := range goldenSections {
		known[s.name] = true
		var c tally
		total := len(rows[json.RawMessage](t, g, s.name))
		if !t.Run(s.name, func(t *testing.T) { s.run(t, g, &c) }) {
			continue
		}
		assert.Equal(t, total, c.passed+len(c.skipped), "section %s: every row is passed or skipped", s.name)
		fmt.Fprintf(&table, "\n%-24s %3d rows %3d passed %2d skipped", s.name, total, c.passed, len(c.skipped))
		for _, why := range c.skipped {
			fmt.Fprintf(&table, "\n    skipped: %s", why)
		}
	}
	for name := range g {
		assert.True(t, known[name] || strings.HasPrefix(name, "go_"), "section %s has no test", name)
	}
	t.Log(table.String())
}

// subscription is Java's SubscriptionData, or why there is none.
type subscription struct {
	Error   string
	TagsSet []string
	CodeSet []int32
}

func compare(t *testing.T, expr string, want subscription) {
	t.Helper()
	tags, err := ParseTags(expr)
	if want.Error != "" {
		assert.ErrorIs(t, err, ErrSyntax, "%q", expr)
		return
	}
	require.NoError(t, err, "%q", expr)
	assert.ElementsMatch(t, want.TagsSet, tags.List(), "%q", expr)
	assert.True(t, slices.IsSorted(tags.List()), "%q", expr)
	assert.Equal(t, want.CodeSet, append([]int32{}, tags.Codes()...), "%q", expr)
	assert.Equal(t, len(want.TagsSet) == 0, tags.All(), "%q", expr)
}

func goldenBuildSubscriptionData(t *testing.T, g goldenFile, c *tally) {
	type buildRow struct {
		SubExpression string // null is ""
		Result        subscription
	}
	for _, row := range rows[buildRow](t, g, "build_subscription_data") {
		compare(t, row.SubExpression, row.Result)
		c.passed++
	}
}

func goldenBuild(t *testing.T, g goldenFile, c *tally) {
	type buildRow struct {
		SubExpression string // null is ""
		Type          string // null is ""
	}
	raw := rows[map[string]json.RawMessage](t, g, "build")
	for i, row := range rows[buildRow](t, g, "build") {
		if !IsTagType(row.Type) {
			c.skip("%q of type %q: no tag expression", row.SubExpression, row.Type)
			continue
		}
		// FilterAPI.build parses no tags when the type is "" instead of null;
		// buildSubscriptionData and the broker take both for TAG.
		var want subscription
		require.NoError(t, json.Unmarshal(raw[i]["buildSubscriptionData(topic, subString, expressionType)"], &want))
		compare(t, row.SubExpression, want)
		c.passed++
	}
}

func goldenIsTagType(t *testing.T, g goldenFile, c *tally) {
	type typeRow struct {
		Type      string // null is ""
		IsTagType bool
	}
	for _, row := range rows[typeRow](t, g, "is_tag_type") {
		assert.Equal(t, row.IsTagType, IsTagType(row.Type), "%q", row.Type)
		c.passed++
	}
}

func goldenTagMatch(t *testing.T, g goldenFile, c *tally) {
	type matchRow struct {
		SubExpression string
		MessageTag    string // null is ""
		TagsCode      int64
		Broker        bool `json:"broker (DefaultMessageFilter.isMatchedByConsumeQueue)"`
		Client        bool `json:"client (PullAPIWrapper.processPullResult keeps it)"`
	}
	someTrue, someFalse := false, false
	for _, row := range rows[matchRow](t, g, "tag_match") {
		tags, err := ParseTags(row.SubExpression)
		require.NoError(t, err)
		assert.Equal(t, row.Broker, tags.MatchCode(row.TagsCode), "%q on code %d", row.SubExpression, row.TagsCode)
		assert.Equal(t, row.Client, tags.MatchTag(row.MessageTag), "%q on %q", row.SubExpression, row.MessageTag)
		someTrue, someFalse = someTrue || row.Client, someFalse || !row.Client
		c.passed++
	}
	assert.True(t, someTrue && someFalse, "the rows' field names were read")
}
