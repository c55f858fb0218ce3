package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// PositionRange is a range of positions of the log, both ends included.
type PositionRange struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// QueueGap is a run of offsets of one queue whose records are lost, both ends
// included. Consumers pass over them.
type QueueGap struct {
	Topic string `json:"topic"`
	Queue int    `json:"queue"`
	First int64  `json:"first"`
	Last  int64  `json:"last"`
}

// SalvageAction is what a salvage does with a file.
type SalvageAction string

// Actions of a salvage.
const (
	SalvageRewrite SalvageAction = "rewrite" // readable entries stay as they are, lost ones are marked
	SalvageMake    SalvageAction = "make"    // the file is missing or unreadable: a new one marks all of it as lost
	SalvageRemove  SalvageAction = "remove"  // nothing in it is readable or proven to have been there
)

// SalvagedFile is what a salvage does with one file of the commit log.
type SalvagedFile struct {
	Path   string          `json:"path"` // of the segment
	Action SalvageAction   `json:"action"`
	First  int64           `json:"first"` // positions that the file will hold; Last is First - 1 when none
	Last   int64           `json:"last"`
	Kept   int64           `json:"kept"`   // entries that stay as they are
	Lost   []PositionRange `json:"lost"`   // positions that are marked as lost
	Header bool            `json:"header"` // the file's header is lost, and made anew
	Cut    int64           `json:"cut"`    // bytes behind the last readable record that are dropped
	Before int64           `json:"before"` // size in bytes; -1: there is no file
	After  int64           `json:"after"`
}

// SalvagePlan says what a salvage will do, before it does it. It is made by
// [PlanSalvage]. Its exported fields are its report: Apply does not read them.
type SalvagePlan struct {
	Dir   string         `json:"dir"`
	Files []SalvagedFile `json:"files"` // that change, in the order of the log
	// Lost lists the positions that cannot be read and get marked as lost.
	Lost []PositionRange `json:"lost"`
	// LostRecords counts them. Kept counts the records that can be read, in all
	// files, changed or not.
	LostRecords int64 `json:"lostRecords"`
	Kept        int64 `json:"kept"`
	// Queues lists the offsets, by topic, queue and offset, whose records are
	// among the lost ones. Unplaced counts lost positions of which nothing tells
	// the queue: they were records of open transactions, which no queue holds,
	// or the last ones of their queue. A queue that lost its last records in this
	// way gives out their offsets again.
	Queues   []QueueGap `json:"queues"`
	Unplaced int64      `json:"unplaced"`
	// First is where the log begins, if the file that tells, commitlog/first, is
	// damaged and written anew; else 0. The offsets of queues of which no record is
	// left are not known then, and begin at 0 again.
	First int64 `json:"first"`

	mark       *firstMark // to be written; nil when the one there is stays
	survey     *survey
	places     map[int64]place
	now        int64 // milliseconds, stamped into lost entries
	seen       []seenFile
	checkpoint *checkpoint
}

// seenFile is how a file was when the plan was made.
type seenFile struct {
	path    string
	size    int64
	changed time.Time
}

// Empty reports whether there is nothing to salvage: every record up to the end
// of the log, or up to a torn end that the next open will cut, can be read.
func (p *SalvagePlan) Empty() bool { return len(p.Files) == 0 && p.First == 0 }

