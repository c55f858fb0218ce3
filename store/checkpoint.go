package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
)

const (
	checkpointMagic   = 0x504D5143 // "PMQC"
	checkpointVersion = 2
	flagClean         = 1
)

// checkpoint is what is known about the store at one moment: how far the log is
// synced, and the consume queues and key index as they are after the record at
// position. Replay of the log goes on from there.
type checkpoint struct {
	clean    bool
	synced   int64 // proof for recovery: the log up to here was synced
	position int64 // the queues hold the units of records up to here; 0: nothing is usable
	min      int64 // first position of the log
	queues   []queueState
	extents  []extentState
	next     uint32 // number of the next block
	index    indexState
	size     int64 // bytes of the file that it was read from
}

// queueState is a queue in a checkpoint. Without a topic it only keeps the place of
// one that was dropped.
type queueState struct {
	key    QueueID
	base   int64
	min    int64 // first offset kept
	first  int64 // position of its record, or 0
	blocks []uint32
	tail   []byte
}

func (st *queueState) max() int64 {
	return st.base + int64(len(st.blocks))*blockUnits + int64(len(st.tail)/unitSize)
}

// starts are the queues of which the checkpoint holds no record.
func (cp *checkpoint) starts() (list []queueStart) {
	for i := range cp.queues {
		if st := &cp.queues[i]; st.first == 0 && st.key.Topic != "" {
			list = append(list, queueStart{key: st.key, next: st.max()})
		}
	}
	return list
}

// checkpointWriter streams a checkpoint into a file.
type checkpointWriter struct {
	w   *bufio.Writer
	sum hash.Hash32
	buf []byte
}

func newCheckpointWriter(w io.Writer) *checkpointWriter {
	c := &checkpointWriter{sum: crc32.New(castagnoli)}
	c.w = bufio.NewWriterSize(io.MultiWriter(w, c.sum), 64<<10)
	return c
}

// start writes the head of a checkpoint with the given number of queues.
func (c *checkpointWriter) start(cp *checkpoint, queues int) error {
	be := binary.BigEndian
	flags := uint32(0)
	if cp.clean {
		flags = flagClean
	}
	b := be.AppendUint32(c.buf[:0], checkpointMagic)
	b = be.AppendUint32(b, checkpointVersion)
	b = be.AppendUint32(b, flags)
	b = be.AppendUint64(b, uint64(cp.synced))
	b = be.AppendUint64(b, uint64(cp.position))
	b = be.AppendUint64(b, uint64(cp.min))
	b = be.AppendUint32(b, uint32(queues))
	return c.put(b)
}

func (c *checkpointWriter) queue(q queueState) error {
	be := binary.BigEndian
	b := be.AppendUint32(c.buf[:0], uint32(len(q.key.Topic)))
	b = append(b, q.key.Topic...)
	b = be.AppendUint64(b, uint64(q.key.ID))
	b = be.AppendUint64(b, uint64(q.base))
	b = be.AppendUint64(b, uint64(q.min))
	b = be.AppendUint64(b, uint64(q.first))
	b = be.AppendUint32(b, uint32(len(q.blocks)))
	for _, n := range q.blocks {
		b = be.AppendUint32(b, n)
	}
	b = be.AppendUint32(b, uint32(len(q.tail)/unitSize))
	b = append(b, q.tail...)
	return c.put(b)
}

// finish writes the extents, the key index and the checksum over everything.
func (c *checkpointWriter) finish(extents []extentState, next uint32, index indexState) error {
	be := binary.BigEndian
	b := be.AppendUint32(c.buf[:0], uint32(len(extents)))
	for _, e := range extents {
		b = be.AppendUint32(b, e.number)
		b = be.AppendUint32(b, e.blocks)
		b = append(b, e.stamp[:]...)
	}
	b = be.AppendUint32(b, next)
	if err := c.put(b); err != nil {
		return err
	}
	if err := c.index(index); err != nil {
		return err
	}
	if err := c.w.Flush(); err != nil {
		return err
	}
	if err := c.put(be.AppendUint32(c.buf[:0], c.sum.Sum32())); err != nil {
		return err
	}
	return c.w.Flush()
}

func (c *checkpointWriter) put(b []byte) error {
	c.buf = b
	_, err := c.w.Write(b)
	return err
}

// checkpointReader reads the fields of a checkpoint; after a read beyond the
// end everything is zero and bad is set.
type checkpointReader struct {
	b   []byte
	bad bool
}

func (r *checkpointReader) bytes(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *checkpointReader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *checkpointReader) i64() int64 {
	b := r.bytes(8)
	if b == nil {
		return 0
	}
	v := int64(binary.BigEndian.Uint64(b))
	r.bad = r.bad || v < 0
	return v
}

// count reads the length of a list whose items take at least size bytes.
func (r *checkpointReader) count(size int) int {
	n := r.u32()
	if uint64(n)*uint64(size) > uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	return int(n)
}

