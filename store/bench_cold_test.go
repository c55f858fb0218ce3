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

// preads is the floor of what reads full files: it reads those of a store again
// and again, 64 KiB at a time, into the same buffer.
type preads struct {
	b     *testing.B
	paths []string
	next  int
	open  *os.File
	off   int64
	buf   []byte
	entry int // mean size of an entry
}

func newPreads(b *testing.B, s *Store) *preads {
	paths := segments(b, s.cfg.Dir)
	files := *s.log.files.Load()
	require.Greater(b, len(files), 2)
	p := &preads{b: b, paths: paths[:len(paths)-1], buf: make([]byte, 64<<10)}
	p.entry = int(files[1].header.bytes / (files[1].base - files[0].base))
	b.Cleanup(p.close)
	return p
}

// read reads once and returns the number of entries.
func (p *preads) read() int {
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
	p.off += int64(n)
	crc32.Checksum(p.buf[:n], castagnoli)
	return n / p.entry
}

func (p *preads) close() {
	if p.open != nil {
		_ = p.open.Close() // was only read
		p.open = nil
	}
}

// filledWith is a store with n records of a size in full files of 4 MiB.
func filledWith(b *testing.B, n, size int) *Store {
	s := benchStore(b, nil)
	put := whole(b, benchRecord(size))
	for range n / 256 {
		put(s, 256)
	}
	require.NoError(b, s.Sync(b.Context()))
	return s
}

// A queue is read through many full files, 32 and 64 records at a time, with
// records of 256 bytes and of 1 KiB. The floor computes a CRC of each 64 KiB.
//
// It allocates nothing, and Get makes new memory for records that stay valid: to
// make and fill memory that nobody has in a processor's cache, and to collect it
// later, costs two to three times as much as the pread into a buffer that stays
// there.
func BenchmarkScanSealed(b *testing.B) {
	for _, row := range []struct{ step, size int }{{32, 256}, {64, 256}, {64, 1 << 10}} {
		b.Run(fmt.Sprintf("records=%d/%dB", row.step, row.size), func(b *testing.B) {
			s := filledWith(b, 32<<20/row.size, row.size)
			raw := newPreads(b, s)
			files := *s.log.files.Load()
			at, limit := int64(0), files[len(files)-1].base-int64(row.step)
			beside(b, "rec", 0.5, func() int {
				if at = get(b, s, at, row.step).Next; at >= limit {
					at = 0
				}
				return row.step
			}, raw.read)
		})
	}
}

// Four readers scan different parts of a store at a time, 64 records at a time;
// the floor is four of its own.
func BenchmarkScansOfDifferentParts(b *testing.B) {
	const readers, step, turns = 4, 64, 16
	s := filledStore(b, 128<<10, DefaultFileSize)
	files := *s.log.files.Load()
	part := (files[len(files)-1].base - step) / readers
	var at [readers]int64
	var raw [readers]*preads
	for i := range raw {
		at[i] = int64(i) * part
		raw[i] = newPreads(b, s)
		raw[i].next = i * len(raw[i].paths) / readers
	}
	each := func(work func(i int) int) int {
		var all sync.WaitGroup
		var done [readers]int
		for i := range readers {
			all.Go(func() {
				for range turns {
					done[i] += work(i)
				}
			})
		}
		all.Wait()
		return done[0] + done[1] + done[2] + done[3]
	}
	beside(b, "rec", 0.5, func() int {
		return each(func(i int) int {
			if at[i] = get(b, s, at[i], step).Next; at[i] >= int64(i+1)*part {
				at[i] = int64(i) * part
			}
			return step
		})
	}, func() int { return each(func(i int) int { return raw[i].read() }) })
}

// Single records are read at random, few of them very often (Zipf 1.1), by a
// store with a cache of a seventh of its log or with one that takes all of it
// ("fits"); the floor is the same without a cache, which reads the step of the
// index that holds the record, from the memory of the operating system here. The
// frequent ones lie close together ("near"), as the newest do, or anywhere
// ("spread").
func BenchmarkReadRandom(b *testing.B) {
	for _, row := range []struct {
		name   string
		spread uint64
		part   int64
		want   float64
	}{{"near", 1, 10, 1}, {"spread", 2654435761, 10, 1}, {"near/fits", 1, 1, 1.5}, {"spread/fits", 2654435761, 1, 1.5}} {
		b.Run(row.name, func(b *testing.B) {
			s, bare := filledStore(b, 128<<10, DefaultFileSize), filledStore(b, 128<<10, DefaultFileSize)
			s.log.blocks.budget = s.log.size() * 3 / 2 / row.part
			bare.log.blocks.budget = -1
			files := *s.log.files.Load()
			limit := uint64(files[len(files)-1].base - 1)
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, limit-1)
			read := func(s *Store) func() int {
				return func() int {
					const times = 64
					for range times {
						if _, err := s.Record(int64(1 + zipf.Uint64()*row.spread%limit)); err != nil {
							b.Fatal(err)
						}
					}
					return times
				}
			}
			beside(b, "rec", row.want, read(s), read(bare))
		})
	}
}