// PlanSalvage reads the whole log of a data folder that no store has open, and
// plans how to make it one that can be opened and written again when records
// that had been synced cannot be read any more. It changes nothing.
//
// Every record that can be read is kept as it is: its position, its queue, its
// offset. Each lost position gets a lost entry in its place. Where the offsets of
// the records around it, or the queues of the last checkpoint, tell to which
// queue and offset it belonged, consumers find a void there and pass over it.
// Unreadable bytes behind the last record that is readable or proven to have
// been synced are cut.
//
// Errors: [ErrInUse]; [ErrNotAStore] and [ErrNewerFormat]; [ErrDamaged] when
// readable records contradict each other, which a salvage cannot decide; the
// error of ctx; those of the file system. It takes as long as reading the log.
func PlanSalvage(ctx context.Context, dir string) (_ *SalvagePlan, err error) {
	release, err := borrow(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	f, err := lookAt(dir)
	if err != nil {
		return nil, err
	}
	s, err := f.survey(ctx)
	if err != nil {
		return nil, err
	}
	return planSalvage(f, s)
}

func planSalvage(f *folder, s *survey) (*SalvagePlan, error) {
	if err := s.contradiction(); err != nil {
		return nil, fmt.Errorf("store: %s cannot be salvaged: %w", f.dir, err)
	}
	p := &SalvagePlan{Dir: f.dir, survey: s, now: nowMillis(), checkpoint: f.checkpoint}
	seen, err := seeFiles(f.dir, s)
	if err != nil {
		return nil, err
	}
	p.seen = seen
	switch {
	case s.unmarked:
		p.First = s.first
		p.mark = &firstMark{position: s.first, bytes: max(0, s.files[0].header.bytes), epoch: s.files[0].header.epoch}
	case f.beginning.again: // the checkpoint tells, and is about to be replaced
		p.mark = &firstMark{position: s.first, queues: f.beginning.queues}
		if len(s.files) > 0 {
			p.mark.bytes, p.mark.epoch = s.files[0].header.bytes, s.files[0].header.epoch
		}
	}
	var lost []span
	if err := p.rewriter(func(c fileChange, content []byte) error {
		lost = append(lost, c.lost...)
		return nil
	}).run(); err != nil {
		return nil, err
	}
	if p.places, err = f.attribute(s, lost); err != nil {
		return nil, fmt.Errorf("store: %s cannot be salvaged: %w", f.dir, err)
	}
	return p, p.describe()
}

// rewriter makes the one that carries the plan out, or plays it through.
func (p *SalvagePlan) rewriter(emit func(fileChange, []byte) error) *rewriter {
	return &rewriter{survey: p.survey, places: p.places, now: p.now, emit: emit}
}

// contradiction tells why nobody can say what the log holds.
func (s *survey) contradiction() error {
	for i := range s.files {
		f := &s.files[i]
		if f.stray > 0 && i+1 < len(s.files) {
			return fmt.Errorf("%w: commit log file %s holds readable records that belong to the file behind it, %s; the two are from different copies of the log: put away the wrong one",
				ErrDamaged, f.path, s.files[i+1].path)
		}
		if i > 0 && f.headerSize > 0 && s.files[i-1].headerSize > 0 && f.header.epoch < s.files[i-1].header.epoch {
			return fmt.Errorf("%w: commit log file %s is of epoch %d and the one before it, %s, of epoch %d; they are from different histories of the log: put away the wrong ones",
				ErrDamaged, f.path, f.header.epoch, s.files[i-1].path, s.files[i-1].header.epoch)
		}
	}
	return s.queues.conflict
}

// attribute finds out to which queue each lost position belonged: with what a
// checkpoint says, or without when that does not fit.
func (f *folder) attribute(s *survey, lost []span) (map[int64]place, error) {
	if cp := f.hinting(); cp != nil {
		hints, exact := f.hints(cp, lost)
		if places, err := s.queues.attribute(lost, hints, exact); err == nil {
			return places, nil
		}
	}
	return s.queues.attribute(lost, nil, 0)
}

// hinting is the newest checkpoint that still holds the queues: that of the
// folder, or the copy of a salvage that was not finished.
func (f *folder) hinting() *checkpoint {
	if cp := f.checkpoint; cp != nil && cp.position > 0 {
		return cp
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil // then do without
	}
	for _, e := range slices.Backward(entries) {
		if !strings.HasPrefix(e.Name(), salvagePrefix) {
			continue
		}
		dir := filepath.Join(f.dir, e.Name())
		if _, err := os.Stat(filepath.Join(dir, reportName)); err == nil {
			continue // finished
		}
		if cp, err := loadCheckpoint(dir); err == nil && cp != nil && cp.position > 0 {
			return cp
		}
	}
	return nil
}

// hints reads what the queues of a checkpoint say about lost positions. exact is
// the position up to which they say all there is to say; 0 when a block of a
// queue cannot be read.
func (f *folder) hints(cp *checkpoint, lost []span) (hints []hint, exact int64) {
	x := extents{dir: filepath.Join(f.dir, queuesName), handles: &handles{}}
	defer x.handles.close()
	exact = cp.position
	stamped := x.stamped(cp.extents)
	for i, st := range cp.queues {
		v := view{id: uint32(i), base: st.base, blocks: st.blocks, tail: st.tail, min: st.min}
		if !stamped && len(v.blocks) > 0 {
			v.base, v.blocks, exact = v.tailBase(), nil, 0
		}
		found, err := v.hintsOf(&x, st.key, lost)
		if err != nil {
			exact = 0
			v.base, v.blocks = v.tailBase(), nil
			found, _ = v.hintsOf(&x, st.key, lost) // the tail needs no file
		}
		hints = append(hints, found...)
	}
	return hints, exact
}

// stamped reports whether the files of a checkpoint are those it was made with.
func (x *extents) stamped(states []extentState) bool {
	for _, st := range states {
		e := extent{number: st.number, stamp: st.stamp}
		head, err := readStart(filepath.Join(x.dir, numberedName(st.number)), blockSize)
		if err != nil || string(head) != string(e.stampBlock()) {
			return false
		}
	}
	return true
}

// hintsOf finds the units of a queue that point at lost positions.
func (v *view) hintsOf(x *extents, key QueueID, lost []span) (hints []hint, err error) {
	var units []byte // from offset at on
	at := int64(-1)
	position := func(offset int64) int64 {
		if i := offset - at; at < 0 || i < 0 || i >= int64(len(units)/unitSize) {
			// The whole block, so that the search stays in it.
			start := offset
			if t := v.tailBase(); offset >= t {
				start = t
			} else {
				start -= (offset - v.base) % blockUnits
			}
			var got []byte
			if got, err = v.units(x, start); err != nil {
				return 0
			}
			units, at = got, start
		}
		return unitAt(units, int(offset-at)).position
	}
	for _, s := range lost {
		lo, hi := v.base, v.max()
		for lo < hi && err == nil {
			if mid := lo + (hi-lo)/2; position(mid) < s.first {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		for ; lo < v.max() && err == nil; lo++ {
			p := position(lo)
			if err != nil || p > s.last {
				break
			}
			hints = append(hints, hint{position: p, key: key, offset: lo})
		}
		if err != nil {
			return nil, err
		}
	}
	return hints, nil
}

// describe fills in the report of the plan by playing it through.
func (p *SalvagePlan) describe() error {
	p.Files, p.Lost, p.Queues = []SalvagedFile{}, []PositionRange{}, []QueueGap{}
	needed := false
	err := p.rewriter(func(c fileChange, content []byte) error {
		if content != nil {
			if err := verifyFile(content, p.path(c), c.base, c.last); err != nil {
				return err
			}
		}
		needed = needed || !c.torn
		p.Files = append(p.Files, p.change(c, content))
		for _, s := range c.lost {
			if n := len(p.Lost); n > 0 && p.Lost[n-1].Last == s.first-1 {
				p.Lost[n-1].Last = s.last
			} else {
				p.Lost = append(p.Lost, PositionRange{First: s.first, Last: s.last})
			}
			p.LostRecords += s.last - s.first + 1
		}
		return nil
	}).run()
	if err != nil {
		return err
	}
	if !needed && p.First == 0 {
		p.Files = []SalvagedFile{}
	}
	for i := range p.survey.files {
		p.Kept += p.survey.files[i].records
	}
	p.Unplaced = p.LostRecords - int64(len(p.places))
	p.Queues = gapsOf(p.places)
	return nil
}

// gapsOf sums up the places of lost records.
func gapsOf(places map[int64]place) []QueueGap {
	list := make([]place, 0, len(places))
	for _, at := range places {
		list = append(list, at)
	}
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(strings.Compare(a.key.Topic, b.key.Topic), cmp.Compare(a.key.ID, b.key.ID), cmp.Compare(a.offset, b.offset))
	})
	gaps := []QueueGap{}
	for _, at := range list {
		if n := len(gaps); n > 0 && gaps[n-1].Topic == at.key.Topic && gaps[n-1].Queue == at.key.ID && gaps[n-1].Last == at.offset-1 {
			gaps[n-1].Last = at.offset
			continue
		}
		gaps = append(gaps, QueueGap{Topic: at.key.Topic, Queue: at.key.ID, First: at.offset, Last: at.offset})
	}
	return gaps
}

func (p *SalvagePlan) path(c fileChange) string {
	return newLogFile(p.survey.dir, fileHeader{base: c.base}).path
}

func (p *SalvagePlan) change(c fileChange, content []byte) SalvagedFile {
	f := SalvagedFile{
		Path: p.path(c), Action: SalvageRewrite, First: c.base, Last: c.last, Kept: c.kept, Lost: []PositionRange{},
		Header: c.header, Cut: c.cut, Before: -1, After: int64(len(content)),
	}
	if c.from != nil {
		f.Before = c.from.size
	}
	switch {
	case content == nil:
		f.Action = SalvageRemove
	case c.kept == 0 && c.header:
		f.Action = SalvageMake
	}
	for _, s := range c.lost {
		f.Lost = append(f.Lost, PositionRange{First: s.first, Last: s.last})
	}
	return f
}

// seeFiles notes how everything is that a plan depends on.
func seeFiles(dir string, s *survey) ([]seenFile, error) {
	paths := []string{filepath.Join(dir, formatName), filepath.Join(dir, checkpointName), filepath.Join(s.dir, firstName), filepath.Join(s.dir, syncedName)}
	r := recovery{}
	c := commitLog{dir: s.dir}
	if err := c.list(&r); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for i := range r.files {
		paths = append(paths, r.files[i].path)
	}
	var seen []seenFile
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			seen = append(seen, seenFile{path: path, size: -1})
		case err != nil:
			return nil, err
		default:
			seen = append(seen, seenFile{path: path, size: info.Size(), changed: info.ModTime()})
		}
	}
	return seen, nil
}

