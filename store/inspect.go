package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"
)

// OpenOutcome is what will become of a folder when a store opens it.
type OpenOutcome string

// Outcomes of an open.
const (
	OpensClean    OpenOutcome = "clean"     // as it is
	OpensCut      OpenOutcome = "cut"       // after a torn end is cut off
	OpensReadOnly OpenOutcome = "read-only" // up to where the damage begins, for reading
	OpensRefused  OpenOutcome = "refused"   // not at all
)

// FindingKind says what sort of thing a [Finding] is.
type FindingKind string

// Kinds of findings.
const (
	FindingDamage        FindingKind = "damage"        // positions in a file that cannot be read
	FindingHeader        FindingKind = "header"        // a file without a valid header
	FindingMissing       FindingKind = "missing"       // positions that no file holds
	FindingTorn          FindingKind = "torn"          // an end that a crash left, never promised to anybody
	FindingRest          FindingKind = "rest"          // bytes behind the last record of a file that is not the last
	FindingContradiction FindingKind = "contradiction" // readable records that cannot all be right
	FindingStray         FindingKind = "stray"         // a file that does not belong there and keeps the store from opening
	FindingBeginning     FindingKind = "beginning"     // nothing tells where the log begins
	FindingQueues        FindingKind = "queues"        // consume queues, or a key index, that do not fit the log, from which they can be rebuilt
	FindingIndex         FindingKind = "index"         // a file of the key index that is damaged; as above
)

// Finding is one thing that is not as it should be, in words for people.
type Finding struct {
	Kind   FindingKind `json:"kind"`
	Path   string      `json:"path"`            // the file, or the folder where one is missing
	First  int64       `json:"first,omitempty"` // positions that it is about; 0 when it is about none
	Last   int64       `json:"last,omitempty"`
	Byte   int64       `json:"byte,omitempty"` // where in the file it begins
	Text   string      `json:"text"`
	Remedy string      `json:"remedy"`
	// Harmless tells that nothing is to be done: the next open mends it, and loses
	// nothing by it.
	Harmless bool `json:"harmless,omitempty"`
}

// InspectedFile is one file of the commit log.
type InspectedFile struct {
	Path    string    `json:"path"`    // of the segment
	First   int64     `json:"first"`   // positions that it holds; Last is First - 1 when none
	Last    int64     `json:"last"`    // readable or not
	Bytes   int64     `json:"bytes"`   // on disk
	Epoch   int64     `json:"epoch"`   // 0 without a valid header
	Created time.Time `json:"created"` // by its header; zero without a valid one
	Records int64     `json:"records"` // readable
	Lost    int64     `json:"lost"`    // marked as lost by an earlier salvage
	Bad     int64     `json:"bad"`     // positions that cannot be read
	// Store times of the first and the last readable record; zero without one.
	FirstStored time.Time `json:"firstStored,omitzero"`
	LastStored  time.Time `json:"lastStored,omitzero"`
}

// InspectedQueue is one queue, as the readable records tell it.
type InspectedQueue struct {
	Topic   string `json:"topic"`
	ID      int    `json:"id"`
	Min     int64  `json:"min"`     // its first offset
	Max     int64  `json:"max"`     // the offset that the next record gets: one more than its last
	Records int64  `json:"records"` // readable
	Lost    int64  `json:"lost"`    // marked as lost by an earlier salvage
	Bad     int64  `json:"bad"`     // offsets in between whose records cannot be read
}

// InspectedCheckpoint is the checkpoint of a folder.
type InspectedCheckpoint struct {
	Clean    bool  `json:"clean"`    // written by a Close
	Synced   int64 `json:"synced"`   // the log was synced up to here
	Position int64 `json:"position"` // its queues and its index hold the records up to here; 0: it holds none
	Min      int64 `json:"min"`      // first position of the log
	Queues   int   `json:"queues"`
	Keys     int64 `json:"keys"` // entries of its key index
	Runs     int   `json:"runs"` // of the index, in files
	// Usable tells that the next open takes its queues over and reads only what
	// is behind them; else it reads the whole log.
	Usable bool `json:"usable"`
}

