package store

import "encoding/binary"

// The key index in a checkpoint, behind the extents:
//
//	files   count 4, and for each: number 4, blocks in use 4, stamp 16
//	runs    count 4, and for each: file 4, header block 4, entries 4, first and
//	        last position 8 each, first and last time 8 each
//	tables  count 4, and for each: first position 8, first time 8, entries 4,
//	        and each entry as in a run, in the order of the log

func (c *checkpointWriter) index(st indexState) error {
	be := binary.BigEndian
	b := be.AppendUint32(c.buf[:0], uint32(len(st.files)))
	for _, f := range st.files {
		b = be.AppendUint32(b, f.number)
		b = be.AppendUint32(b, f.blocks)
		b = append(b, f.stamp[:]...)
	}
	b = be.AppendUint32(b, uint32(len(st.runs)))
	for _, r := range st.runs {
		b = be.AppendUint32(b, r.file)
		b = be.AppendUint32(b, r.at)
		b = be.AppendUint32(b, uint32(r.keySpan.entries))
		for _, v := range []int64{r.keySpan.first, r.keySpan.last, r.keySpan.firstTime, r.keySpan.lastTime} {
			b = be.AppendUint64(b, uint64(v))
		}
	}
	b = be.AppendUint32(b, uint32(len(st.tables)))
	for i := range st.tables {
		t := &st.tables[i]
		b = be.AppendUint64(b, uint64(t.first))
		b = be.AppendUint64(b, uint64(t.firstTime))
		b = be.AppendUint32(b, uint32(t.entries))
		for _, piece := range t.pieces() {
			if err := c.put(b); err != nil {
				return err
			}
			b = c.buf[:0]
			for _, e := range piece {
				b = be.AppendUint32(b, e.hash)
				b = be.AppendUint32(b, e.position)
				b = be.AppendUint32(b, e.time)
			}
		}
	}
	return c.put(b)
}

func (r *checkpointReader) index() (st indexState) {
	for n := r.count(4 + 4 + len(stamp{})); n > 0; n-- {
		f := indexFileState{number: r.u32(), blocks: r.u32()}
		copy(f.stamp[:], r.bytes(len(f.stamp)))
		st.files = append(st.files, f)
	}
	for n := r.count(4 + 4 + 4 + 4*8); n > 0; n-- {
		run := indexRunState{file: r.u32(), at: r.u32()}
		run.keySpan = keySpan{entries: int(r.u32()), first: r.i64(), last: r.i64(), firstTime: r.i64(), lastTime: r.i64()}
		st.runs = append(st.runs, run)
	}
	for n := r.count(8 + 8 + 4 + keyEntrySize); n > 0; n-- {
		t := keyTable{keySpan: keySpan{first: r.i64(), firstTime: r.i64()}}
		t.entries = r.count(keyEntrySize)
		if r.bad = r.bad || t.entries == 0; r.bad {
			break
		}
		entries := make([]keyEntry, t.entries)
		be := binary.BigEndian
		b := r.bytes(t.entries * keyEntrySize) // of which there are enough, as counted
		for i := range entries {
			e := b[i*keyEntrySize:]
			entries[i] = keyEntry{hash: be.Uint32(e), position: be.Uint32(e[4:]), time: be.Uint32(e[8:])}
		}
		top := entries[len(entries)-1]
		t.last, t.lastTime = t.first+int64(top.position), t.firstTime+int64(top.time)
		t.chunks = [][]keyEntry{entries}
		st.tables = append(st.tables, t)
	}
	return st
}
