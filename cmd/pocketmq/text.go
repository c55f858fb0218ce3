package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/pocketmq/pocketmq/store"
)

// maxRows bounds the rows of a table unless all are wanted.
const maxRows = 50

// text prints for people.
type text struct {
	w   io.Writer
	all bool
}

// printf ignores errors: the writer is a bufio.Writer, which keeps the first one
// for Flush.
func (t text) printf(format string, args ...any) { fmt.Fprintf(t.w, format, args...) }

// table prints rows under a head, the last ones when there are too many.
func (t text) table(rows int, row func(tw io.Writer, i int), head string) {
	var lines bytes.Buffer
	tw := tabwriter.NewWriter(&lines, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "  %s\n", strings.ReplaceAll(head, " | ", "\t"))
	from := 0
	if rows > maxRows && !t.all {
		from = rows - maxRows
		fmt.Fprintf(tw, "  ... %d before; --all shows them\n", from)
	}
	for i := from; i < rows; i++ {
		row(tw, i)
	}
	_ = tw.Flush() // a buffer takes everything
	for line := range strings.Lines(lines.String()) {
		t.printf("%s\n", strings.TrimRight(line, " \n"))
	}
}

func (t text) inspection(in *store.Inspection) {
	t.printf("data folder  %s\n", in.Dir)
	t.printf("broker       %q, id %d, cluster %q, format %d\n\n", in.Broker, in.ID, in.Cluster, in.Format)
	t.files(in)
	t.queues(in)
	t.checkpoint(in)
	t.findings(in)
	t.printf("next start   %s\n", nextStart(in))
}

func (t text) files(in *store.Inspection) {
	t.printf("commit log   %s, %s, %s", count(int64(len(in.Files)), "file"), size(in.Bytes), count(in.Records, "record"))
	if in.Last >= in.First {
		t.printf(", positions %d to %d", in.First, in.Last)
	}
	if in.Lost > 0 {
		t.printf(", %d of them marked as lost", in.Lost)
	}
	t.printf("\n")
	if len(in.Files) == 0 {
		t.printf("\n")
		return
	}
	t.table(len(in.Files), func(tw io.Writer, i int) {
		f := in.Files[i]
		fmt.Fprintf(tw, "  %s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", filepath.Base(filepath.Dir(f.Path)), span(f.First, f.Last),
			f.Records, f.Bytes, f.Epoch, stamp(f.FirstStored), stamp(f.LastStored), marks(f.Lost, f.Bad))
	}, "FILE | POSITIONS | RECORDS | BYTES | EPOCH | FIRST STORED | LAST STORED | ")
	t.printf("\n")
}

func (t text) queues(in *store.Inspection) {
	t.printf("queues       %d\n", len(in.Queues))
	if len(in.Queues) > 0 {
		t.table(len(in.Queues), func(tw io.Writer, i int) {
			q := in.Queues[i]
			fmt.Fprintf(tw, "  %s\t%d\t%d\t%d\t%d\t%s\n", printable(q.Topic), q.ID, q.Min, q.Max, q.Records, marks(q.Lost, q.Bad))
		}, "TOPIC | QUEUE | MIN | MAX | RECORDS | ")
	}
	t.printf("\n")
}

func (t text) checkpoint(in *store.Inspection) {
	cp := in.Checkpoint
	switch {
	case cp == nil:
		t.printf("checkpoint   none: the next start reads the whole log\n\n")
		return
	case cp.Clean:
		t.printf("checkpoint   of a clean close")
	default:
		t.printf("checkpoint   of a running store")
	}
	t.printf(": synced up to %d, ", cp.Synced)
	switch {
	case cp.Position == 0:
		t.printf("without queues: the next start reads the whole log\n\n")
	case !cp.Usable:
		t.printf("%s and %s up to %d, but the next start cannot use them and reads the whole log\n\n", count(int64(cp.Queues), "queue"), count(cp.Keys, "key"), cp.Position)
	default:
		t.printf("%s and %s up to %d\n\n", count(int64(cp.Queues), "queue"), count(cp.Keys, "key"), cp.Position)
	}
}

func (t text) findings(in *store.Inspection) {
	if len(in.Findings) == 0 {
		t.printf("found        nothing wrong\n")
		return
	}
	t.printf("found        %s\n", count(int64(len(in.Findings)), "thing"))
	for i, f := range in.Findings {
		if i == maxRows && !t.all {
			t.printf("  ... %d more; --all shows them\n", len(in.Findings)-i)
			break
		}
		t.printf("  %s: %s\n", f.Kind, strings.ReplaceAll(plain(f.Text), "\n", "\n    "))
		t.printf("    what to do: %s\n", f.Remedy)
	}
}

