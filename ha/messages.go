package ha

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// ErrBadMessage means that bytes are no message between replicas and a controller:
// the connection they came on is to be closed.
var ErrBadMessage = errors.New("not a message of a controller or a replica")

// NoReplica stands for nobody where an id is expected: 0 is a replica.
const NoReplica = -1

// MessageKind says what a [Message] is about, and thereby which fields count.
type MessageKind string

// What replicas, an operator and a controller tell each other. Of each message a
// copy may come late, twice, or not at all.
const (
	// MessageRegister: From is there, in a new life: Incarnation, Before, Clean, Seen,
	// Unelected, LastEpoch, End, Addr, ClientAddr; Life as the controller has told it last. Answered by
	// MessageState.
	MessageRegister MessageKind = "register"
	// MessageRenew: From lives, Seen; MasterEpoch is its own epoch when it is master,
	// whose lease this is to renew from Stamp on. Answered by MessageState.
	MessageRenew MessageKind = "renew"
	// MessageAlter: the master asks for Set in place of the one of version SetEpoch.
	// Epoch is its own. Answered by MessageState.
	MessageAlter MessageKind = "alter"
	// MessagePromised: From follows nobody of an epoch below Epoch any more, and what
	// it holds ends at End, written last under LastEpoch.
	MessagePromised MessageKind = "promised"
	// MessageConfirmed: From, elected under Epoch, is ready to serve, and wants a
	// lease from Stamp on. Answered by MessageState.
	MessageConfirmed MessageKind = "confirmed"
	// MessageResigned: From does not serve under Epoch any more, or never will.
	MessageResigned MessageKind = "resigned"
	// MessageDesignate: an operator wants ID to become master; Unclean: even if
	// answered messages are lost by it. Answered by MessageState, with the epoch of
	// the order.
	MessageDesignate MessageKind = "designate"
	// MessageWithdraw: an operator wants ID no more, as ordered under Epoch. Answered by
	// MessageState; RefusedTaken: it is master already.
	MessageWithdraw MessageKind = "withdraw"

	// MessageState: what the controller has stored. It says what it answers, Refusal
	// tells why not, and Leased that a lease runs from Stamp on.
	MessageState MessageKind = "state"
	// MessagePromise: To is asked for MessagePromised.
	MessagePromise MessageKind = "promise"
	// MessageElected: To, in the life of Incarnation, is to become master under Epoch.
	// ClientAddr, unless empty, is that of the former master, which serves no more, and has
	// said so: what it has beside its log does not change any more.
	MessageElected MessageKind = "elected"
)

// Refusal says why a controller has refused something.
type Refusal string

// Why a controller refuses. What is not said here is carried out.
const (
	// RefusedUnknown: a replica has to register first, or once more, with the Life that
	// comes with this.
	RefusedUnknown Refusal = "unknown"
	// RefusedFormer: another life of this replica has registered since. Two processes
	// have the same id.
	RefusedFormer Refusal = "former"
	// RefusedLost: a replica knows of a later epoch than the controller, whose state
	// is lost. Nothing is done until an operator has chosen a master.
	RefusedLost Refusal = "lost"
	// RefusedBehind: the group has never elected anybody, and the replica that was its
	// master, or is to be, lacks what another one has.
	RefusedBehind Refusal = "behind"
	// RefusedEarly: not all replicas of the group have registered yet.
	RefusedEarly Refusal = "early"
	// RefusedEpoch: the sender is not the master, or its epoch is over.
	RefusedEpoch Refusal = "epoch"
	// RefusedSetEpoch: the set has changed since.
	RefusedSetEpoch Refusal = "set epoch"
	// RefusedMember: a set without the master, or with replicas that are not known in
	// this life.
	RefusedMember Refusal = "member"
	// RefusedAbsent: a designated replica was not heard of, or not for long.
	RefusedAbsent Refusal = "absent"
	// RefusedUnclean: a designated replica may have lost what it had acknowledged.
	RefusedUnclean Refusal = "unclean"
	// RefusedOutside: a designated replica is not in the in-sync set.
	RefusedOutside Refusal = "outside"
	// RefusedTaken: what is to be withdrawn has happened.
	RefusedTaken Refusal = "taken"
)

// Message is what replicas and their controller tell each other. Fields that a kind
// does not use are zero.
type Message struct {
	Kind MessageKind `json:"kind"`
	// From and To are replica ids; NoReplica is the controller, or an operator.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Incarnation is the life of the replica that sends the message, or that it is
	// meant for.
	Incarnation int64 `json:"incarnation,omitempty"`
	// Stamp is a moment of the replica's clock, as time since it began. The controller
	// returns it as it came.
	Stamp time.Duration `json:"stamp,omitempty"`

	Epoch       int64    `json:"epoch,omitempty"`
	Seen        int64    `json:"seen,omitempty"` // the highest epoch a replica knows of
	LastEpoch   int64    `json:"lastEpoch,omitempty"`
	End         int64    `json:"end,omitempty"`
	Master      int64    `json:"master,omitempty"`
	MasterEpoch int64    `json:"masterEpoch,omitempty"`
	SetEpoch    int64    `json:"setEpoch,omitempty"`
	Set         []Member `json:"set,omitempty"`
	Addr        string   `json:"addr,omitempty"`       // where From, or the master, has its log
	ClientAddr  string   `json:"clientAddr,omitempty"` // where From, or the former master, serves clients
	// Before are former lives whose log this one has whole, if Clean.
	Before []int64 `json:"before,omitempty"`
	Clean  bool    `json:"clean,omitempty"`
	// Unelected is the highest epoch of masters that nobody elected that From knows of,
	// beside its log.
	Unelected int64 `json:"unelected,omitempty"`
	// Life is that of the controller for which a registration is made.
	Life int64 `json:"life,omitempty"`

	ID      int64 `json:"id,omitempty"`
	Unclean bool  `json:"unclean,omitempty"`

	Answers MessageKind `json:"answers,omitempty"`
	Refusal Refusal     `json:"refusal,omitempty"`
	Leased  bool        `json:"leased,omitempty"`
	// LossEpoch is the epoch of the last election by which an operator gave up answered
	// messages; 0: there was none.
	LossEpoch int64 `json:"lossEpoch,omitempty"`
	// Base is the version of the set that a refused change stands on.
	Base int64 `json:"base,omitempty"`
}

