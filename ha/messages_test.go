package ha

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sampleMessages() []Message {
	return []Message{
		{Kind: MessageRegister, From: 0, To: NoReplica, Incarnation: 7, Before: []int64{5, 6}, Clean: true, Seen: 3, LastEpoch: 3, End: 90, Addr: "127.0.0.1:10912"},
		{Kind: MessageRenew, From: 2, To: NoReplica, Incarnation: 7, Stamp: time.Second, MasterEpoch: 4, Seen: 4},
		{Kind: MessageAlter, From: 2, To: NoReplica, Incarnation: 7, Epoch: 4, SetEpoch: 9, Set: []Member{{0, 3}, {2, 7}}},
		{Kind: MessagePromised, From: 2, To: NoReplica, Incarnation: 7, Epoch: 5, LastEpoch: 4, End: 100},
		{Kind: MessageConfirmed, From: 2, To: NoReplica, Incarnation: 7, Epoch: 5, Stamp: 1},
		{Kind: MessageResigned, From: 2, To: NoReplica, Incarnation: 7, Epoch: 5},
		{Kind: MessageDesignate, From: NoReplica, To: NoReplica, ID: 1, Unclean: true},
		{Kind: MessageState, From: NoReplica, To: 1, Epoch: 5, Master: NoReplica, Answers: MessageAlter, Refusal: RefusedSetEpoch, Base: 8},
		{Kind: MessagePromise, From: NoReplica, To: 1, Incarnation: 3, Epoch: 6},
		{Kind: MessageElected, From: NoReplica, To: 1, Incarnation: 3, Epoch: 6, ClientAddr: "a:1"},
	}
}

func TestMessagesComeAsTheyWereSent(t *testing.T) {
	var wire []byte
	for _, m := range sampleMessages() {
		var err error
		wire, err = AppendMessage(wire, m)
		require.NoError(t, err)
	}
	r := bytes.NewReader(wire)
	for _, want := range sampleMessages() {
		got, err := ReadMessage(r)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := ReadMessage(r)
	assert.ErrorIs(t, err, io.EOF)
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	good, err := AppendMessage(nil, sampleMessages()[0])
	require.NoError(t, err)
	for k := 1; k < len(good); k++ {
		_, err := ReadMessage(bytes.NewReader(good[:k]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut to %d bytes", k)
		bad := bytes.Clone(good)
		bad[k] ^= 1
		_, err = ReadMessage(bytes.NewReader(bad))
		require.Error(t, err, "byte %d", k)
	}
	huge := bytes.Clone(good)
	binary.BigEndian.PutUint32(huge[4:], 1<<31)
	_, err = ReadMessage(bytes.NewReader(huge))
	require.ErrorIs(t, err, ErrBadMessage, "refused before anything is allocated")

	for name, body := range map[string]string{
		"a field nobody knows": `{"kind":"renew","from":1,"to":-1,"incarnation":1,"more":1}`,
		"something behind it":  `{"kind":"renew","from":1,"to":-1,"incarnation":1} {}`,
		"no kind":              `{"kind":"hello","from":1,"to":-1,"incarnation":1}`,
		"no life":              `{"kind":"renew","from":1,"to":-1}`,
		"below 0":              `{"kind":"renew","from":1,"to":-1,"incarnation":1,"seen":-1}`,
		"the wrong direction":  `{"kind":"state","from":1,"to":-1}`,
		"a set not sorted":     `{"kind":"alter","from":1,"to":-1,"incarnation":1,"set":[{"ID":2,"Incarnation":1},{"ID":1,"Incarnation":1}]}`,
		"no JSON":              `{`,
	} {
		b := binary.BigEndian.AppendUint32(nil, messageMagic)
		b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
		b = binary.BigEndian.AppendUint32(b, checksumOf([]byte(body)))
		_, err := ReadMessage(io.MultiReader(bytes.NewReader(b), strings.NewReader(body)))
		require.ErrorIs(t, err, ErrBadMessage, name)
	}
	_, err = AppendMessage(nil, Message{Kind: MessageRenew, From: 1, To: NoReplica, Incarnation: 1, Addr: strings.Repeat("x", maxAddr+1)})
	assert.ErrorIs(t, err, ErrBadMessage)
}

func FuzzReadMessage(f *testing.F) {
	for _, m := range sampleMessages() {
		b, err := AppendMessage(nil, m)
		require.NoError(f, err)
		f.Add(b[messageHead:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := binary.BigEndian.AppendUint32(nil, messageMagic)
		b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
		b = binary.BigEndian.AppendUint32(b, checksumOf(body))
		m, err := ReadMessage(bytes.NewReader(append(b, body...)))
		if err != nil {
			return
		}
		again, err := AppendMessage(nil, m)
		require.NoError(t, err)
		twin, err := ReadMessage(bytes.NewReader(again))
		require.NoError(t, err)
		third, err := AppendMessage(nil, twin)
		require.NoError(t, err)
		require.Equal(t, again, third)
		// No core fails on what a decoder lets through.
		c, err := NewController(start, ControllerConfig{}, nil)
		require.NoError(t, err)
		c.Step(start, m)
		c.Tick(start)
		s := c.State()
		require.NoError(t, s.check())
		NewReplica(start, ReplicaConfig{ID: max(m.To, 0)}, ReplicaState{Incarnation: 3}, 0, 0).Step(start, m)
	})
}
