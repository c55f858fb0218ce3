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
	// What Java and Go have written, for the command whose code it has; and every
	// body that they have written for every command.
	g := golden(f)
	wires := make([]string, 0, len(g.Java)+len(g.Go))
	for _, row := range g.Java {
		wires = append(wires, row.Frame)
	}
	for _, row := range g.Go {
		wires = append(wires, row.Frame)
	}
	for _, text := range wires {
		b, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		frame, err := Read(bytes.NewReader(b))
		which := 0
		for i := range examples {
			if err == nil && examples[i].frame.Code == frame.Code {
				which = i
			}
		}
		f.Add(byte(which), b)
	}
	for i := range examples {
		for _, body := range g.Bodies {
			own := *examples[i].frame
			own.Body = []byte(body.JSON)
			b, err := own.Append(nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(byte(i), b)
		}
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