// A message on a connection is a head of 12 bytes and a body of JSON:
//
//	4 magic and version   4 size of the body   4 CRC-32C of the body
const (
	messageMagic   = 0x506d4301 // "PmC", 1
	messageHead    = 12
	maxMessageBody = 64 << 10
	maxMembers     = 256
	maxNumber      = 1 << 60 // there is room to count on
	maxBefore      = 64
	maxAddr        = 512
)

// AppendMessage appends the bytes of a message to b. It fails, with [ErrBadMessage],
// for a message that [ReadMessage] would refuse.
func AppendMessage(b []byte, m Message) ([]byte, error) {
	if err := m.check(); err != nil {
		return b, err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return b, fmt.Errorf("ha: %w", err)
	}
	if len(body) > maxMessageBody {
		return b, fmt.Errorf("ha: a message of %d bytes, at most %d: %w", len(body), maxMessageBody, ErrBadMessage)
	}
	b = binary.BigEndian.AppendUint32(b, messageMagic)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, checksumOf(body))
	return append(b, body...), nil
}

// ReadMessage reads one message. It blocks as r does. Errors: [ErrBadMessage];
// io.EOF when r ends before a message; those of r.
func ReadMessage(r io.Reader) (Message, error) {
	var head [messageHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Message{}, err
	}
	if magic := binary.BigEndian.Uint32(head[:]); magic != messageMagic {
		return Message{}, fmt.Errorf("ha: it begins with %08x, want %08x; both sides need the same version of pocketmq: %w", magic, messageMagic, ErrBadMessage)
	}
	size := binary.BigEndian.Uint32(head[4:])
	if size > maxMessageBody {
		return Message{}, fmt.Errorf("ha: a message of %d bytes, at most %d: %w", size, maxMessageBody, ErrBadMessage)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Message{}, err
	}
	if sum := binary.BigEndian.Uint32(head[8:]); sum != checksumOf(body) {
		return Message{}, fmt.Errorf("ha: the checksum of a message is %08x, not %08x: %w", checksumOf(body), sum, ErrBadMessage)
	}
	var m Message
	if err := decodeStrictly(body, &m); err != nil {
		return Message{}, fmt.Errorf("ha: %w: %w", ErrBadMessage, err)
	}
	return m, m.check()
}

// check refuses what no replica and no controller says.
func (m *Message) check() error {
	fail := func(what string) error {
		return fmt.Errorf("ha: message %q from %d to %d: %s: %w", m.Kind, m.From, m.To, what, ErrBadMessage)
	}
	fromReplica, toReplica := m.From >= 0, m.To >= 0
	switch m.Kind {
	case MessageRegister, MessageRenew, MessageAlter, MessagePromised, MessageConfirmed, MessageResigned:
		if !fromReplica || toReplica || m.Incarnation == 0 {
			return fail("it goes from a replica, in one life of it, to the controller")
		}
	case MessageDesignate, MessageWithdraw:
		if fromReplica || toReplica || m.ID < 0 {
			return fail("it goes from an operator to the controller and names a replica")
		}
	case MessageState:
		if fromReplica {
			return fail("it comes from the controller")
		}
	case MessagePromise, MessageElected:
		if fromReplica || !toReplica || m.Incarnation == 0 {
			return fail("it goes from the controller to one life of a replica")
		}
	default:
		return fail("there is no such kind")
	}
	for _, n := range []int64{m.Epoch, m.Seen, m.LastEpoch, m.End, m.MasterEpoch, m.SetEpoch, m.Base, m.LossEpoch, m.Unelected, int64(m.Stamp)} {
		if n < 0 || n > maxNumber {
			return fail("an epoch, a version, a position or a time that cannot be")
		}
	}
	if m.From < NoReplica || m.To < NoReplica || m.Master < NoReplica {
		return fail("a replica below 0")
	}
	if len(m.Before) > maxBefore || len(m.Addr) > maxAddr || len(m.ClientAddr) > maxAddr {
		return fail("too many former lives, or a long address")
	}
	return checkSet(m.Set, fail)
}

// checkSet wants members sorted, each once.
func checkSet(set []Member, fail func(string) error) error {
	if len(set) > maxMembers {
		return fail("too many members")
	}
	for k, one := range set {
		if one.ID < 0 || k > 0 && one.ID <= set[k-1].ID {
			return fail("the members of a set are not sorted")
		}
	}
	return nil
}

// decodeStrictly refuses fields nobody knows, and anything behind the value.
func decodeStrictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows")
	}
	return nil
}

func checksumOf(data []byte) uint32 {
	return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
}
