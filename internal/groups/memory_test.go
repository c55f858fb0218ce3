package groups

import "unsafe"

// sharesMemory reports whether part lies within whole.
func sharesMemory(whole, part string) bool {
	begin, at := uintptr(unsafe.Pointer(unsafe.StringData(whole))), uintptr(unsafe.Pointer(unsafe.StringData(part)))
	return at >= begin && at < begin+uintptr(len(whole))
}