const (
	// salvagePrefix begins the names of the folders of salvages; the time
	// follows. reportName is what a finished one has in it.
	salvagePrefix = "salvage-"
	reportName    = "REPORT.json"
	stagedName    = "staged"
)

// Apply does what the plan says, and returns the folder in which it put copies
// of all that it changed, with the plan as REPORT.json: "salvage-" and the time
// in UTC, in the data folder. Nothing reads that folder again; remove it when you
// do not need it any more.
//
// What a kill or a power cut leaves half done is as damaged as before or less: a
// new plan completes it. The first open after a salvage rebuilds the consume
// queues from the log.
//
// Errors: [ErrInUse]; an error that asks for a new plan when the folder has
// changed since this one was made; the error of ctx; those of the file system.
// An empty plan does nothing.
func (p *SalvagePlan) Apply(ctx context.Context) (folder string, err error) {
	return p.apply(ctx, durable())
}

func (p *SalvagePlan) apply(ctx context.Context, disk syncer) (_ string, err error) {
	if p.Empty() {
		return "", nil
	}
	lock, err := lockFile(filepath.Join(p.Dir, lockName))
	if errors.Is(err, errLocked) {
		return "", inUse(p.Dir)
	}
	if err != nil {
		return "", fmt.Errorf("store: lock folder %s: %w", p.Dir, err)
	}
	defer func() { err = errors.Join(err, unlockFile(lock)) }()
	seen, err := seeFiles(p.Dir, p.survey)
	if err != nil {
		return "", err
	}
	if !slices.Equal(seen, p.seen) {
		return "", fmt.Errorf("store: folder %s has changed since the salvage was planned; look at a new plan", p.Dir)
	}
	w := salvager{plan: p, disk: disk}
	if err := w.run(ctx); err != nil {
		return w.dir, fmt.Errorf("store: salvage of %s stopped; nothing readable is lost, plan it again when the cause is gone: %w", p.Dir, err)
	}
	return w.dir, nil
}

