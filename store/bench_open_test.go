package store

import (
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var largeFlag = flag.Bool("store.large", false, "4 GB instead of 1 in benchmarks, 100 million units instead of one in tests")

// median of times, in milliseconds.
func medianMillis(list []time.Duration) float64 {
	return float64(slices.Sorted(slices.Values(list))[len(list)/2]) / float64(time.Millisecond)
}

// timeOf is how long f takes.
func timeOf(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// A store of 256 MB, of 1 GB and, with -store.large, of 4 GB is opened after a clean
// end and, with a checkpoint as old as may be, after a crash. The floor is three
// times a read of the last file, plus 10 us for every other. us/file is the whole
// open by the number of files: it shows how an open grows with the log.
func BenchmarkOpen(b *testing.B) {
	sizes := []int64{256 << 20, 1 << 30}
	if *largeFlag {
		sizes = append(sizes, 4<<30)
	}
	cfg := Config{Dir: b.TempDir(), Broker: "broker-a"}
	put := whole(b, benchRecord(1024))
	for _, size := range sizes {
		s, err := Open(cfg)
		require.NoError(b, err)
		for s.log.size() < size {
			put(s, 256)
		}
		files := s.log.fileCount()
		require.NoError(b, s.Close())
		b.Run(fmt.Sprintf("%dMB/closed", size>>20), func(b *testing.B) { benchOpens(b, cfg, files, (*Store).Close) })
		b.Run(fmt.Sprintf("%dMB/killed", size>>20), func(b *testing.B) { benchOpens(b, cfg, files, (*Store).Kill) })
	}
}

// benchOpens measures opens of a store of some files, each after it was ended.
func benchOpens(b *testing.B, cfg Config, files int, end func(*Store) error) {
	var open, floor []time.Duration
	var records int64
	for range benchRounds {
		floor = append(floor, timeOf(func() {
			_, err := os.ReadFile(lastSegment(b, cfg.Dir))
			require.NoError(b, err)
		}))
		var s *Store
		open = append(open, timeOf(func() {
			var err error
			s, err = Open(cfg)
			require.NoError(b, err)
		}))
		require.Equal(b, files, s.log.fileCount())
		records = s.Positions().Written
		require.NoError(b, end(s))
	}
	limit := 3*medianMillis(floor) + 0.01*float64(files-1)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(medianMillis(open), "open_ms")
	b.ReportMetric(limit, "raw_open_ms")
	b.ReportMetric(medianMillis(open)/limit, "times")
	b.ReportMetric(1, "most")
	b.ReportMetric(float64(files), "files")
	b.ReportMetric(1e3*medianMillis(open)/float64(files), "us/file")
	b.ReportMetric(float64(records), "recs")
}

// The last file of a log is torn in its last entry, and read for that; the floor
// is a read of the file and a CRC over it. whole_ms is a whole Open of such a
// store: it replays that file, writes it again and syncs it.
func BenchmarkRecoverTorn(b *testing.B) {
	cfg := Config{Dir: b.TempDir(), Broker: "broker-a", CheckpointInterval: time.Hour}
	s, err := Open(cfg)
	require.NoError(b, err)
	put := whole(b, benchRecord(benchRecordSize))
	for s.log.fileCount() < 3 {
		put(s, 256)
	}
	require.NoError(b, s.Close()) // with a checkpoint that covers the first two
	s, err = Open(cfg)
	require.NoError(b, err)
	for s.log.active.size.Load() < DefaultFileSize-DefaultFileSize/16 {
		put(s, 256)
	}
	require.NoError(b, s.Kill())
	last := lastSegment(b, cfg.Dir)
	info, err := os.Stat(last)
	require.NoError(b, err)
	require.NoError(b, os.Truncate(last, info.Size()-100))

	dir := filepath.Join(cfg.Dir, commitLogName)
	var scan, floor, open []time.Duration
	for range benchRounds {
		floor = append(floor, timeOf(func() {
			data, err := os.ReadFile(last)
			require.NoError(b, err)
			crc32.Checksum(data, castagnoli)
		}))
		scan = append(scan, timeOf(func() {
			c := commitLog{dir: dir, disk: volatile()}
			r := recovery{first: 1}
			require.NoError(b, c.list(&r))
			r.files = r.files[len(r.files)-1:] // the others are proven by the checkpoint
			r.first = r.files[0].base
			require.NoError(b, r.examine())
			require.NotNil(b, r.bad)
		}))
		again := cfg
		again.Dir = copyDirOn(b, cfg.Dir)
		open = append(open, timeOf(func() {
			s, err = Open(again)
			require.NoError(b, err)
		}))
		require.Equal(b, 1, s.Cut())
		require.NoError(b, s.Kill())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(medianMillis(scan), "scan_ms")
	b.ReportMetric(medianMillis(floor), "raw_scan_ms")
	b.ReportMetric(medianMillis(scan)/medianMillis(floor), "times")
	b.ReportMetric(3, "most")
	b.ReportMetric(medianMillis(open), "whole_ms")
}

// copyDirOn is copyDir on the disk that the benchmarks use.
func copyDirOn(b *testing.B, dir string) string {
	to := filepath.Join(b.TempDir(), "copy")
	require.NoError(b, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// A store without a checkpoint is rebuilt from its log.
func BenchmarkRebuild(b *testing.B) {
	s := filledStore(b, 64<<10, DefaultFileSize)
	require.NoError(b, s.Kill())
	require.NoFileExists(b, filepath.Join(s.cfg.Dir, checkpointName))
	rate := round(func() int {
		s, err := Open(s.cfg)
		require.NoError(b, err)
		require.NoError(b, s.Kill())
		return 64 << 10
	})
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate, "rec/s")
}

// A store is opened, written to once and ended: one with a folder that stays,
// and a throwaway one.
func BenchmarkLife(b *testing.B) {
	for _, throwaway := range []bool{false, true} {
		b.Run(fmt.Sprintf("throwaway=%t", throwaway), func(b *testing.B) {
			cfg := Config{Dir: filepath.Join(b.TempDir(), "t"), Broker: "broker-a", Throwaway: throwaway}
			put := whole(b, benchRecord(benchRecordSize))
			var open, end []time.Duration
			round(func() int {
				var s *Store
				open = append(open, timeOf(func() {
					var err error
					s, err = Open(cfg)
					require.NoError(b, err)
				}))
				put(s, 1)
				how := s.Close
				if throwaway {
					how = s.Discard
				}
				end = append(end, timeOf(func() { require.NoError(b, how()) }))
				return 1
			})
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(medianMillis(open), "open_ms")
			b.ReportMetric(medianMillis(end), "end_ms")
		})
	}
}