// Inspection is what a data folder holds. Its JSON names are stable.
type Inspection struct {
	Dir     string `json:"dir"`
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Broker  string `json:"broker"`
	ID      int64  `json:"id"`

	First   int64 `json:"first"`   // positions of the log; Last is First - 1 when it is empty
	Last    int64 `json:"last"`    // readable, or proven to have been there
	Synced  int64 `json:"synced"`  // proven to have been synced up to here
	Records int64 `json:"records"` // readable
	Lost    int64 `json:"lost"`    // marked as lost by an earlier salvage
	Bytes   int64 `json:"bytes"`   // of the commit log

	Files      []InspectedFile      `json:"files"`      // in the order of the log
	Queues     []InspectedQueue     `json:"queues"`     // in the order in which they were first written
	Checkpoint *InspectedCheckpoint `json:"checkpoint"` // nil without a valid one

	Opens OpenOutcome `json:"opens"`
	// Cut counts the records that the next open cuts off, as [Store.Cut] will.
	Cut      int       `json:"cut"`
	Findings []Finding `json:"findings"` // empty when all is well
	// Salvage is what a salvage would do; nil when there is nothing to salvage, or
	// when it cannot be.
	Salvage *SalvagePlan `json:"salvage"`
}

// Inspect reads a data folder that no store has open: that of a stopped broker,
// or a copy. It reads every record, and runs the check that [Store.Check] is over
// what its checkpoint covers. It changes nothing. It holds the folder's lock
// meanwhile, if there is a lock file, so that no store opens it.
//
// What it finds wrong is in the result, not in the error. Errors: [ErrInUse];
// [ErrNotAStore] and [ErrNewerFormat]; the error of ctx; those of the file
// system. It takes as long as reading the log twice, or three times when the next
// open has to read it all, and memory for one file and for what is lost.
func Inspect(ctx context.Context, dir string) (_ *Inspection, err error) {
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
	in := inspector{folder: f, survey: s, result: &Inspection{
		Dir: f.dir, Format: f.identity.Format, Cluster: f.identity.Cluster, Broker: f.identity.Broker, ID: f.identity.ID,
		Opens: OpensClean, Files: []InspectedFile{}, Queues: []InspectedQueue{}, Findings: []Finding{},
	}}
	return in.result, in.run(ctx)
}

// inspector puts together what an Inspect found.
type inspector struct {
	folder *folder
	survey *survey
	result *Inspection
	// good is the position up to which every record can be read.
	good int64
	// usable tells that the next open takes the queues of the checkpoint over, and
	// damage is what it then meets in the log behind them.
	usable bool
	damage error
}

const (
	salvageRemedy = "restore the file from a copy, or keep what can be read with inspect --salvage"
	rebuildRemedy = "remove the file checkpoint in the data folder before the next start, which then rebuilds consume queues and key index from the log"
	proofRemedy   = "start the broker and close it, so that commitlog/synced keeps what only the file checkpoint proves of the log; then remove that file, and the start after rebuilds consume queues and key index"
)

func (in *inspector) run(ctx context.Context) error {
	r, s := in.result, in.survey
	if err := in.foresee(); err != nil {
		return err
	}
	in.files()
	in.queues()
	if err := s.contradiction(); err != nil {
		in.find(Finding{Kind: FindingContradiction, Path: s.dir, Text: err.Error(), Remedy: "restore the folder from a copy"})
	} else if plan, err := planSalvage(in.folder, s); err == nil && !plan.Empty() {
		r.Salvage = plan
	} else if errors.Is(err, ErrDamaged) {
		in.find(Finding{Kind: FindingContradiction, Path: s.dir, Text: err.Error(), Remedy: "restore the folder from a copy"})
	} else if err != nil {
		return err
	}
	if err := in.check(ctx); err != nil {
		return err
	}
	return in.outcome()
}

func (in *inspector) find(f Finding) { in.result.Findings = append(in.result.Findings, f) }

