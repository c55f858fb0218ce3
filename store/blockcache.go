package store

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/singleflight"
)

// The block cache serves random reads of sealed files: single records by
// position or key, short pulls at old offsets. Whoever reads on where somebody
// stopped has a cursor instead, and the file being written is read from memory,
// so neither the tail nor a scan knows of the cache.
//
// It is a hint: it takes a block some time after it was given one, or never, so
// a reader always goes on with the block that it has loaded. A block costs a
// multiple of the one record that is wanted of it, in memory and checksums, so it
// is only made when its place is read again after a while: records that are read
// once, and there are more of them than of others, cost what they do without a
// cache.
const (
	// maxBlock is the size of the largest piece of a file that is taken for a
	// block. Records that make larger ones gain nothing from it.
	maxBlock = 256 << 10
	// typicalBlock is what the number of access counters is derived from: ten
	// for each block that fits.
	typicalBlock = 8 << 10
	// maxCounters bounds what a cache takes before there is anything in it.
	maxCounters = 1 << 20
	// blockOverhead is what a block takes beside the bytes of the file.
	blockOverhead = 8*indexStep + 48
	// cacheTick is the period, in seconds, of the ticker for entries that
	// expire, which ours never do.
	cacheTick = 24 * 60 * 60
)

// recordBlock is one step of the sparse index of a sealed file: up to indexStep
// entries, all verified. It is never changed.
type recordBlock struct {
	file  *logFile
	first int64 // position of its first record
	data  []byte
	// ends[i] and sizes[i] are of record first+i: where it ends in data.
	ends, sizes [indexStep]uint32
}

// cost is the memory that a block takes.
func (b *recordBlock) cost() int64 { return int64(cap(b.data)) + blockOverhead }

// record returns the record at a position of the block.
func (b *recordBlock) record(position int64) []byte {
	i := position - b.first
	end := b.ends[i]
	return b.data[end-b.sizes[i] : end : end]
}

// blockCache keeps blocks that were read lately, by the position of their first
// record. Its memory, blocks on their way into it included, is bounded.
type blockCache struct {
	budget  int64 // bytes; 0 or less: nothing is kept
	loads   singleflight.Group
	waiting atomic.Int64 // bytes of blocks that the cache has not looked at yet

	// mu guards the fields below: they are made by the first read, and the cache
	// is closed only while nobody is in it, because a use of it that meets its
	// end panics. Nothing in it waits for anybody.
	mu     sync.RWMutex
	cache  *ristretto.Cache[int64, *recordBlock]
	missed []atomic.Int64 // first positions of blocks that were not there lately, by hash
	closed bool
}

// get returns a block of a file by its first position, or nil.
func (c *blockCache) get(f *logFile, first int64) *recordBlock {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.cache == nil {
		return nil
	}
	if b, ok := c.cache.Get(first); ok && b.file == f {
		return b
	}
	return nil
}

// again reports whether a block was missed before, not too long ago.
func (c *blockCache) again(first int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.cache == nil {
		return false
	}
	slot := &c.missed[uint64(first)*0x9E3779B97F4A7C15>>32%uint64(len(c.missed))]
	if slot.CompareAndSwap(first, 0) {
		return true
	}
	slot.Store(first)
	return false
}

// put offers a block to the cache.
func (c *blockCache) put(b *recordBlock) {
	cost := b.cost()
	if c.waiting.Add(cost) > c.maxWaiting() || !c.offer(b) {
		c.waiting.Add(-cost)
	}
}

func (c *blockCache) offer(b *recordBlock) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.cache != nil && c.cache.Set(b.first, b, 0)
}

// maxWaiting is the part of the budget that is for blocks on their way.
func (c *blockCache) maxWaiting() int64 { return c.budget / 8 }

// ensure makes the cache unless there is one.
func (c *blockCache) ensure() error {
	c.mu.RLock()
	made := c.cache != nil || c.closed
	c.mu.RUnlock()
	if made {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache != nil || c.closed {
		return nil
	}
	c.missed = make([]atomic.Int64, min(2*c.budget/typicalBlock, maxCounters))
	var err error
	c.cache, err = ristretto.NewCache(&ristretto.Config[int64, *recordBlock]{
		NumCounters: min(max(1000, 10*c.budget/typicalBlock), 10*maxCounters),
		MaxCost:     c.budget - c.maxWaiting(),
		BufferItems: 64,
		// It is asked once for each block that the cache looks at.
		Cost: func(b *recordBlock) int64 {
			c.waiting.Add(-b.cost())
			return b.cost()
		},
		TtlTickerDurationInSec: cacheTick,
	})
	return err
}

// close ends the cache and its goroutines. Readers go on without.
func (c *blockCache) close() {
	c.mu.Lock()
	cache := c.cache
	c.cache, c.closed = nil, true
	c.mu.Unlock()
	cache.Close() // nil is fine
}

// block returns one step of a sealed file, from the cache or from disk, or nil
// when it is not to be had: see load.
func (c *blockCache) block(f *sealedFile, step int64) *recordBlock {
	if b := c.get(f.logFile, f.first(step)); b != nil {
		return b
	}
	return c.load(f, step)
}

// load returns one step of a sealed file that is not in the cache. Of several who
// want the same, one reads it. It is nil when there is no cache, or the file is
// not final, or the step is not worth it, or too large, or cannot be read to its
// end: whoever wants a record of it then reads that alone, and meets the error if
// it is in there.
func (c *blockCache) load(f *sealedFile, step int64) *recordBlock {
	size := f.index.end(step) - f.index.offsets[step]
	if c.budget <= 0 || !f.final || size > min(maxBlock, c.maxWaiting()-blockOverhead) {
		return nil
	}
	first := f.first(step)
	if err := c.ensure(); err != nil || !c.again(first) {
		return nil
	}
	loaded, err, _ := c.loads.Do(strconv.FormatInt(first, 36), func() (any, error) {
		b, err := f.loadBlock(step)
		if err != nil {
			return nil, err
		}
		c.put(b)
		return b, nil
	})
	if b, ok := loaded.(*recordBlock); err == nil && ok && b.file == f.logFile {
		return b
	}
	return nil
}

// loadBlock reads and verifies one step.
func (f *sealedFile) loadBlock(step int64) (*recordBlock, error) {
	from := f.index.offsets[step]
	b := &recordBlock{file: f.logFile, first: f.first(step), data: make([]byte, f.index.end(step)-from)}
	if err := f.read(b.data, b.first, from); err != nil {
		return nil, err
	}
	at := 0
	for i := range min(indexStep, f.end-b.first) {
		rec, n, ok := verify(b.data[at:], b.first+i)
		if !ok {
			return nil, f.damaged(b.first+i, from+int64(at))
		}
		at += n
		b.ends[i], b.sizes[i] = uint32(at), uint32(len(rec))
	}
	return b, nil
}
