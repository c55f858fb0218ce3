package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/message"
)

// ErrSyntax is an expression that cannot be parsed.
var ErrSyntax = errors.New("filter syntax error")

// TypeTag is the expression type of tag expressions. Java: ExpressionType.TAG.
const TypeTag = "TAG"

// IsTagType reports whether an expression type means a tag expression: "TAG",
// and "" for it. Java: ExpressionType.isTagType.
func IsTagType(expressionType string) bool {
	return expressionType == "" || expressionType == TypeTag
}

const separator = "||"

// Tags is a parsed tag expression. The zero value matches every message. It
// is immutable and safe for concurrent use. Java: SubscriptionData.
type Tags struct {
	list  []string // sorted, unique; nil = all
	codes []int32  // sorted, unique
}

// ParseTags parses a tag expression. "" and "*" match every message; so does
// an expression of blanks. Otherwise it is a list of tags parted by "||";
// blanks around a tag (Java's String.trim: all up to U+0020) are dropped, empty
// tags are skipped, and "*" among others is a tag like any other. An
// expression of separators only is ErrSyntax.
// Java: FilterAPI.buildSubscriptionData.
func ParseTags(expr string) (Tags, error) {
	if expr == "" || expr == "*" {
		return Tags{}, nil
	}
	if strings.Trim(expr, "|") == "" && len(expr)%len(separator) == 0 {
		return Tags{}, fmt.Errorf("%w: tag expression %q has separators but no tag; write \"TagA || TagB\", or \"*\" for all", ErrSyntax, expr)
	}
	var t Tags
	for part := range strings.SplitSeq(expr, separator) {
		if tag := strings.TrimFunc(part, func(r rune) bool { return r <= ' ' }); tag != "" {
			t.list = append(t.list, tag)
			t.codes = append(t.codes, message.TagHash(tag))
		}
	}
	slices.Sort(t.list)
	slices.Sort(t.codes)
	t.list, t.codes = slices.Compact(t.list), slices.Compact(t.codes)
	return t, nil
}

// All reports whether every message matches.
func (t Tags) All() bool { return t.list == nil }

// List returns the tags, sorted and unique; nil when All. The slice is the
// caller's.
func (t Tags) List() []string { return slices.Clone(t.list) }

// Codes returns Java's String.hashCode of each tag, sorted and unique; nil
// when All. Two tags of equal hash give one code. The slice is the caller's.
func (t Tags) Codes() []int32 { return slices.Clone(t.codes) }

// MatchCode is the broker's test: whether a message with this tagsCode may
// have one of the tags. Only the low 32 bits count, as in Java:
// ExpressionMessageFilter.isMatchedByConsumeQueue.
func (t Tags) MatchCode(tagsCode int64) bool {
	if t.list == nil {
		return true
	}
	return slices.Contains(t.codes, int32(tagsCode))
}

// MatchTag is the client's exact test; "" is a message without a tag, which
// only All matches. Java: PullAPIWrapper.processPullResult.
func (t Tags) MatchTag(tag string) bool {
	if t.list == nil {
		return true
	}
	return tag != "" && slices.Contains(t.list, tag)
}