// salvager carries a plan out, in an order in which every stop leaves a folder
// that can be planned again:
//
//  1. stage the new files in the salvage's folder, and copy the old ones there;
//  2. write commitlog/first if it is damaged, put into commitlog/synced all that is
//     proven to be synced, and replace the checkpoint by one without queues, which
//     would point at records that become lost entries;
//  3. put the new files in place, one rename each;
//  4. write the report, which marks the salvage as finished.
type salvager struct {
	plan    *SalvagePlan
	disk    syncer
	dir     string
	changes []fileChange
}

func (w *salvager) run(ctx context.Context) error {
	if err := w.makeDir(); err != nil {
		return err
	}
	if err := w.prepare(ctx); err != nil {
		return errors.Join(err, w.disk.remove(w.dir)) // nothing has been changed
	}
	if m := w.plan.mark; m != nil {
		if err := errors.Join(w.disk.makeDir(w.plan.survey.dir), m.save(w.plan.survey.dir, w.disk)); err != nil {
			return err
		}
	}
	if err := errors.Join(w.keepProof(), w.dropQueues()); err != nil {
		return err
	}
	for _, c := range w.changes {
		if err := w.replace(c); err != nil {
			return err
		}
	}
	if err := w.disk.remove(filepath.Join(w.dir, stagedName)); err != nil {
		return err
	}
	text, err := json.MarshalIndent(w.plan, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(w.dir, reportName), append(text, '\n'), w.disk)
}