func nextStart(in *store.Inspection) string {
	switch in.Opens {
	case store.OpensCut:
		return fmt.Sprintf("cuts %s off the end, which a crash left incomplete, and goes on", count(int64(in.Cut), "record"))
	case store.OpensReadOnly:
		return "the broker serves what is before the damage and refuses sends"
	case store.OpensRefused:
		return "the broker refuses to start"
	}
	for _, f := range in.Findings {
		if f.Kind == store.FindingDamage {
			return "the broker starts, but a consumer that comes to the damage gets errors and stays there"
		}
	}
	return "the folder opens as it is"
}

// plan says what a salvage will do.
func (t text) plan(in *store.Inspection) {
	p := in.Salvage
	if p == nil {
		t.printf("\nsalvage      there is nothing to salvage\n")
		return
	}
	t.printf("\nsalvage      will change %s\n", count(int64(len(p.Files)), "file"))
	for i, f := range p.Files {
		if i == maxRows && !t.all {
			t.printf("  ... %d more; --all shows them\n", len(p.Files)-i)
			break
		}
		t.printf("  %s %s: %s\n", f.Action, filepath.Base(filepath.Dir(f.Path)), fileSummary(f))
	}
	if p.First > 0 {
		t.printf("  write commitlog/first: the log begins at position %d\n", p.First)
	}
	t.summary(p, "keep", "lose")
	t.printf("  copies of all that changes, and a report, go to a folder %s\n", filepath.Join(in.Dir, "salvage-TIME"))
}

func fileSummary(f store.SalvagedFile) string {
	var parts []string
	if f.Action != store.SalvageMake && f.Action != store.SalvageRemove {
		parts = append(parts, fmt.Sprintf("keeps %s", count(f.Kept, "entry")))
	}
	if f.Header {
		parts = append(parts, "gets a new header")
	}
	if len(f.Lost) > 0 {
		parts = append(parts, "marks as lost "+ranges(f.Lost, 5))
	}
	if f.Cut > 0 {
		parts = append(parts, fmt.Sprintf("drops %s that are no record", count(f.Cut, "byte")))
	}
	return strings.Join(parts, ", ")
}

// summary says what is kept and lost.
func (t text) summary(p *store.SalvagePlan, keep, lose string) {
	t.printf("  %s %s, %s %s", keep, count(p.Kept, "record"), lose, count(p.LostRecords, "record"))
	if len(p.Lost) > 0 {
		limit := 20
		if t.all {
			limit = len(p.Lost)
		}
		t.printf(": %s", ranges(p.Lost, limit))
	}
	t.printf("\n")
	for i, g := range p.Queues {
		if i == maxRows && !t.all {
			t.printf("  ... %d more gaps; --all shows them\n", len(p.Queues)-i)
			break
		}
		t.printf("  topic %q queue %d: consumers pass over %s\n", g.Topic, g.Queue, offsets(g.First, g.Last))
	}
	if p.Unplaced > 0 {
		t.printf("  of %s nothing tells the queue: parts of open transactions, or the last of their queues, whose offsets are given out again\n", count(p.Unplaced, "lost record"))
	}
}

// applied says what a salvage has done.
func (t text) applied(p *store.SalvagePlan, done *applied) {
	t.printf("\nsalvaged     %s changed\n", count(int64(len(p.Files)), "file"))
	t.summary(p, "kept", "lost")
	t.printf("  copies and report: %s; remove it when you do not need it any more\n\n", done.Folder)
	t.printf("inspected again\n")
	t.findings(done.After)
	t.printf("next start   %s; it reads the whole log once, to rebuild what is derived from it\n", nextStart(done.After))
}

func ranges(list []store.PositionRange, limit int) string {
	word := "positions "
	if len(list) == 1 && list[0].First == list[0].Last {
		word = "position "
	}
	var parts []string
	for i, r := range list {
		if i == limit {
			parts = append(parts, fmt.Sprintf("... %d more", len(list)-i))
			break
		}
		parts = append(parts, span(r.First, r.Last))
	}
	return word + strings.Join(parts, ", ")
}

func offsets(first, last int64) string {
	if first == last {
		return fmt.Sprintf("offset %d", first)
	}
	return fmt.Sprintf("offsets %s", span(first, last))
}

// span prints a range, both ends included.
func span(first, last int64) string {
	switch {
	case first > last:
		return "-"
	case first == last:
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

func marks(lost, bad int64) string {
	var parts []string
	if bad > 0 {
		parts = append(parts, fmt.Sprintf("%d unreadable", bad))
	}
	if lost > 0 {
		parts = append(parts, fmt.Sprintf("%d lost", lost))
	}
	return strings.Join(parts, ", ")
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

func count(n int64, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "ry"):
		what = strings.TrimSuffix(what, "y") + "ies"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func size(n int64) string {
	const unit = 1 << 10
	switch {
	case n < unit:
		return fmt.Sprintf("%d B", n)
	case n < unit*unit:
		return fmt.Sprintf("%.1f KiB", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/unit/unit)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/unit/unit/unit)
}

// printable is a name as it is, or quoted if it could be taken for something else.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.TrimSpace(name) == "" {
		return quoted
	}
	return name
}

// plain is a text without control characters but for line breaks.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
