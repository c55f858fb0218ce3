package rebalance

import (
	"iter"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/message"
)

// MachineRoom shares the queues of brokers in the given rooms only, evenly among
// all members; the queues of other brokers go to nobody of the group. The room
// of a broker is in its name: "room@broker". A name that is not of that form is
// in no room, and without rooms there is nothing to share. Our own brokers refuse
// an "@" in their names, so among them this strategy shares nothing:
// MachineRoomNearby, which asks a RoomResolver, is the one for them.
//
// Each member gets a contiguous block of the queues that count, all of equal
// size; those that remain follow the last block and go to the first members one
// each: 8 queues among 3 members are 0 1 6, 2 3 7 and 4 5. Name is
// "MACHINE_ROOM". Java: AllocateMessageQueueByMachineRoom.
func MachineRoom(rooms ...string) Strategy {
	return machineRoom{slices.Clone(rooms)}
}

type machineRoom struct {
	rooms []string // never changed
}

func (machineRoom) Name() string { return "MACHINE_ROOM" }

func (s machineRoom) Allocate(group, self string, queues []message.Queue, members []string) ([]message.Queue, error) {
	if err := check(group, self, queues, members); err != nil {
		return nil, err
	}
	i := slices.Index(members, self)
	if i < 0 {
		return nil, nil
	}
	counting := 0
	for range s.counting(queues) {
		counting++
	}
	size, extra := counting/len(members), counting%len(members)
	from, till, one := i*size, (i+1)*size, -1
	if i < extra {
		one = len(members)*size + i
	}
	if till == from && one < 0 {
		return nil, nil
	}
	share := make([]message.Queue, 0, size+1)
	n := 0
	for at := range s.counting(queues) {
		if from <= n && n < till || n == one {
			share = append(share, queues[at])
		}
		n++
	}
	return share, nil
}

// counting returns the places of the queues in one of the rooms.
func (s machineRoom) counting(queues []message.Queue) iter.Seq[int] {
	return func(yield func(int) bool) {
		last, counts := "", false // queues of one broker follow each other
		for i := range queues {
			if broker := queues[i].BrokerName; broker != last {
				last, counts = broker, s.holds(broker)
			}
			if counts && !yield(i) {
				return
			}
		}
	}
}

// holds tells whether a broker is in one of the rooms. Any number of "@" at the
// end of its name is ignored, as Java's split does.
func (s machineRoom) holds(broker string) bool {
	room, rest, _ := strings.Cut(broker, "@")
	rest = strings.TrimRight(rest, "@")
	return rest != "" && !strings.Contains(rest, "@") && slices.Contains(s.rooms, room)
}