// parseCheckpoint reads a checkpoint. ok is false for anything that is not one
// whole checkpoint of this version.
func parseCheckpoint(b []byte) (cp *checkpoint, ok bool) {
	if len(b) < 4 {
		return nil, false
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	r := checkpointReader{b: body}
	if r.u32() != checkpointMagic || r.u32() != checkpointVersion || crc32.Checksum(body, castagnoli) != sum {
		return nil, false
	}
	cp = &checkpoint{clean: r.u32()&flagClean != 0, synced: r.i64(), position: r.i64(), min: r.i64()}
	queues := r.count(4 + 8 + 8 + 8 + 8 + 4 + 4)
	for i := 0; i < queues && !r.bad; i++ {
		var q queueState
		q.key.Topic = string(r.bytes(r.count(1)))
		id := r.i64()
		if id > math.MaxInt32 {
			return nil, false
		}
		q.key.ID = int(id)
		q.base, q.min, q.first = r.i64(), r.i64(), r.i64()
		n := r.count(4)
		q.blocks = make([]uint32, n)
		for j := range q.blocks {
			q.blocks[j] = r.u32()
		}
		units := r.count(unitSize)
		if units >= blockUnits {
			return nil, false
		}
		q.tail = r.bytes(units * unitSize)
		if q.min < q.base || q.min > q.max() {
			return nil, false
		}
		cp.queues = append(cp.queues, q)
	}
	extents := r.count(4 + 4 + len(stamp{}))
	for i := 0; i < extents && !r.bad; i++ {
		e := extentState{number: r.u32(), blocks: r.u32()}
		copy(e.stamp[:], r.bytes(len(e.stamp)))
		cp.extents = append(cp.extents, e)
	}
	cp.next = r.u32()
	cp.index = r.index()
	return cp, !r.bad && len(r.b) == 0
}

// loadCheckpoint reads the checkpoint of a folder; nil when there is no usable
// one. It is always safe to go without: everything is rebuilt from the log.
func loadCheckpoint(dir string) (*checkpoint, error) {
	path := filepath.Join(dir, checkpointName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store: read checkpoint: %w", err)
	}
	cp, ok := parseCheckpoint(b)
	if !ok {
		return nil, nil
	}
	cp.size = int64(len(b))
	return cp, nil
}

// restore makes the queue of a checkpoint. The arrays are its own.
func (st queueState) restore(id uint32) *queue {
	q := &queue{key: st.key, id: id, base: st.base, blocks: st.blocks, min: st.min, first: st.first}
	if n := len(st.tail); n > 0 {
		size := firstTail
		if n > firstTail {
			size = unitBytes
		}
		q.tail = append(make([]byte, 0, size), st.tail...)
	}
	return q
}

// stateAt describes the queue as it was after the record at a position, which
// has long been dispatched. Records behind it may arrive meanwhile.
func (q *queue) stateAt(x *extents, position int64) (queueState, error) {
	v := q.view()
	st := queueState{key: q.key, base: v.base, min: v.min, first: v.first, blocks: v.blocks, tail: v.tail}
	st.tail = st.tail[:unitsUpTo(st.tail, position)*unitSize]
	for len(st.tail) == 0 && len(st.blocks) > 0 {
		// The last block may hold units behind the position, too.
		last := len(st.blocks) - 1
		units, err := x.read(st.blocks[last], q.id, v.base+int64(last)*blockUnits)
		if err != nil {
			return st, err
		}
		n := unitsUpTo(units, position)
		if n == blockUnits {
			break
		}
		st.blocks = st.blocks[:last]
		st.tail = append([]byte(nil), units[:n*unitSize]...)
	}
	if st.first > position {
		st.first = 0
	}
	return st, nil
}

// smallCheckpoint is the size, in bytes, up to which a checkpoint is written
// whenever there is anything new to it.
const smallCheckpoint = 64 << 10

// lastCheckpoint is what is known of the checkpoint file.
type lastCheckpoint struct {
	position, min atomic.Int64 // of the log, that it covers
	size          atomic.Int64 // bytes
	churn         atomic.Int64 // of the log, when it was written
}

// noteCheckpoint tells what the checkpoint file covers now, and its size.
func (s *Store) noteCheckpoint(position, first, size int64) {
	s.checkpointed.position.Store(position)
	s.checkpointed.min.Store(first)
	s.checkpointed.size.Store(size)
	s.checkpointed.churn.Store(s.log.churn())
}

// checkpointWanted reports whether a checkpoint would say more than the last, and
// is worth its writing: a large one waits until the log has grown or shrunk by as
// much as it takes itself. To replay that is cheap, and so no more is ever written
// for checkpoints than for the log.
func (s *Store) checkpointWanted() bool {
	last := &s.checkpointed
	if s.damage != nil || s.flusher.broken.Load() ||
		min(s.dispatched.Load(), s.log.synced.Load()) <= last.position.Load() && s.log.min() <= last.min.Load() {
		return false
	}
	size := last.size.Load()
	return size <= smallCheckpoint || s.log.churn()-last.churn.Load() >= size
}

// proofWanted reports whether commitlog/synced can say more than it does.
func (s *Store) proofWanted() bool {
	return s.damage == nil && !s.cfg.Throwaway && !s.flusher.broken.Load() && s.log.proven.Load() > s.mark.position.Load()
}

// noteStale makes the next open rebuild queues and key index, however this store
// ends, if err says that one of them is damaged.
func (s *Store) noteStale(err error) {
	if (errors.Is(err, errQueueDamaged) || errors.Is(err, errIndexDamaged)) && !s.stale.Swap(true) {
		s.wakeJanitor()
	}
}

// dropStale takes queues and key index out of the checkpoint file when one of
// them was found damaged. What the file proves of the log stays, also that of a
// read-only store, which knows less than its file. Only the janitor calls it.
func (s *Store) dropStale() {
	if !s.stale.Load() || s.janitor.dropped {
		return
	}
	cp, err := loadCheckpoint(s.cfg.Dir)
	if err == nil && cp != nil && cp.position > 0 {
		err = s.replaceCheckpoint(func(f *os.File) error { return writeProof(f, *cp) })
	}
	if err != nil {
		s.cfg.Logger.Warn("store: a consume queue or the key index is damaged, and the checkpoint still refers to it; this is tried again later", "dir", s.cfg.Dir, "err", err)
		return
	}
	s.janitor.dropped = true
}

// writeProof writes a checkpoint that keeps what cp says about the log and holds
// nothing that is derived from it.
func writeProof(f *os.File, cp checkpoint) error {
	cp.clean, cp.position, cp.queues = false, 0, nil
	w := newCheckpointWriter(f)
	if err := w.start(&cp, 0); err != nil {
		return err
	}
	return w.finish(nil, 0, indexState{})
}

// writeCheckpoint replaces the checkpoint file. It covers what is dispatched
// and synced now. Only the janitor calls it, or whoever closes the store after
// the janitor has ended.
func (s *Store) writeCheckpoint(clean bool) error {
	cp := checkpoint{clean: clean, min: s.log.min()}
	cp.index, cp.position = s.index.stateAt(s.indexUpTo)
	cp.synced = s.log.proven.Load()
	covered := cp.position
	queues := s.queues.all()
	if s.stale.Load() {
		cp.position, cp.index, queues = 0, indexState{}, nil
	}
	if cp.position > 0 && s.dropped.Load() > cp.position { // looked at behind the queues
		return errDropUnsynced
	}
	err := s.replaceCheckpoint(func(f *os.File) error {
		err := s.fillCheckpoint(f, &cp, queues)
		if info, e := f.Stat(); e == nil {
			cp.size = info.Size()
		}
		return err
	})
	if cp.position > 0 && errors.Is(err, errQueueDamaged) {
		s.cfg.Logger.Error("store: the checkpoint leaves out the consume queues", "dir", s.cfg.Dir, "err", err)
		s.noteStale(err)
		return s.writeCheckpoint(clean)
	}
	if err == nil {
		s.noteCheckpoint(covered, cp.min, cp.size)
		err = s.extents.remove() // nothing refers to them any more
	}
	return err
}

// replaceCheckpoint writes a new checkpoint file and puts it in place of the
// one there is.
func (s *Store) replaceCheckpoint(fill func(*os.File) error) error {
	path := filepath.Join(s.cfg.Dir, checkpointName)
	f, err := s.log.disk.create(path + tempSuffix)
	if err != nil {
		return fmt.Errorf("store: write checkpoint: %w", err)
	}
	err = fill(f)
	if err == nil {
		err = s.log.disk.file(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.log.disk.rename(path+tempSuffix, path)
	}
	if err == nil {
		err = s.log.disk.dir(s.cfg.Dir)
	}
	if err != nil {
		return fmt.Errorf("store: write checkpoint: %w", err)
	}
	return nil
}

func (s *Store) fillCheckpoint(f *os.File, cp *checkpoint, queues []*queue) error {
	w := newCheckpointWriter(f)
	if err := w.start(cp, len(queues)); err != nil {
		return err
	}
	for _, q := range queues {
		st, err := q.stateAt(&s.extents, cp.position)
		if err != nil {
			return fmt.Errorf("topic %q queue %d: %w", q.key.Topic, q.key.ID, err)
		}
		if err := w.queue(st); err != nil {
			return err
		}
	}
	if s.stale.Load() && cp.position > 0 {
		return errQueueDamaged // found meanwhile
	}
	// After the queues, so that every block they refer to is synced.
	extents, next, err := s.extents.sync()
	if err != nil {
		return err
	}
	if err := s.index.sync(); err != nil {
		return err
	}
	return w.finish(extents, next, cp.index)
}
