package remoting

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner reads JSON as leniently as the fastjson of RocketMQ's servers does:
// names without quotes or in single ones, objects as names, and a comma before
// a closing bracket are all legal. Texts that need no unescaping are parts of s.
type scanner struct {
	s     string
	i     int
	depth int
	in    error // matched by its errors; nil is ErrBadFrame
}

// maxDepth bounds how deep values may lie in each other.
const maxDepth = 64

func (c *scanner) fail(what string) error {
	in := c.in
	if in == nil {
		in = ErrBadFrame
	}
	return fmt.Errorf("%w: JSON: %s at byte %d", in, what, c.i)
}

// peek skips blanks and returns the next byte; 0 at the end.
func (c *scanner) peek() byte {
	for c.i < len(c.s) {
		switch b := c.s[c.i]; b {
		case ' ', '\t', '\r', '\n':
			c.i++
		default:
			return b
		}
	}
	return 0
}

// accept takes b if it comes next.
func (c *scanner) accept(b byte) bool {
	if c.peek() != b || c.i >= len(c.s) {
		return false
	}
	c.i++
	return true
}

// each calls f at the start of every item between brackets; open has been
// looked at and comes next. f has to consume the item.
func (c *scanner) each(open, shut byte, f func() error) error {
	if !c.accept(open) {
		return c.fail("no " + string(rune(open)))
	}
	if c.depth++; c.depth > maxDepth {
		return c.fail("values lie too deep in each other")
	}
	defer func() { c.depth-- }()
	for {
		for c.accept(',') { // also before the first and after the last
		}
		if c.accept(shut) {
			return nil
		}
		if c.i >= len(c.s) {
			return c.fail("no " + string(rune(shut)))
		}
		if err := f(); err != nil {
			return err
		}
		if next := c.peek(); next != ',' && next != shut {
			return c.fail("neither , nor " + string(rune(shut)))
		}
	}
}

// name reads a name that is a text, and the colon behind it.
func (c *scanner) name() (string, error) {
	var name string
	var err error
	switch c.peek() {
	case '"', '\'':
		name, err = c.quoted()
	default:
		name, err = c.bare()
	}
	if err == nil && !c.accept(':') {
		err = c.fail("no colon behind a name")
	}
	return name, err
}

// bare reads a text without quotes: a number, true, false, null, or a name.
func (c *scanner) bare() (string, error) {
	c.peek()
	start := c.i
	for c.i < len(c.s) && c.s[c.i] > ' ' && strings.IndexByte(`,:{}[]"'`, c.s[c.i]) < 0 {
		c.i++
	}
	if c.i == start {
		return "", c.fail("no value")
	}
	return c.s[start:c.i], nil
}

// quoted reads a text in quotes.
func (c *scanner) quoted() (string, error) {
	quote := c.peek()
	c.i++
	start := c.i
	for c.i < len(c.s) {
		switch c.s[c.i] {
		case quote:
			c.i++
			return c.s[start : c.i-1], nil
		case '\\':
			return c.escaped(start, quote)
		default:
			c.i++
		}
	}
	return "", c.fail("a text without an end")
}

// escaped goes on where a text that begins at start has its first backslash.
func (c *scanner) escaped(start int, quote byte) (string, error) {
	var b strings.Builder
	for c.i < len(c.s) {
		switch ch := c.s[c.i]; ch {
		case quote:
			b.WriteString(c.s[start:c.i])
			c.i++
			return b.String(), nil
		case '\\':
			b.WriteString(c.s[start:c.i])
			if err := c.escape(&b); err != nil {
				return "", err
			}
			start = c.i
		default:
			c.i++
		}
	}
	return "", c.fail("a text without an end")
}

// escape reads what begins with a backslash.
func (c *scanner) escape(b *strings.Builder) error {
	if c.i+1 >= len(c.s) {
		return c.fail("a text without an end")
	}
	ch := c.s[c.i+1]
	c.i += 2
	switch ch {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'b':
		b.WriteByte('\b')
	case 'f':
		b.WriteByte('\f')
	case 'u':
		r, err := c.hex4()
		if err != nil {
			return err
		}
		if r >= 0xD800 && r < 0xDC00 && strings.HasPrefix(c.s[c.i:], `\u`) {
			at := c.i
			c.i += 2
			low, err := c.hex4()
			if err != nil {
				return err
			}
			if low >= 0xDC00 && low < 0xE000 {
				r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
			} else {
				c.i = at
			}
		}
		if r >= 0xD800 && r < 0xE000 {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	default: // " \ / and what fastjson takes as it is
		b.WriteByte(ch)
	}
	return nil
}

func (c *scanner) hex4() (rune, error) {
	if c.i+4 > len(c.s) {
		return 0, c.fail("a text without an end")
	}
	n, err := strconv.ParseUint(c.s[c.i:c.i+4], 16, 16)
	if err != nil {
		return 0, c.fail(`no four hex digits behind \u`)
	}
	c.i += 4
	return rune(n), nil
}

// scalar reads a text, a number, true or false as a text; ok is false for null.
// A list or an object is returned as it is written.
func (c *scanner) scalar() (text string, ok bool, err error) {
	switch c.peek() {
	case '"', '\'':
		text, err = c.quoted()
		return text, true, err
	case '{', '[':
		start := c.i
		err = c.skip()
		return c.s[start:c.i], true, err
	}
	text, err = c.bare()
	return text, text != "null", err
}

// integer reads a number, which may stand in quotes or have a fraction of 0.
func (c *scanner) integer() (n int64, ok bool, err error) {
	text, ok, err := c.scalar()
	if err != nil || !ok || text == "" {
		return 0, false, err
	}
	n, ok = parseInteger(text)
	if !ok {
		return 0, false, c.fail("no whole number")
	}
	return n, true, nil
}

// parseInteger reads a whole number of 64 bits, exactly. 1E3, -0 and 7.0 are such,
// as they are to fastjson where a long is meant. Differs: of what is no long
// fastjson drops the fraction, and the bits beyond 64; here it is no number.
func parseInteger(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return n, true
	}
	var exponent int64
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		if exponent, err = strconv.ParseInt(text[at+1:], 10, 32); err != nil {
			return 0, false
		}
		text = text[:at]
	}
	sign := ""
	if text != "" && (text[0] == '-' || text[0] == '+') {
		sign, text = text[:1], text[1:]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return 0, true
	}
	zeros := exponent + int64(len(whole)-len(significant))
	if significant = strings.TrimLeft(significant, "0"); zeros < 0 || int64(len(significant))+zeros > maxDigits {
		return 0, false
	}
	n, err = strconv.ParseInt(sign+significant+strings.Repeat("0", int(zeros)), 10, 64)
	return n, err == nil
}

// maxDigits are the digits of the largest numbers of 64 bits.
const maxDigits = 19

// skip passes over a value of any kind.
func (c *scanner) skip() error {
	switch c.peek() {
	case '"', '\'':
		_, err := c.quoted()
		return err
	case '[':
		return c.each('[', ']', c.skip)
	case '{':
		return c.each('{', '}', func() error {
			if err := c.skip(); err != nil {
				return err
			}
			if !c.accept(':') {
				return c.fail("no colon behind a name")
			}
			return c.skip()
		})
	}
	_, err := c.bare()
	return err
}
