package rebalance

import (
	"fmt"
	"slices"

	"github.com/pocketmq/pocketmq/message"
)

// RoomResolver tells which machine room a broker or a consumer is in. All
// members of a group must get the same answers, and none is empty. It is called
// for every queue and every member in each Allocate, is safe for concurrent use
// and does not block. Java: AllocateMachineRoomNearby.MachineRoomResolver.
type RoomResolver interface {
	// BrokerRoom returns the room of the queue's broker. Java: brokerDeployIn.
	BrokerRoom(q message.Queue) string

	// ConsumerRoom returns the room of a member. Java: consumerDeployIn.
	ConsumerRoom(clientID string) string
}

// MachineRoomNearby shares the queues of each room among the members in that
// room, and the queues of rooms without a member among all members, one room
// after the other in the order of their names; inner computes each of these
// shares. Nothing is left to nobody: when the last member of a room goes, the
// others take its queues.
//
// A room that rooms does not know, "", is ErrInvalidArguments, as is a nil inner
// or rooms. Name is "MACHINE_ROOM_NEARBY-" and the name of inner.
// Java: AllocateMachineRoomNearby.
func MachineRoomNearby(inner Strategy, rooms RoomResolver) Strategy {
	return machineRoomNearby{inner, rooms}
}

type machineRoomNearby struct {
	inner Strategy
	rooms RoomResolver
}

func (s machineRoomNearby) Name() string {
	if s.inner == nil {
		return "MACHINE_ROOM_NEARBY-"
	}
	return "MACHINE_ROOM_NEARBY-" + s.inner.Name()
}

// room is what lies in one machine room.
type room struct {
	name    string
	queues  []message.Queue // in the order given
	members int
}

// add appends a run of queues. Nothing is copied while the room is one run, as in
// sorted lists of brokers that are named by room.
func (r *room) add(run []message.Queue) {
	if r.queues == nil {
		r.queues = slices.Clip(run)
		return
	}
	r.queues = append(r.queues, run...)
}

func (s machineRoomNearby) Allocate(group, self string, queues []message.Queue, members []string) ([]message.Queue, error) {
	if s.inner == nil || s.rooms == nil {
		return nil, fmt.Errorf("%w: group %q: MachineRoomNearby needs an inner strategy and a RoomResolver", ErrInvalidArguments, group)
	}
	if err := check(group, self, queues, members); err != nil {
		return nil, err
	}
	if !slices.Contains(members, self) {
		return nil, nil
	}
	var rooms []*room // few
	at := func(name string) *room {
		for _, r := range rooms {
			if r.name == name {
				return r
			}
		}
		rooms = append(rooms, &room{name: name})
		return rooms[len(rooms)-1]
	}
	var here *room
	from := 0 // where the run of queues in here begins
	for i, q := range queues {
		name := s.rooms.BrokerRoom(q)
		switch {
		case name == "":
			return nil, fmt.Errorf("%w: group %q: RoomResolver knows no room of queue %v", ErrInvalidArguments, group, q)
		case here == nil:
			here = at(name)
		case here.name != name:
			here.add(queues[from:i])
			here, from = at(name), i
		}
	}
	here.add(queues[from:])
	home := ""
	var neighbours []string // in self's room
	names := make([]string, len(members))
	for i, m := range members {
		if names[i] = s.rooms.ConsumerRoom(m); names[i] == "" {
			return nil, fmt.Errorf("%w: group %q: RoomResolver knows no room of member %q", ErrInvalidArguments, group, m)
		}
		if m == self {
			home = names[i]
		}
	}
	for i, m := range members {
		at(names[i]).members++
		if names[i] == home {
			neighbours = append(neighbours, m)
		}
	}

	var share []message.Queue
	add := func(queues []message.Queue, members []string) error {
		part, err := s.inner.Allocate(group, self, queues, members)
		share = append(share, part...)
		return err
	}
	if own := at(home); len(own.queues) > 0 {
		if err := add(own.queues, neighbours); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rooms, func(a, b *room) int { return compareNames(a.name, b.name) })
	for _, r := range rooms {
		if r.members > 0 {
			continue
		}
		if err := add(r.queues, members); err != nil {
			return nil, err
		}
	}
	return share, nil
}
