package message

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// addField adds the bytes of every hex field of that name in a section.
func addField(f *testing.F, g goldenFile, section, field string, add func([]byte)) {
	f.Helper()
	for _, row := range rows[map[string]json.RawMessage](f, g, section) {
		var text string
		if json.Unmarshal(row[field], &text) == nil {
			add(unhex(f, text))
		}
	}
}

func FuzzView(f *testing.F) {
	g := loadGolden(f)
	for _, section := range []string{"encode", "broker_encode"} {
		addField(f, g, section, "encoded", func(b []byte) { f.Add(b) })
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseView(b)
		if err != nil {
			require.ErrorIs(t, err, ErrBadRecord)
			return
		}
		require.Equal(t, b[:v.Size()], []byte(v))
		touch(v)
		r := recordOf(v)
		again, err := appendRecord(nil, r, v.Magic() == MagicV2)
		if err != nil { // version 2 can hold a longer topic than we write
			require.Greater(t, len(r.Topic), MaxPrefixedTopicLength)
			return
		}
		w, err := ParseView(again)
		require.NoError(t, err)
		// A mapped host is written as IPv4, and so its bit.
		r.SysFlag = w.SysFlag()
		require.Equal(t, r, recordOf(w))
		if v.CheckBody() == nil && w.SysFlag() == v.SysFlag() {
			require.Equal(t, []byte(v), again)
		}
	})
}

func FuzzDecodeExt(f *testing.F) {
	g := loadGolden(f)
	addField(f, g, "encode", "encoded", func(b []byte) { f.Add(b) })
	codec := &Codec{InflateLimit: 1 << 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		e, err := codec.DecodeExt(b, "broker-a", "TopicTest")
		require.Equal(t, before, b)
		if err != nil {
			require.ErrorIs(t, err, ErrBadRecord)
			return
		}
		v, err := ParseView(b)
		require.NoError(t, err)
		require.Equal(t, string(v.Topic()), e.Queue.Topic)
		require.Equal(t, string(v.Properties()), e.properties)
		require.LessOrEqual(t, len(e.Body), max(codec.InflateLimit, len(v.Body())))
		for name := range DecodeProperties(e.properties) {
			value, _ := Property(e.properties, name)
			require.Equal(t, value, e.Property(name))
			if !IsReserved(name) {
				require.Equal(t, value, e.Properties[name])
			}
		}
		for name := range e.Properties {
			require.False(t, IsReserved(name))
		}
	})
}

func FuzzBatchItems(f *testing.F) {
	g := loadGolden(f)
	addField(f, g, "batch", "encodedBatchBody", func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, body []byte) {
		n, err := CountBatch(body)
		var again []byte
		items := 0
		for item, itemErr := range BatchItems(body) {
			if itemErr != nil {
				require.ErrorIs(t, itemErr, ErrIllegalMessage)
				require.Equal(t, err, itemErr)
				break
			}
			items++
			again = AppendBatch(again, item.Flag, item.Body, string(item.Properties))
		}
		require.Equal(t, n, items)
		if err != nil {
			return
		}
		require.Len(t, again, len(body))
		count, err := CountBatch(again) // equal but for the magic and checksum that nobody reads
		require.NoError(t, err)
		require.Equal(t, n, count)
	})
}

func FuzzProperties(f *testing.F) {
	g := loadGolden(f)
	for _, section := range []string{"properties_encode", "properties_decode"} {
		for _, row := range rows[struct{ String string }](f, g, section) {
			f.Add(row.String)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return // the lookups below cost the square of it
		}
		m := DecodeProperties(text)
		require.Equal(t, maps.Collect(Properties(text)), maps.Collect(maps.All(m)))
		for name, want := range m {
			require.NotEmpty(t, name)
			require.NotEmpty(t, want)
			value, ok := Property(text, name)
			require.True(t, ok)
			require.Equal(t, want, value)
			raw, ok := PropertyBytes([]byte(text), name)
			require.True(t, ok)
			require.Equal(t, want, string(raw))
		}
		for _, name := range strings.FieldsFunc(text, func(r rune) bool { return r == valueEnd }) {
			value, ok := Property(text, name)
			require.Equal(t, m[name], value)
			require.Equal(t, m[name] != "", ok)
		}
		again := EncodeProperties(m)
		require.Equal(t, m, DecodeProperties(again))
		require.LessOrEqual(t, len(again), len(text)+1) // at most the last end mark is new
	})
}

func FuzzParseOffsetMsgID(f *testing.F) {
	g := loadGolden(f)
	for _, row := range rows[struct{ MsgID string }](f, g, "msgid_decode") {
		f.Add(row.MsgID)
	}
	f.Fuzz(func(t *testing.T, id string) {
		host, position, err := ParseOffsetMsgID(id)
		if err != nil {
			require.ErrorIs(t, err, ErrBadID)
			return
		}
		if host.Addr().Is4In6() {
			return // written as IPv4
		}
		require.Equal(t, strings.ToUpper(id), OffsetMsgID(host, position))
	})
}

func FuzzParseUniqKey(f *testing.F) {
	g := loadGolden(f)
	for _, row := range rows[struct{ ID string }](f, g, "uniq_id_decode") {
		f.Add(row.ID)
	}
	now := time.UnixMilli(1700000000000).UTC()
	f.Fuzz(func(t *testing.T, id string) {
		key, err := ParseUniqKey(id)
		at, timeErr := UniqKeyTime(id, now)
		require.Equal(t, err, timeErr)
		if err != nil {
			require.ErrorIs(t, err, ErrBadID)
			return
		}
		require.WithinDuration(t, now, at, 80*24*time.Hour)
		if key.IP.Is4In6() {
			return // written as IPv4
		}
		require.Equal(t, strings.ToUpper(id), string(AppendUniqKey(nil, key.IP, key.PID, key.Loader, key.Millis, key.Counter)))
	})
}

func FuzzInflate(f *testing.F) {
	g := loadGolden(f)
	for _, row := range rows[compressionRow](f, g, "compression") {
		f.Add(unhex(f, row.Level5), row.CompressionFlag)
	}
	f.Add([]byte{}, int32(1037)) // empty, of an unknown type
	codec := NewCodec()
	f.Fuzz(func(t *testing.T, body []byte, sysFlag int32) {
		const limit = 64 << 10
		before := bytes.Clone(body)
		out, err := codec.Inflate(body, sysFlag|FlagCompressed, limit)
		require.Equal(t, before, body)
		if err != nil {
			require.ErrorIs(t, err, ErrBadRecord)
			return
		}
		require.LessOrEqual(t, len(out), limit)
		if len(body) == 0 {
			require.Empty(t, out, "comes back as it is, whatever its type")
			return
		}
		kind, err := CompressionOf(sysFlag)
		require.NoError(t, err)
		packed, flag, err := codec.Compress(nil, out, kind)
		require.NoError(t, err)
		again, err := codec.Inflate(packed, flag, limit)
		require.NoError(t, err)
		require.True(t, bytes.Equal(out, again))
	})
}

func FuzzNames(f *testing.F) {
	g := loadGolden(f)
	for _, row := range rows[struct{ Name, FullName string }](f, g, "names") {
		f.Add(row.Name + row.FullName)
	}
	f.Fuzz(func(t *testing.T, name string) {
		client, broker := CheckTopic(name), ValidateTopic(name)
		for _, err := range []error{client, broker, ValidateGroup(name)} {
			if err != nil {
				require.ErrorIs(t, err, ErrIllegalName)
			}
		}
		if client == nil {
			require.NoError(t, broker, "what a client accepts a broker accepts")
		}
	})
}
