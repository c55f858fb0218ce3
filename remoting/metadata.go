package remoting

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// fieldPosition is the log position that what an answer says presumes.
const fieldPosition = "pmq.position"

// groupSeparator joins topic and group in the name of an entry. Java:
// ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR.
const groupSeparator = "@"

// groupOffsets writes a table of numbers that groups have in queues, sorted:
// {"topic@group":{"0":12}}.
func (w *writer) groupOffsets(name string, all []protocol.GroupOffset) {
	w.object(name)
	for i, o := range all {
		if i == 0 || all[i-1].Topic != o.Topic || all[i-1].Group != o.Group {
			if i > 0 {
				w.shut('}')
			}
			w.object(o.Topic + groupSeparator + o.Group)
		}
		w.int(strconv.Itoa(o.QueueID), o.Offset)
	}
	if len(all) > 0 {
		w.shut('}')
	}
	w.shut('}')
}

// groupOffsetsOf reads such a table. An entry that names no topic and group, no
// queue, or no number, is passed over; of two for one queue the last counts.
func groupOffsetsOf(table Value) []protocol.GroupOffset {
	var all []protocol.GroupOffset
	table.Each(func(name, queues Value) {
		topic, group, ok := strings.Cut(name.Text(), groupSeparator)
		if !ok {
			return
		}
		queues.Each(func(id, offset Value) {
			q, ok := parseInteger(id.Text())
			n, isNumber := parseInteger(offset.Text())
			if ok && isNumber && q == int64(int32(q)) && q >= -1 {
				all = append(all, protocol.GroupOffset{Group: group, Topic: topic, QueueID: int(q), Offset: n})
			}
		})
	})
	slices.SortStableFunc(all, comparePlaces)
	last := all[:0]
	for i, o := range all {
		if i+1 == len(all) || comparePlaces(o, all[i+1]) != 0 {
			last = append(last, o)
		}
	}
	return last
}

func comparePlaces(a, b protocol.GroupOffset) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group), cmp.Compare(a.QueueID, b.QueueID))
}

// getAllConsumerOffset asks a broker for the offsets of all groups. The members of
// the body that RocketMQ has not, it passes over. Java:
// AdminBrokerProcessor.getAllConsumerOffset.
func getAllConsumerOffset() *command[protocol.BrokerConn, protocol.GetAllConsumerOffsetRequest, protocol.GetAllConsumerOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.GetAllConsumerOffsetRequest, protocol.GetAllConsumerOffsetResponse]{
		name:   "GetAllConsumerOffset",
		codes:  []protocol.Code{protocol.CodeGetAllConsumerOffset},
		method: protocol.BrokerConn.GetAllConsumerOffset,
		encodeRequest: func(q *protocol.GetAllConsumerOffsetRequest, f *Frame) {
			if len(q.Own) == 0 {
				return
			}
			var w writer
			w.open('{')
			w.list("ownOffsets")
			for i := range q.Own {
				o := &q.Own[i]
				w.open('{')
				w.text("group", o.Group)
				w.int("moved", o.Moved)
				w.int("offset", o.Offset)
				w.int("queueId", int64(o.QueueID))
				w.text("topic", o.Topic)
				w.shut('}')
			}
			w.shut(']')
			w.shut('}')
			f.Body = w.b
		},
		decodeRequest: func(f *Frame) (*protocol.GetAllConsumerOffsetRequest, error) {
			q := &protocol.GetAllConsumerOffsetRequest{}
			if len(f.Body) == 0 {
				return q, nil
			}
			v, err := f.object()
			for _, o := range v.Get("ownOffsets").List() {
				q.Own = append(q.Own, protocol.OwnOffset{
					GroupOffset: protocol.GroupOffset{Group: o.Get("group").Text(), Topic: o.Get("topic").Text(), QueueID: o.Get("queueId").int32(-1), Offset: o.Get("offset").Int(-1)},
					Moved:       o.Get("moved").Int(0),
				})
			}
			return q, err
		},
		encodeResponse: func(_ site, _ *protocol.GetAllConsumerOffsetRequest, r *protocol.GetAllConsumerOffsetResponse, f *Frame) {
			f.putPosition(r.Position)
			var w writer
			w.open('{')
			w.name("dataVersion") // Java's slaves need one
			w.dataVersion(r.Version)
			w.groupOffsets("offsetTable", r.Offsets)
			if len(r.Resets) > 0 {
				w.groupOffsets("resetOffsetTable", r.Resets)
			}
			if r.Moved > 0 {
				w.groupOffsets("movedTable", r.Moves)
				w.int("moved", r.Moved)
				w.int("movedBefore", r.MovedBefore)
			}
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetAllConsumerOffsetResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			r := &protocol.GetAllConsumerOffsetResponse{OffsetTable: protocol.OffsetTable{
				Version: dataVersionOf(v.Get("dataVersion")),
				Offsets: groupOffsetsOf(v.Get("offsetTable")), Resets: groupOffsetsOf(v.Get("resetOffsetTable")),
			}}
			if moved := v.Get("moved").Int(0); moved > 0 {
				r.Moved, r.MovedBefore, r.Moves = moved, v.Get("movedBefore").Int(0), groupOffsetsOf(v.Get("movedTable"))
			}
			r.Position, err = f.position()
			return r, err
		},
	}
}

