package store

import "fmt"

// Unit is what a queue says about the record at one offset. Java: CqUnit.
type Unit struct {
	Offset   int64
	Position int64 // of the record in the log
	Size     int   // of the record in bytes; 0 when it is lost, see [PlanSalvage]
	TagsCode int64 // hash of the tag; of a record of message.ScheduleTopic: when it is due, in milliseconds since 1970
}

// Units returns up to limit units of a queue from an offset on, at least one if
// there is one: fewer than limit do not mean that the queue ends behind them. An
// unknown queue, and an offset outside of it, have none. It reads no record. Errors
// are those of [Store.Get]. It may block for reads from disk. Safe for concurrent
// use; the slice belongs to the caller.
func (s *Store) Units(topic string, queueID int, offset int64, limit int) ([]Unit, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	q := s.queues.get(QueueID{topic, queueID})
	if q == nil {
		return nil, nil
	}
	v := q.view()
	if offset < v.min || offset >= v.max() {
		return nil, nil
	}
	raw, err := v.units(&s.extents, offset)
	if err != nil {
		if offset < q.bounds().Min { // deleted meanwhile
			return nil, nil
		}
		return nil, s.readError(GetRequest{Topic: topic, QueueID: queueID, Offset: offset}, fmt.Errorf("units: %w", err))
	}
	units := make([]Unit, min(max(limit, 1), len(raw)/unitSize))
	for i := range units {
		u := unitAt(raw, i)
		units[i] = Unit{Offset: offset + int64(i), Position: u.position, Size: int(u.size), TagsCode: u.tags}
	}
	return units, nil
}
