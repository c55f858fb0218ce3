package remoting

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Fields of a frame: at most, and of most.
const (
	maxFields   = 4096
	usualFields = 16
)

// appendJSON appends the header as JSON, with the members in the order of
// Java's. Java: RemotingSerializable.encode.
func (f *Frame) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(f.Code), 10)
	if len(f.Ext) > 0 {
		dst = append(dst, `,"extFields":{`...)
		for i, x := range f.Ext {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendQuoted(dst, x.Name)
			dst = append(dst, ':')
			dst = appendQuoted(dst, x.Value)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `,"flag":`...)
	dst = strconv.AppendInt(dst, int64(f.Flag), 10)
	if name, ok := languageName(f.Language); ok {
		dst = append(dst, `,"language":"`...)
		dst = append(dst, name...)
		dst = append(dst, '"')
	} else { // absent would be Java
		dst = append(dst, `,"language":null`...)
	}
	dst = append(dst, `,"opaque":`...)
	dst = strconv.AppendInt(dst, int64(f.Opaque), 10)
	if f.Remark != "" {
		dst = append(dst, `,"remark":`...)
		dst = appendQuoted(dst, f.Remark)
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = strconv.AppendInt(dst, int64(f.Version), 10)
	return append(dst, '}')
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends a JSON text. What is not UTF-8 becomes U+FFFD.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		if b >= ' ' && b != '"' && b != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// parseJSON reads a header as JSON; most of its texts are parts of text.
// Unknown members are passed over, and what is absent is 0 or empty; the
// language is then Java, as there.
//
// Differs: an absent opaque is 0; Java takes the next number of its own.
func (f *Frame) parseJSON(text string) error {
	c := scanner{s: text}
	f.Language = LanguageJava
	err := c.each('{', '}', func() error {
		name, err := c.name()
		if err != nil {
			return err
		}
		return f.member(&c, name)
	})
	if err == nil && (c.peek() != 0 || c.i < len(c.s)) {
		err = c.fail("something behind the header")
	}
	return err
}

// member reads the value of one member of a header.
func (f *Frame) member(c *scanner, name string) (err error) {
	switch name {
	case "code":
		err = c.int32(&f.Code)
	case "opaque":
		err = c.int32(&f.Opaque)
	case "flag":
		err = c.int32(&f.Flag)
	case "version":
		err = c.int32(&f.Version)
	case "remark":
		f.Remark, _, err = c.text()
	case "language":
		f.Language, err = c.language()
	case "extFields":
		f.Ext, err = c.fields()
	default:
		for _, known := range []string{"code", "opaque", "flag", "version", "remark", "language", "extFields"} {
			if strings.EqualFold(name, known) {
				return f.member(c, known)
			}
		}
		err = c.skip()
	}
	return err
}

// int32 reads a number; null leaves what is there.
func (c *scanner) int32(to *int32) error {
	n, ok, err := c.integer()
	if err != nil || !ok {
		return err
	}
	if n != int64(int32(n)) {
		return c.fail("a number beyond 32 bits")
	}
	*to = int32(n)
	return nil
}

// text is scalar with "" for null.
func (c *scanner) text() (text string, ok bool, err error) {
	if text, ok, err = c.scalar(); !ok {
		text = ""
	}
	return text, ok, err
}

// language reads a language by name or number.
func (c *scanner) language() (Language, error) {
	quoted := c.peek() == '"' || c.peek() == '\''
	text, ok, err := c.scalar()
	if err != nil || !ok {
		return LanguageUnknown, err
	}
	if !quoted {
		if n, isNumber := parseInteger(text); isNumber {
			return languageAt(n), nil
		}
	}
	return languageOf(text), nil
}

// fields reads an object of texts. Members that are null are left out.
func (c *scanner) fields() (fields Fields, err error) {
	if c.peek() != '{' {
		if _, ok, err := c.scalar(); err != nil || ok {
			return nil, c.fail("extFields is no object")
		}
		return nil, nil
	}
	err = c.each('{', '}', func() error {
		name, err := c.name()
		if err != nil {
			return err
		}
		value, ok, err := c.scalar()
		if err == nil && ok {
			if len(fields) == maxFields {
				return c.fail("too many fields")
			}
			if fields == nil {
				fields = make(Fields, 0, usualFields)
			}
			fields = append(fields, Field{name, value})
		}
		return err
	})
	return fields, err
}
