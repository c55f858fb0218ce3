package remoting

import "strconv"

// writer writes a JSON body without blanks: the Go client cuts some bodies by
// string operations and keeps blanks. Commas come by themselves.
type writer struct{ b []byte }

// next puts the comma before everything but the first in its brackets, and
// what follows a name.
func (w *writer) next() {
	if n := len(w.b); n > 0 {
		switch w.b[n-1] {
		case '{', '[', ':':
		default:
			w.b = append(w.b, ',')
		}
	}
}

func (w *writer) open(bracket byte) {
	w.next()
	w.b = append(w.b, bracket)
}

func (w *writer) shut(bracket byte) { w.b = append(w.b, bracket) }

// colon ends a name that is no text.
func (w *writer) colon() { w.b = append(w.b, ':') }

func (w *writer) name(s string) {
	w.item(s)
	w.colon()
}

func (w *writer) item(s string) {
	w.next()
	w.b = appendQuoted(w.b, s)
}

func (w *writer) number(n int64) {
	w.next()
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *writer) text(name, s string) {
	w.name(name)
	w.item(s)
}

func (w *writer) int(name string, n int64) {
	w.name(name)
	w.number(n)
}

func (w *writer) bool(name string, v bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, v)
}

func (w *writer) object(name string) {
	w.name(name)
	w.open('{')
}

func (w *writer) list(name string) {
	w.name(name)
	w.open('[')
}

// texts writes a list of texts, [] for none.
func (w *writer) texts(name string, items []string) {
	w.list(name)
	for _, s := range items {
		w.item(s)
	}
	w.shut(']')
}

// textsOf returns the texts of a list.
func textsOf(v Value) []string {
	var texts []string
	for _, item := range v.List() {
		texts = append(texts, item.Text())
	}
	return texts
}
