package store

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// preads reads the full files of a store again and again, 64 KiB at a time.
type preads struct {
	b     *testing.B
	paths []string
	next  int
	open  *os.File
	off   int64
	buf   []byte
}

func newPreads(b *testing.B, s *Store) *preads {
	paths := segments(b, s.cfg.Dir)
	require.Greater(b, len(paths), 1)
	p := &preads{b: b, paths: paths[:len(paths)-1], buf: make([]byte, 64<<10)}
	b.Cleanup(p.close)
	return p
}

// read reads a number of bytes and computes their CRC, entry by entry if size is
// more than 0, which is then the size of each.
func (p *preads) read(todo, size int64) {
	for todo > 0 {
		if p.open == nil {
			var err error
			p.open, err = os.Open(p.paths[p.next])
			require.NoError(p.b, err)
			p.off, p.next = 0, (p.next+1)%len(p.paths)
		}
		n, err := p.open.ReadAt(p.buf, p.off)
		if err != nil {
			p.close()
		}
		step := n
		if size > 0 {
			step = int(size)
		}
		for at := 0; at < n; at += step {
			crc32.Checksum(p.buf[at:min(n, at+step)], castagnoli)
		}
		todo -= int64(n)
		p.off += int64(n)
	}
}

func (p *preads) close() {
	if p.open != nil {
		_ = p.open.Close()
		p.open = nil
	}
}

// BenchmarkScanSealed reads a store of many files in turns of 32 and of 64, into
// new memory or into that of the reader ("lent"), with bodies of 128 and of
// 1024 bytes. Raw reads the same bytes with one pread of 64 KiB after the other
// into the same buffer, and computes the CRC of all at once, or of each record
// ("entries"): that of many short pieces costs up to four times as much.
func BenchmarkScanSealed(b *testing.B) {
	for _, row := range []struct {
		step, body    int
		lent, entries bool
	}{
		{step: 32, body: 128}, {step: 64, body: 128}, {step: 64, body: 1024},
		{step: 64, body: 128, lent: true}, {step: 64, body: 128, lent: true, entries: true}, {step: 64, body: 1024, lent: true},
	} {
		name := fmt.Sprintf("%d/%d", row.step, row.body)
		if row.lent {
			name += "/lent"
		}
		if row.entries {
			name += "/entries"
		}
		b.Run(name, func(b *testing.B) {
			s, _ := filledWith(b, 24<<20/row.body, row.body, true)
			raw := newPreads(b, s)
			files := *s.log.files.Load()
			size := files[1].header.bytes / (files[1].base - files[0].base) // of an entry
			entry := int64(0)
			if row.entries {
				entry = size
			}
			var buffer *ReadBuffer
			if row.lent {
				buffer = new(ReadBuffer)
			}
			at, limit := int64(0), files[len(files)-1].base-int64(row.step)
			versus(b, row.step, func(k int) {
				for range k {
					res, err := s.Get(GetRequest{Topic: "benchmark", Offset: at, MaxMessages: row.step, Buffer: buffer})
					if err != nil || len(res.Records) != row.step {
						b.Fatal(res.Status, err)
					}
					if at = res.Next; at >= limit {
						at = 0
					}
				}
			}, func(k int) { raw.read(int64(k*row.step)*size, entry) })
		})
	}
}

// BenchmarkScans lets four readers scan different parts of a store at a time;
// raw is the same with preads of 64 KiB and the CRC of them, in one goroutine
// for each.
func BenchmarkScans(b *testing.B) {
	const readers, step = 4, 64
	s, _ := filledStore(b, 128<<10, true)
	files := *s.log.files.Load()
	size := files[1].header.bytes / (files[1].base - files[0].base)
	part := (files[len(files)-1].base - step) / readers
	var at [readers]int64
	var raw [readers]*preads
	for i := range raw {
		at[i] = int64(i) * part
		raw[i] = newPreads(b, s)
		raw[i].next = i * len(raw[i].paths) / readers
	}
	each := func(work func(i int)) {
		var wg sync.WaitGroup
		for i := range readers {
			wg.Go(func() { work(i) })
		}
		wg.Wait()
	}
	versus(b, readers*step, func(k int) {
		each(func(i int) {
			for range k {
				res, err := s.Get(GetRequest{Topic: "benchmark", Offset: at[i], MaxMessages: step})
				if err != nil || len(res.Records) != step {
					b.Error(res.Status, err)
					return
				}
				if at[i] = res.Next; at[i] >= int64(i+1)*part {
					at[i] = int64(i) * part
				}
			}
		})
	}, func(k int) { each(func(i int) { raw[i].read(int64(k*step)*size, 0) }) })
}

// BenchmarkReadRandom reads single records, few of them very often (Zipf 1.1,
// spread over the whole log), with a cache of a tenth of the log. Raw is the
// same without a cache: a pread of the step of the index that holds the record.
func BenchmarkReadRandom(b *testing.B) {
	const n = 128 << 10
	s, _ := filledStore(b, n, true)
	blocks := (*s.log.files.Load())[0].size.Load() * int64(len(*s.log.files.Load()))
	s.log.blocks.budget = max(MinCacheBytes, blocks/10)
	bare, _ := filledStore(b, n, true)
	bare.log.blocks.budget = -1
	limit := uint64((*s.log.files.Load())[len(*s.log.files.Load())-1].base - 1)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, limit-1)
	position := func() int64 { return int64(1 + zipf.Uint64()*2654435761%limit) }
	read := func(s *Store) func(int) {
		return func(k int) {
			for range k {
				if _, err := s.Record(position()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	read(s)(20_000) // until the cache is full
	versus(b, 1, read(s), read(bare))
}
