package remoting

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// FuzzRequests has every command read what may be a request of its own, and
// what it has understood written and read once more.
func FuzzRequests(f *testing.F) {
	fuzzCommands(f, func(e *example) func(*testing.T, *Frame) { return e.request })
}

// FuzzResponses is the same for answers.
func FuzzResponses(f *testing.F) {
	fuzzCommands(f, func(e *example) func(*testing.T, *Frame) { return e.response })
}

func fuzzCommands(f *testing.F, of func(*example) func(*testing.T, *Frame)) {
	examples := examplesOf()
	for i := range examples {
		for _, frame := range []*Frame{examples[i].frame, examples[i].answer} {
			for _, form := range []Serialize{JSON, Binary} {
				own := *frame
				own.Serialize = form
				b, err := own.Append(nil)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(byte(i), b)
			}
		}
	}
	for _, row := range golden(f).Java {
		b, err := hex.DecodeString(row.Frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(0), b)
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		frame, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		of(&examples[int(which)%len(examples)])(t, frame)
	})
}

// FuzzRegistration reads compressed bodies of registrations.
func FuzzRegistration(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x0eT 1 2 6 SINGLE\x00\x00\x00\x02[]"), true)
	f.Add([]byte("x\x9c"), false)
	f.Fuzz(func(t *testing.T, b []byte, plain bool) {
		if plain {
			b = deflate(t, b)
		}
		_, _ = registerBroker().decodeRequest(compressedRegistration(b))
	})
}