// millis is a time in milliseconds as a time in UTC; 0 is no time.
func millis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// files describes the files, and what is wrong in and between them.
func (in *inspector) files() {
	r, s := in.result, in.survey
	r.First, r.Last, r.Synced = s.first, s.first-1, s.synced
	in.good = -1
	at := s.first
	if s.unmarked {
		path := filepath.Join(s.dir, firstName)
		in.find(Finding{
			Kind: FindingBeginning, Path: path, First: s.first,
			Text:   fmt.Sprintf("%s: %s; the first file there is begins at position %d, and whether there should be others before it is not known", path, in.folder.recovery.lost, s.first),
			Remedy: "restore the file from a copy, or take the first file for the beginning with inspect --salvage",
		})
	}
	for i := range s.files {
		f := &s.files[i]
		if f.base > at {
			in.missing(at, f.base-1)
		}
		next := s.end(i)
		end := next // of what this file should hold
		if f.tail == int(f.size) {
			end = f.next // what is missing behind it is missing as a whole
		}
		file := InspectedFile{
			Path: f.path, First: f.base, Last: end - 1, Bytes: f.size, Records: f.records, Lost: f.lost,
			FirstStored: millis(f.firstTime), LastStored: millis(f.lastTime), Bad: end - f.base - f.records - f.lost,
		}
		if f.headerSize > 0 {
			file.Epoch, file.Created = f.header.epoch, millis(f.header.created)
		}
		r.Files = append(r.Files, file)
		r.Records += f.records
		r.Lost += f.lost
		r.Bytes += f.size
		in.file(f, end, i+1 == len(s.files))
		at = end
		if i+1 == len(s.files) && end < next {
			in.missing(end, next-1)
			at = next
		}
	}
	if len(s.files) == 0 && s.synced >= at {
		in.missing(at, s.synced)
		at = s.synced + 1
	}
	r.Last = at - 1
	if in.good < 0 {
		in.good = r.Last
	}
}

// spoilt notes that nothing from a position on is known to be readable.
func (in *inspector) spoilt(position int64) {
	if in.good < 0 {
		in.good = position - 1
	}
}

func (in *inspector) missing(first, last int64) {
	in.spoilt(first)
	in.find(Finding{
		Kind: FindingMissing, Path: in.survey.dir, First: first, Last: last,
		Text:   fmt.Sprintf("%s: no file holds %s", in.survey.dir, positions(first, last)),
		Remedy: "restore the files from a copy, or go on without their records with inspect --salvage",
	})
}

func positions(first, last int64) string {
	if first == last {
		return fmt.Sprintf("position %d", first)
	}
	return fmt.Sprintf("the positions %d to %d", first, last)
}

func had(first, last int64) string {
	if first == last {
		return "it had"
	}
	return "they had"
}

// file looks for what is wrong in one file, which should end before a position.
func (in *inspector) file(f *surveyedFile, end int64, lastOne bool) {
	note := ""
	if f.unread > 0 {
		note = fmt.Sprintf("; the disk does not give back %d bytes of it", f.unread)
	}
	if f.headerSize == 0 && !(lastOne && end == f.base) {
		in.spoilt(f.base)
		in.find(Finding{
			Kind: FindingHeader, Path: f.path, First: f.base, Last: end - 1,
			Text: fmt.Sprintf("%s has no valid header%s", f.path, note), Remedy: salvageRemedy,
		})
	}
	for _, h := range f.holes {
		if h.first == h.next {
			continue
		}
		in.bad(f, h.first, h.next-1, int64(h.from), note)
	}
	rest := f.size - int64(f.tail)
	switch {
	case f.next < end:
		in.bad(f, f.next, end-1, int64(f.tail), note)
	case rest > 0 && lastOne:
		in.spoilt(f.next)
		in.find(Finding{
			Kind: FindingTorn, Path: f.path, First: f.next, Byte: int64(f.tail),
			Text:   fmt.Sprintf("%s ends in %d bytes that are no record, from byte %d on: what a crash leaves of a write that nobody was promised to survive it", f.path, rest, f.tail),
			Remedy: in.ifOpens("nothing: the next start cuts them off"), Harmless: in.result.Opens != OpensReadOnly,
		})
	case rest > 0:
		in.spoilt(f.next)
		in.find(Finding{
			Kind: FindingRest, Path: f.path, Byte: int64(f.tail),
			Text: fmt.Sprintf("%s goes on for %d bytes behind its last record, from byte %d on", f.path, rest, f.tail), Remedy: salvageRemedy,
		})
	}
}