// prepare stages the new files and copies the old ones.
func (w *salvager) prepare(ctx context.Context) error {
	err := w.plan.rewriter(func(c fileChange, content []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.changes = append(w.changes, c)
		return w.stage(c, content)
	}).run()
	if err != nil {
		return err
	}
	return w.backUp()
}

// makeDir makes the folder of the salvage under a name that is free.
func (w *salvager) makeDir() error {
	name := salvagePrefix + time.Now().UTC().Format("20060102T150405Z")
	for n := 1; ; n++ {
		w.dir = filepath.Join(w.plan.Dir, name)
		if n > 1 {
			w.dir = filepath.Join(w.plan.Dir, fmt.Sprintf("%s.%d", name, n))
		}
		if _, err := os.Lstat(w.dir); err == nil {
			continue
		}
		return errors.Join(w.disk.makeDir(w.dir), w.disk.dir(w.plan.Dir))
	}
}

func (w *salvager) stagedPath(c fileChange) string {
	return filepath.Join(w.dir, stagedName, fileName(c.base))
}

// stage writes the new content of a file into the salvage's folder.
func (w *salvager) stage(c fileChange, content []byte) error {
	if content == nil {
		return nil
	}
	path := w.stagedPath(c)
	if err := w.disk.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	return w.write(path, content)
}

func (w *salvager) write(path string, content []byte) error {
	f, err := w.disk.create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = w.disk.file(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		w.disk.finished(path)
	}
	return err
}

// backUp copies what will change into the salvage's folder.
func (w *salvager) backUp() error {
	copies := filepath.Join(w.dir, commitLogName)
	if w.plan.mark != nil {
		if err := w.disk.makeDir(copies); err != nil {
			return err
		}
		if err := w.copyFile(filepath.Join(w.plan.survey.dir, firstName), filepath.Join(copies, firstName)); err != nil {
			return err
		}
		if err := w.disk.dir(copies); err != nil {
			return err
		}
	}
	for _, c := range w.changes {
		if c.from == nil {
			continue
		}
		to := filepath.Join(copies, fileName(c.base))
		if err := errors.Join(w.disk.makeDir(copies), w.disk.makeDir(to)); err != nil {
			return err
		}
		if err := w.copyFile(c.from.path, filepath.Join(to, segmentName)); err != nil {
			return err
		}
		if err := errors.Join(w.disk.dir(to), w.disk.dir(copies)); err != nil {
			return err
		}
	}
	if err := w.copyFile(filepath.Join(w.plan.Dir, checkpointName), filepath.Join(w.dir, checkpointName)); err != nil {
		return err
	}
	return w.disk.dir(w.dir)
}

// copyFile copies a file, if it is there. One that the disk does not give back
// gets a second name instead: it must not go when the first one does.
func (w *salvager) copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		w.disk.madeDir(to) // its name; its bytes are those that are there
		return os.Link(from, to)
	}
	return w.write(to, content)
}

// keepProof puts what is proven into commitlog/synced.
func (w *salvager) keepProof() error {
	if w.plan.survey.synced == 0 {
		return nil
	}
	var m syncedMark
	return errors.Join(w.disk.makeDir(w.plan.survey.dir), m.load(w.plan.survey.dir, w.disk), m.raise(w.plan.survey.synced))
}

// dropQueues replaces the checkpoint by one that holds no queues.
func (w *salvager) dropQueues() error {
	cp := w.plan.checkpoint
	if cp == nil || cp.position == 0 {
		return nil
	}
	s := Store{cfg: Config{Dir: w.plan.Dir}}
	s.log.disk = w.disk
	return s.replaceCheckpoint(func(f *os.File) error { return writeProof(f, *cp) })
}

// replace puts one new file in the place of the old one.
func (w *salvager) replace(c fileChange) error {
	path := w.plan.path(c)
	root := filepath.Dir(filepath.Dir(path))
	staged := w.stagedPath(c)
	if _, err := os.Stat(staged); errors.Is(err, fs.ErrNotExist) {
		// Nothing of it stays; its copy has been made.
		return errors.Join(w.disk.remove(filepath.Dir(path)), w.disk.dir(root))
	}
	for _, dir := range []string{root, filepath.Dir(path)} {
		if err := errors.Join(w.disk.makeDir(dir), w.disk.dir(filepath.Dir(dir))); err != nil {
			return err
		}
	}
	return errors.Join(w.disk.rename(staged, path), w.disk.dir(filepath.Dir(path)))
}
