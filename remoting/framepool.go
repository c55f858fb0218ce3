package remoting

import "sync"

// framePool has frames that are used again, with the room for their fields. Safe
// for concurrent use. A nil one makes a new frame each time.
type framePool struct{ pool sync.Pool }

// get returns an empty frame.
func (p *framePool) get() *Frame {
	if p == nil {
		return new(Frame)
	}
	if f, ok := p.pool.Get().(*Frame); ok {
		return f
	}
	return &Frame{Ext: make(Fields, 0, usualFields)}
}

// put takes a frame back: nobody may use it any more. Its texts and its body
// stay what they are, for whoever has them.
func (p *framePool) put(f *Frame) {
	if p == nil || cap(f.Ext) > 2*usualFields {
		return
	}
	clear(f.Ext)
	*f = Frame{Ext: f.Ext[:0]}
	p.pool.Put(f)
}