// ifOpens is a remedy that goes without saying, unless other damage makes the next
// open a read-only one, which changes nothing.
func (in *inspector) ifOpens(remedy string) string {
	if in.result.Opens == OpensReadOnly {
		return "inspect --salvage, which is needed for the other damage, cuts off what cannot be read here and keeps the rest"
	}
	return remedy
}

// bad reports positions of a file that cannot be read.
func (in *inspector) bad(f *surveyedFile, first, last, off int64, note string) {
	in.spoilt(first)
	finding := Finding{
		Kind: FindingDamage, Path: f.path, First: first, Last: last, Byte: off,
		Text:   fmt.Sprintf("%s: %s cannot be read, from byte %d on%s; %s been synced", f.path, positions(first, last), off, note, had(first, last)),
		Remedy: salvageRemedy,
	}
	if first > in.survey.synced {
		finding.Kind = FindingTorn
		finding.Text = fmt.Sprintf("%s: %s cannot be read, from byte %d on%s; nothing proves that %s been synced, but readable records follow", f.path, positions(first, last), off, note, had(first, last))
		finding.Remedy = in.ifOpens("the next start cuts the log off here; to keep the records behind, use inspect --salvage before")
	}
	in.find(finding)
}

func (in *inspector) queues() {
	t := &in.survey.queues
	for _, key := range t.order {
		q := t.queues[key]
		in.result.Queues = append(in.result.Queues, InspectedQueue{
			Topic: key.Topic, ID: key.ID, Min: q.min, Max: q.next, Records: q.records, Lost: q.voids, Bad: q.missing,
		})
	}
}

// foresee finds out what the next open will do, by its own steps.
func (in *inspector) foresee() error {
	r := in.result
	switch bad := in.folder.recovery.bad; {
	case bad != nil && in.folder.recovery.damaged():
		r.Opens = OpensReadOnly
	case bad != nil && in.folder.recovery.cut > 0:
		r.Opens, r.Cut = OpensCut, in.folder.recovery.cut
	}
	s := in.folder.found()
	defer s.log.handles.close()
	after := s.log.min() - 1
	if cp := in.folder.checkpoint; s.covers(cp) && s.extents.match(cp.extents, cp.next) && s.index.show(cp.index, s.log.min()) {
		s.queues.replace(cp.restored())
		err := s.trimQueues(s.log.min())
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		if in.usable = err == nil; in.usable {
			after = cp.position
		}
	}
	in.damage = s.log.scan(after+1, s.log.written.Load(), func(e logEntry) error {
		_, err := slotOf(e.file.path, e.position, e.record)
		return err
	})
	switch {
	case errors.Is(in.damage, ErrDamaged):
		r.Opens, r.Cut = OpensReadOnly, 0
	case in.damage != nil:
		return in.damage
	}
	return nil
}

// found is a store with the log as recovery found it, good for reading that.
func (f *folder) found() *Store {
	s := f.reader()
	r := f.recovery
	r.files = slices.Clone(r.files)
	for i := range r.files {
		file := newLogFile(f.log.dir, fileHeader{base: r.files[i].base})
		file.header = r.files[i].header
		r.files[i].logFile = file
	}
	s.log.adopt(&r)
	if r.bad != nil && r.damaged() {
		s.damage = ErrDamaged
	}
	return s
}

// restored are the queues of the checkpoint.
func (cp *checkpoint) restored() []*queue {
	list := make([]*queue, len(cp.queues))
	for i, st := range cp.queues {
		list[i] = st.restore(uint32(i))
	}
	return list
}

