package mqtest

import (
	"fmt"
	"reflect"
	"time"
)

// difference tells in which way two values differ to whoever uses them, "" when
// they do not: times are compared as instants, no list is as good as an empty one,
// and Verbatim, the bytes that an answer came as, is for relays only.
func difference(want, got any) string {
	return differ("", reflect.ValueOf(want), reflect.ValueOf(got))
}

func differ(at string, want, got reflect.Value) string {
	if !want.IsValid() || !got.IsValid() || want.Type() != got.Type() {
		if want.IsValid() || got.IsValid() {
			return fmt.Sprintf("%swant %v, got %v", at, want, got)
		}
		return ""
	}
	if w, ok := want.Interface().(time.Time); ok {
		if g := got.Interface().(time.Time); !w.Equal(g) {
			return fmt.Sprintf("%swant %v, got %v", at, w, g)
		}
		return ""
	}
	switch want.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !want.IsNil() && !got.IsNil() {
			return differ(at, want.Elem(), got.Elem())
		}
		if want.IsNil() != got.IsNil() {
			return fmt.Sprintf("%swant %v, got %v", at, want, got)
		}
	case reflect.Struct:
		for i := range want.NumField() {
			if f := want.Type().Field(i); !f.IsExported() || f.Name == "Verbatim" {
				continue
			}
			if d := differ(at+want.Type().Field(i).Name+": ", want.Field(i), got.Field(i)); d != "" {
				return d
			}
		}
	case reflect.Slice:
		if want.Len() != got.Len() {
			return fmt.Sprintf("%swant %d of them, %.200v, got %d, %.200v", at, want.Len(), want, got.Len(), got)
		}
		for i := range want.Len() {
			if d := differ(fmt.Sprintf("%s[%d]: ", at, i), want.Index(i), got.Index(i)); d != "" {
				return d
			}
		}
	case reflect.Map:
		if want.Len() != got.Len() {
			return fmt.Sprintf("%swant %v, got %v", at, want, got)
		}
		for _, k := range want.MapKeys() {
			if d := differ(fmt.Sprintf("%s[%v]: ", at, k), want.MapIndex(k), got.MapIndex(k)); d != "" {
				return d
			}
		}
	default:
		if !want.Equal(got) {
			return fmt.Sprintf("%swant %v, got %v", at, want, got)
		}
	}
	return ""
}
