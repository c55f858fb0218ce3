package store

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/wal"
)

// What tidwall/wal v1.2.1 does that a store must not suffer from. Each hazard has
// a test whose name begins with its number. "Never" means that it cannot arise,
// because the store does not use what it comes from; the test shows that.
//
//	H1   reads of closed segments race with each other      never: a wal has one segment
//	H2   Sync and synced writes keep readers waiting        never: NoSync, and a handle of our own
//	H3   a cold read stalls the writer                      never: full files are read without a wal
//	H4   a small segment cache thrashes                     never: as H3; a cold read reads what it needs
//	H5   a torn or zeroed tail is an error, or entries      scanned and cut before the wal opens it
//	H6   no checksums                                       one for each entry, and its position
//	H7   lost and short files go unnoticed, reads panic     the chain is checked before anything is read
//	H8   a failed write leaves what it wrote in memory      fenced, cut back at once, reopened
//	H8b  no handle left while cycling breaks the log        never: no cycling; the store fences
//	H9   after a failed fsync the next one succeeds         fenced; what was not synced is written again
//	H10  folders are never synced                           the store syncs them
//	H11  cycling syncs in the path of a write               never: no cycling; full files are closed by the flusher
//	H12  TruncateFront rewrites a segment                   never called
//	H13  TruncateBack does                                  never called
//	H14  no lock                                            LOCK
//	H15  open loads the last segment                        it is small; nothing else is read
//	H16  NoCopy slices may be grown into the log            their capacity ends with the record
//	H17  buffers of a huge batch are kept                   groups are bounded, large buffers dropped
func TestEveryHazardHasATest(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func Test(H\d+b?)_`).FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
	}
	for i := 1; i <= 17; i++ {
		assert.True(t, found[fmt.Sprint("H", i)], "H%d", i)
	}
	assert.True(t, found["H8b"], "H8b")
}

func TestH1_AWalHasOneSegmentForEver(t *testing.T) {
	t.Parallel()
	assert.Equal(t, math.MaxInt, walOptions().SegmentSize)
	cfg := testConfig(t)
	cfg.FileSize = 1 << 40
	s := mustOpen(t, cfg)
	body := strings.Repeat("x", 1<<20)
	for range wal.DefaultOptions.SegmentSize>>20 + 4 {
		put(t, s, "T", 0, body)
	}
	entries, err := os.ReadDir(s.log.active.dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

func TestH2_NobodyWaitsForAnFsyncButThoseWhoAskedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.SyncFlush = true
		var disk faultyDisk
		s := mustOpenOn(t, cfg, disk.syncer())
		put(t, s, "T", 0, "a")
		hang := make(chan struct{})
		disk.hang.Store(&hang)
		waits := start(t.Context(), t, s, "T", "b")
		synctest.Wait() // the flusher hangs
		begin := time.Now()
		assertBodies(t, s, "T", 0, []string{"a", "b"})
		_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "c"), AppendOptions{NoWait: true})
		require.NoError(t, err)
		assertBodies(t, s, "T", 0, []string{"a", "b", "c"})
		assert.Less(t, time.Since(begin), time.Second, "the fsync is not over")
		select {
		case err := <-waits:
			t.Errorf("acknowledged before its fsync: %v", err)
		default:
		}
		disk.hang.Store(nil)
		close(hang)
		require.NoError(t, <-waits)
		mustClose(t, s)
	})
}

// walCalls are the functions and methods of the wal that the store uses.
var walCalls = map[string]string{
	"Open": "", "WriteBatch": "", "Read": "", "LastIndex": "",
	"Write": "of wal.Batch", "Close": "fsyncs: only by the flusher, or at the end",
}

// The hazards of what is not called cannot arise: no Sync, no TruncateFront, no
// TruncateBack, no ClearCache.
func TestH12_H13_TheWalIsOnlyOpenedWrittenReadAndClosed(t *testing.T) {
	t.Parallel()
	methods := []string{"Sync", "TruncateFront", "TruncateBack", "ClearCache", "FirstIndex"}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		usesWal := false
		for _, i := range file.Imports {
			usesWal = usesWal || i.Path.Value == `"github.com/tidwall/wal"`
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			for _, m := range methods {
				if s.Sel.Name == m && (usesWal && m != "Sync" || strings.HasPrefix(m, "Truncate")) {
					t.Errorf("%v: %s: the store calls nothing of the wal but %v", fset.Position(n.Pos()), m, walCalls)
				}
			}
			return true
		})
	}
	o := walOptions()
	assert.True(t, o.NoSync, "or each write syncs")
}

func TestH13_WhatIsTornIsCutOffWithoutTheWal(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	killed(t, cfg, numbered("m", 20)...)
	path := lastSegment(t, cfg.Dir)
	from, to := lastEntry(t, path)
	require.NoError(t, os.Truncate(path, int64(to-1)))
	s := mustOpen(t, cfg)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, int64(from), info.Size())
	assert.Equal(t, int64(19), s.Positions().Written)
}

func TestH3_ColdReadsDoNotTouchTheFileBeingWritten(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	want := numbered("m", 100)
	for _, body := range want {
		put(t, s, "T", 0, body)
	}
	require.NoError(t, s.Sync(t.Context()))
	require.NoError(t, closeWal(s.log.active.log.Load())) // its Read fails from now on
	res, err := s.Get(GetRequest{Topic: "T", Offset: 0, MaxMessages: 40})
	require.NoError(t, err)
	assert.Len(t, res.Records, 40)
	require.ErrorIs(t, s.Kill(), wal.ErrClosed)
}

// Readers of more files than there are handles, each at another place, read what
// they need again and again, not files.
func TestH4_MoreReadersThanHandlesReadNoWholeFiles(t *testing.T) {
	cfg := testConfig(t)
	cfg.FileSize = 256 << 10
	s := mustOpen(t, cfg)
	const readers = maxHandles + 8
	body := strings.Repeat("x", 100) // a step of the sparse index has some 14,000 bytes
	for len(s.segmentsNow()) <= readers {
		b := s.NewBatch()
		for range 500 {
			require.NoError(t, b.Add(record("T", 0, body, "")))
		}
		_, err := s.Append(t.Context(), b, AppendOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, s.Sync(t.Context()))
	var next [readers]int64
	for i := range next {
		next[i] = s.segmentsNow()[i].base - 1
	}
	read := func(rounds int) {
		for range rounds {
			for i := range next {
				res, err := s.Get(GetRequest{Topic: "T", Offset: next[i], MaxMessages: 1})
				require.NoError(t, err)
				require.Equal(t, GetFound, res.Status)
				next[i]++
			}
		}
	}
	read(2)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 20
	read(rounds)
	runtime.ReadMemStats(&after)
	assert.Less(t, (after.TotalAlloc-before.TotalAlloc)/(rounds*readers), uint64(64<<10), "bytes for each read of one record, in files of 262,144")
}

func TestH5_ZeroTailGivesNoPhantomEntries(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	killed(t, cfg, "m0", "m1")
	path := lastSegment(t, cfg.Dir)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	writeFile(t, path, append(data, make([]byte, 64)...))
	raw, err := wal.Open(filepath.Join(copyDir(t, filepath.Dir(path))), walOptions())
	require.NoError(t, err)
	last, err := raw.LastIndex()
	require.NoError(t, err)
	require.NoError(t, raw.Close())
	require.Equal(t, uint64(3+64), last, "the wal by itself takes each zero for an entry")

	s := mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assert.Equal(t, int64(2), s.Positions().Written)
	assertBodies(t, s, "T", 0, []string{"m0", "m1"})
	assert.Equal(t, int64(3), put(t, s, "T", 0, "m2").Position)
}

func TestH6_FlippedLengthsAreSeen(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := numbered("m", 10)
	killed(t, cfg, want...)
	path := lastSegment(t, cfg.Dir)
	starts := append([]int{0}, entryEnds(t, path)...)
	for i, at := range starts[:len(starts)-1] {
		for bit := range 8 {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[at] ^= 1 << bit
			cfg := cfg
			cfg.Dir = change(t, cfg.Dir, path, data)
			s := mustOpen(t, cfg)
			// All behind it is found by its own checksum, but nothing proves that
			// any of it was synced.
			require.NoError(t, s.Err(), "entry %d bit %d", i, bit)
			keep := max(0, i-1)
			require.Equal(t, want[:keep], append([]string{}, bodies(t, s, "T", 0)...), "entry %d bit %d", i, bit)
			require.Equal(t, len(want)-keep, s.Cut(), "entry %d bit %d", i, bit)
			mustClose(t, s)
		}
	}
}

func TestH15_OpenReadsNothingButHeadersAndTheLastFile(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := severalFiles(t, cfg, 20)
	paths := segments(t, cfg.Dir)
	for _, path := range paths[:len(paths)-1] {
		info, err := os.Stat(path)
		require.NoError(t, err)
		head := int64(entryEnds(t, path)[0])
		require.NoError(t, os.Truncate(path, head))
		require.NoError(t, os.Truncate(path, info.Size())) // zeros
	}
	s := mustOpen(t, cfg)
	require.NoError(t, s.Err(), "it has not read them")
	first := baseOf(t, paths[len(paths)-1]) - 1
	res, err := s.Get(GetRequest{Topic: "T", Offset: first, MaxMessages: 32})
	require.NoError(t, err)
	assert.Len(t, res.Records, len(want)-int(first))
	require.ErrorIs(t, s.Check(t.Context()), ErrDamaged, "whoever reads them sees it")
	_, err = s.Get(GetRequest{Topic: "T", Offset: 0, MaxMessages: 32})
	require.ErrorIs(t, err, ErrDamaged)
	require.NoError(t, s.Close())
}
