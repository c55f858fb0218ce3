package store

import (
	"reflect"

	"github.com/tidwall/wal"
)

// reserveWal gives a wal, into which nothing has been written yet, memory for
// entries of so many bytes in all, and reports whether it could.
//
// The wal keeps what it writes in buffers that begin empty and grow by a quarter
// at a time: five to six bytes allocated, cleared and copied for each byte
// written, and a pause of milliseconds while four megabytes move. It has no
// option for that, so this reaches into it as walFile does, and does nothing to
// a wal that is not the one we know.
//
// It must be called before the wal is used by anybody else.
func reserveWal(log *wal.Log, bytes, entries int) bool {
	segments := reflect.ValueOf(log).Elem().FieldByName("segments")
	if segments.Kind() != reflect.Slice || segments.Len() != 1 || segments.Index(0).Kind() != reflect.Pointer {
		return false
	}
	segment := segments.Index(0).Elem()
	if segment.Kind() != reflect.Struct {
		return false
	}
	data, ends := segment.FieldByName("ebuf"), segment.FieldByName("epos")
	if !data.IsValid() || data.Type() != reflect.TypeFor[[]byte]() || data.Len() != 0 ||
		!ends.IsValid() || ends.Kind() != reflect.Slice || ends.Len() != 0 {
		return false
	}
	*(*[]byte)(data.Addr().UnsafePointer()) = make([]byte, 0, bytes)
	reflect.NewAt(ends.Type(), ends.Addr().UnsafePointer()).Elem().Set(reflect.MakeSlice(ends.Type(), 0, entries))
	return true
}
