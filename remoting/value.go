package remoting

import (
	"runtime"
	"slices"
	"strings"
)

// kind is what a value of a body is.
type kind byte

const (
	kindNull kind = iota
	kindText
	kindBare // a number, true or false
	kindList
	kindObject
)

// Value is a part of a JSON body as lenient readers take it: the names of an
// object may be numbers or objects, as fastjson writes maps. The zero Value is
// null, and so is what is absent: methods on a null Value return nothing.
type Value struct {
	kind kind
	text string // of a text, number, true or false
	// Of a list its items, of an object its names and values, alternating.
	items []Value
}

// maxValues bounds the values of one body: a body of 16 MiB must not become
// gigabytes.
const maxValues = 1 << 19

// yieldValues is after how many values of a body others may run: whoever sends
// large ones must not hold a processor for long.
const yieldValues = 1 << 10

// ParseBody reads a JSON body. An empty one is null.
func ParseBody(b []byte) (Value, error) {
	r := bodyReader{scanner: scanner{s: string(b), in: errBadBody}, own: len(b) > smallFrame}
	if r.peek() == 0 && r.i == len(r.s) {
		return Value{}, nil
	}
	v, err := r.value()
	if err == nil && (r.peek() != 0 || r.i < len(r.s)) {
		err = r.fail("something behind the body")
	}
	return v, err
}

type bodyReader struct {
	scanner
	count int
	own   bool // texts are copied, so that one that is kept does not keep the whole body
}

func (r *bodyReader) value() (v Value, err error) {
	if r.count++; r.count > maxValues {
		return v, r.fail("too many values")
	}
	if r.count%yieldValues == 0 {
		runtime.Gosched()
	}
	switch r.peek() {
	case '"', '\'':
		v.kind = kindText
		v.text, err = r.quoted()
	case '[':
		v.kind = kindList
		err = r.each('[', ']', func() error {
			item, err := r.value()
			v.add(item)
			return err
		})
	case '{':
		v.kind = kindObject
		err = r.each('{', '}', func() error {
			name, err := r.value()
			if err != nil {
				return err
			}
			if !r.accept(':') {
				return r.fail("no colon behind a name")
			}
			value, err := r.value()
			v.add(name, value)
			return err
		})
	default:
		v.kind = kindBare
		if v.text, err = r.bare(); v.text == "null" {
			v = Value{}
		}
	}
	if r.own && v.kind == kindText {
		v.text = strings.Clone(v.text)
	}
	return v, err
}

// add adds items. A list that grows doubles: what it leaves behind is then no
// more than what it has, however many items there are.
func (v *Value) add(items ...Value) {
	if len(v.items)+len(items) > cap(v.items) {
		v.items = slices.Grow(v.items, max(len(items), len(v.items)))
	}
	v.items = append(v.items, items...)
}

// Get returns the member of an object with a name, in the given case or any
// other; of several with one name the last counts.
func (v Value) Get(name string) Value {
	found := -1
	for i := 0; i < v.Len()*2; i += 2 {
		switch have := v.items[i].text; {
		case have == name:
			found = i
		case found < 0 && strings.EqualFold(have, name):
			found = i
		}
	}
	if found < 0 {
		return Value{}
	}
	return v.items[found+1]
}

// Null reports whether there is nothing.
func (v Value) Null() bool { return v.kind == kindNull }

// Text returns a text; a number, true and false as they are written, "" for
// everything else.
func (v Value) Text() string { return v.text }

// Int returns a number, which may stand in quotes; def when there is none.
func (v Value) Int(def int64) int64 {
	if n, ok := parseInteger(v.text); ok {
		return n
	}
	return def
}

// int32 is Int for 32 bits; what lies beyond is def.
func (v Value) int32(def int) int {
	n := v.Int(int64(def))
	if n != int64(int32(n)) {
		return def
	}
	return int(n)
}

// Bool returns true for true in any case, also in quotes; def when there is
// neither text nor number, false for everything else.
func (v Value) Bool(def bool) bool {
	if v.kind != kindText && v.kind != kindBare {
		return def
	}
	return strings.EqualFold(v.text, "true")
}

// List returns the items of a list, which are for reading.
func (v Value) List() []Value {
	if v.kind != kindList {
		return nil
	}
	return v.items
}

// Len returns how many members an object has.
func (v Value) Len() int {
	if v.kind != kindObject {
		return 0
	}
	return len(v.items) / 2
}

// Each calls f for every member of an object, in the order of the text.
func (v Value) Each(f func(name, value Value)) {
	for i := range v.Len() {
		f(v.items[2*i], v.items[2*i+1])
	}
}