// putPosition says what an answer presumes.
func (f *Frame) putPosition(position int64) {
	if position > 0 {
		f.putLong(fieldPosition, position)
	}
}

// position reads what putPosition wrote; RocketMQ does not tell.
func (f *Frame) position() (int64, error) {
	h := f.header()
	position := h.longOr(fieldPosition, 0)
	return max(position, 0), h.err
}

// levels writes offsets by delay level: {"1":120}.
func (w *writer) levels(name string, offsets map[int]int64) {
	w.object(name)
	for _, level := range slices.Sorted(maps.Keys(offsets)) {
		w.int(strconv.Itoa(level), offsets[level])
	}
	w.shut('}')
}

// levelsOf reads them, nil for none. Java writes numbers as names.
func levelsOf(v Value) map[int]int64 {
	var offsets map[int]int64
	v.Each(func(level, offset Value) {
		n, ok := parseInteger(level.Text())
		at, isNumber := parseInteger(offset.Text())
		if !ok || !isNumber || n != int64(int32(n)) {
			return
		}
		if offsets == nil {
			offsets = make(map[int]int64, v.Len())
		}
		offsets[int(n)] = at
	})
	return offsets
}

// getAllDelayOffset asks a broker how far it has delivered delayed messages. The
// body is the text of its state file, which Java's slaves save as it is. Java:
// AdminBrokerProcessor.getAllDelayOffset.
func getAllDelayOffset() *command[protocol.BrokerConn, protocol.GetAllDelayOffsetRequest, protocol.GetAllDelayOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.GetAllDelayOffsetRequest, protocol.GetAllDelayOffsetResponse]{
		name:          "GetAllDelayOffset",
		codes:         []protocol.Code{protocol.CodeGetAllDelayOffset},
		method:        protocol.BrokerConn.GetAllDelayOffset,
		encodeRequest: func(*protocol.GetAllDelayOffsetRequest, *Frame) {},
		decodeRequest: empty[protocol.GetAllDelayOffsetRequest],
		encodeResponse: func(_ site, _ *protocol.GetAllDelayOffsetRequest, r *protocol.GetAllDelayOffsetResponse, f *Frame) {
			f.putPosition(r.Position)
			var w writer
			w.open('{')
			w.name("dataVersion")
			w.dataVersion(r.Version)
			w.levels("offsetTable", r.Offsets)
			if len(r.Deleted) > 0 {
				w.object("deletedTopics")
				for _, topic := range slices.Sorted(maps.Keys(r.Deleted)) {
					w.levels(topic, r.Deleted[topic])
				}
				w.shut('}')
			}
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetAllDelayOffsetResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			r := &protocol.GetAllDelayOffsetResponse{DelayProgress: protocol.DelayProgress{Version: dataVersionOf(v.Get("dataVersion")), Offsets: levelsOf(v.Get("offsetTable"))}}
			deleted := v.Get("deletedTopics")
			deleted.Each(func(topic, levels Value) {
				if r.Deleted == nil {
					r.Deleted = make(map[string]map[int]int64, deleted.Len())
				}
				r.Deleted[topic.Text()] = levelsOf(levels)
			})
			r.Position, err = f.position()
			return r, err
		},
	}
}
