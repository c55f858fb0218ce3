package remoting

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// errBadHeader is matched by the errors of fields, and of bodies that are bytes, which
// a command cannot do without. A server answers them with SystemError, as RocketMQ's
// do.
var errBadHeader = errors.New("bad header")

// errBadBody is errBadHeader for bodies that are text.
var errBadBody = errors.New("bad body")

// header reads the fields of a command. The first error counts; what is read
// after it is zero.
//
// Differs: a number that is none is an error everywhere; RocketMQ takes it for
// absent in some commands.
type header struct {
	fields Fields
	err    error

	// at has 1 + the place in fields of the last one whose name is a letter, if
	// letters is set: a send has many of these.
	letters bool
	at      [26]uint16
}

// get is fields.Get.
func (h *header) get(name string) (value string, ok bool) {
	if !h.letters || len(name) != 1 || name[0]-'a' >= byte(len(h.at)) {
		return h.fields.Get(name)
	}
	i := h.at[name[0]-'a']
	if i == 0 {
		return "", false
	}
	return h.fields[i-1].Value, true
}

// lettered is header for a command whose fields have letters as names.
func (f *Frame) lettered() (h header) {
	h.fields, h.letters = f.Ext, true
	for i, x := range f.Ext {
		if len(x.Name) == 1 && x.Name[0]-'a' < byte(len(h.at)) {
			h.at[x.Name[0]-'a'] = uint16(i + 1)
		}
	}
	return h
}

func (h *header) fail(format string, args ...any) {
	if h.err == nil {
		h.err = fmt.Errorf("%w: %s", errBadHeader, fmt.Sprintf(format, args...))
	}
}

// text returns a field that may be absent, which is the same as empty.
func (h *header) text(name string) string {
	value, _ := h.get(name)
	return value
}

// must returns a field that has to be there. An empty one is there: whoever
// serves the command knows better what to say about a blank name.
func (h *header) must(name string) string {
	value, ok := h.get(name)
	if !ok {
		h.fail("the field %s is missing", name)
	}
	return value
}

// long returns a number that has to be there.
func (h *header) long(name string) int64 { return h.parse(name, h.must(name), 64) }

// int is long for 32 bits.
func (h *header) int(name string) int { return int(h.parse(name, h.must(name), 32)) }

// longOr returns a number that may be absent.
func (h *header) longOr(name string, def int64) int64 {
	if text := h.text(name); text != "" {
		return h.parse(name, text, 64)
	}
	return def
}

// intOr is longOr for 32 bits.
func (h *header) intOr(name string, def int) int {
	if text := h.text(name); text != "" {
		return int(h.parse(name, text, 32))
	}
	return def
}

func (h *header) parse(name, text string, bits int) int64 {
	if h.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		h.fail("the field %s is %q, no number of %d bits", name, clip(text), bits)
		return 0
	}
	return n
}

// bool returns true for true in any case, false for everything else.
func (h *header) bool(name string) bool { return strings.EqualFold(h.text(name), "true") }

// boolOr is bool with a default for what is absent.
func (h *header) boolOr(name string, def bool) bool {
	if h.text(name) == "" {
		return def
	}
	return h.bool(name)
}

// clip shortens a text of a stranger for an error.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

func (f *Frame) put(name, value string)       { f.Ext = append(f.Ext, Field{name, value}) }
func (f *Frame) putLong(name string, n int64) { f.put(name, strconv.FormatInt(n, 10)) }
func (f *Frame) putInt(name string, n int)    { f.putLong(name, int64(n)) }
func (f *Frame) putBool(name string, v bool)  { f.put(name, strconv.FormatBool(v)) }
func (f *Frame) header() header               { return header{fields: f.Ext} }
func (f *Frame) body() (Value, error)         { return ParseBody(f.Body) }
func (f *Frame) putIfAny(name, value string) {
	if value != "" {
		f.put(name, value)
	}
}

// object reads a body that has to be an object.
func (f *Frame) object() (Value, error) {
	v, err := f.body()
	if err == nil && v.kind != kindObject {
		err = fmt.Errorf("%w: it is no JSON object", errBadBody)
	}
	return v, err
}

// toMillis and fromMillis translate what has 0 for none.
func toMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// duration is what ms milliseconds are, 0 below 0; what exceeds a Duration is
// the longest one.
func duration(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(ms, 0), most)) * time.Millisecond
}