// check runs Check over what the checkpoint covers of what can be read.
func (in *inspector) check(ctx context.Context) error {
	cp := in.folder.checkpoint
	if cp == nil {
		return nil
	}
	r := &InspectedCheckpoint{
		Clean: cp.clean, Synced: cp.synced, Position: cp.position, Min: cp.min, Runs: len(cp.index.runs), Usable: in.usable,
	}
	for i := range cp.queues {
		if cp.queues[i].key.Topic != "" {
			r.Queues++
		}
	}
	for _, run := range cp.index.runs {
		r.Keys += int64(run.keySpan.entries)
	}
	for i := range cp.index.tables {
		r.Keys += int64(cp.index.tables[i].entries)
	}
	in.result.Checkpoint = r
	s := in.folder.readOnly(cp, in.good)
	defer s.log.handles.close()
	if !in.usable || !s.index.show(cp.index, s.log.min()) || s.dispatched.Load() < s.log.min() {
		return nil
	}
	err := s.trimQueues(s.log.min()) // files may have been deleted since
	if err == nil {
		err = s.Check(ctx)
	}
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	f := Finding{
		Kind: FindingQueues, Path: s.extents.dir,
		Text: fmt.Sprintf("consume queues or key index do not fit the log: %v", err), Remedy: rebuildRemedy,
	}
	if errors.Is(err, errIndexDamaged) {
		f.Kind, f.Path, f.Text = FindingIndex, s.index.dir, fmt.Sprintf("the key index does not fit the log: %v", err)
	}
	if in.folder.marked < cp.synced {
		f.Remedy = proofRemedy
	}
	in.find(f)
	return nil
}

// reader is a store that only reads the folder: it has no goroutines, and it does
// not own it.
func (f *folder) reader() *Store {
	s := &Store{cfg: Config{Dir: f.dir, Logger: slog.New(slog.DiscardHandler)}}
	s.log.dir, s.log.disk, s.log.origin = f.log.dir, f.log.disk, f.log.origin
	s.extents.dir, s.extents.handles = filepath.Join(f.dir, queuesName), &s.log.handles
	s.index.dir, s.index.handles, s.index.limit = filepath.Join(f.dir, indexName), &s.log.handles, tableEntries
	return s
}

// readOnly is a store with the queues of a checkpoint and the log up to a
// position, good for Check and for nothing else.
func (f *folder) readOnly(cp *checkpoint, good int64) *Store {
	s := f.reader()
	files := make([]*logFile, 0, len(f.recovery.files))
	for i := range f.recovery.files {
		file := newLogFile(f.log.dir, fileHeader{base: f.recovery.files[i].base})
		file.size.Store(f.recovery.files[i].size)
		files = append(files, file)
	}
	s.log.files.Store(&files)
	end := min(good, cp.position)
	s.log.written.Store(end)
	s.dispatched.Store(end)
	s.queues.replace(cp.restored())
	if end < cp.position {
		s.dropped.Store(cp.position) // what was dropped behind the end is not in it
	}
	return s
}

// outcome reports what keeps the next open from coming so far.
func (in *inspector) outcome() error {
	path, remedy, err := misplaced(in.folder.dir)
	if err != nil {
		return err
	}
	if path != "" {
		in.result.Opens, in.result.Cut = OpensRefused, 0
		in.find(Finding{
			Kind: FindingStray, Path: path,
			Text: fmt.Sprintf("%s is a file, where a store has a folder, and keeps the store from opening", path), Remedy: remedy,
		})
		return nil
	}
	stray, err := in.stray()
	if err != nil || stray == "" || in.result.Opens == OpensReadOnly {
		return err
	}
	in.result.Opens, in.result.Cut = OpensRefused, 0
	in.find(Finding{
		Kind: FindingStray, Path: stray,
		Text: fmt.Sprintf("%s does not belong there, and keeps the store from opening", stray), Remedy: "move it away",
	})
	return nil
}

// stray finds what lies beside the last segment.
func (in *inspector) stray() (string, error) {
	files := in.folder.recovery.files
	if len(files) == 0 {
		return "", nil
	}
	stray, err := files[len(files)-1].stray()
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return stray, err
}
