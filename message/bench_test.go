package message

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const benchKey = "0A010203123418B4AAC20123456789AB"

func benchRecord(body int) *Record {
	m := Message{Tag: "TagA", Keys: []string{"order-4711"}}
	return &Record{
		QueueID: 3, QueueOffset: 7, Position: 1024, BornTime: 1700000000123, StoreTime: 1700000000456,
		BornHost: netip.MustParseAddrPort("10.1.2.3:52000"), StoreHost: netip.MustParseAddrPort("192.168.0.9:10911"),
		Body: make([]byte, body), Topic: "orders", Properties: string(m.AppendProperties(nil, benchKey)),
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	for _, size := range []int{128, 1024} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			r := benchRecord(size)
			dst := make([]byte, 0, RecordSize(r))
			b.SetBytes(int64(cap(dst)))
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = AppendRecord(dst[:0], r)
			}
		})
	}
}

func BenchmarkParseView(b *testing.B) {
	rec, err := AppendRecord(nil, benchRecord(128))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		v, _ := ParseView(rec)
		v.TagsCode()
	}
}

func BenchmarkDecodeExt(b *testing.B) {
	codec := NewCodec()
	defer codec.Close()
	run := func(name string, r *Record) {
		rec, err := AppendRecord(nil, r)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := codec.DecodeExt(rec, "broker-a", "orders"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("128B", benchRecord(128))
	run("1024B", benchRecord(1024))
	r := benchRecord(128)
	r.Properties += EncodeProperties(map[string]string{"region": "eu", "priority": "7", "trace": "abc"})
	run("128B with 3 user properties", r)
}

func BenchmarkUniqKeysNext(b *testing.B) {
	u := NewUniqKeys(netip.MustParseAddr("10.1.2.3"), 4711, 0x12345678)
	now := time.Date(2026, 3, 4, 5, 6, 7, 8, time.Local)
	b.ReportAllocs()
	for b.Loop() {
		u.Next(now)
	}
}

func BenchmarkAppendProperties(b *testing.B) {
	run := func(name string, m *Message) {
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, 512)
			b.ReportAllocs()
			for b.Loop() {
				dst = m.AppendProperties(dst[:0], benchKey)
			}
		})
	}
	run("tag and key", &Message{Tag: "TagA", Keys: []string{"order-4711"}})
	run("3 user properties too", &Message{Tag: "TagA", Keys: []string{"order-4711"}, Properties: map[string]string{"region": "eu", "priority": "7", "trace": "abc"}})
}

func BenchmarkValidate(b *testing.B) {
	m := &Message{Topic: "orders", Tag: "TagA", Keys: []string{"order-4711"}, Properties: map[string]string{"region": "eu", "priority": "7", "trace": "abc"}}
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTagHash(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		TagHash("order-created")
	}
}

func BenchmarkAppendBatch(b *testing.B) {
	body, props := make([]byte, 128), benchRecord(0).Properties
	dst := make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendBatch(dst[:0], 0, body, props)
	}
}

func BenchmarkCountBatch(b *testing.B) {
	var body []byte
	for range 256 {
		body = AppendBatch(body, 0, make([]byte, 128), benchRecord(0).Properties)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n, err := CountBatch(body); n != 256 || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkCompress(b *testing.B) {
	codec := NewCodec()
	defer codec.Close()
	var text bytes.Buffer
	for i := 0; text.Len() < 16<<10; i++ {
		fmt.Fprintf(&text, `{"order":%d,"customer":"c-%d","amount":%d.50,"region":"eu"}`, i*7919, i%97, i*31%1000)
	}
	for _, kind := range []Compression{Zlib, LZ4, Zstd} {
		packed, flag, err := codec.Compress(nil, text.Bytes(), kind)
		require.NoError(b, err)
		b.Run(kind.String()+"/compress 16K", func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(packed))/float64(text.Len()), "ratio")
			var dst []byte
			for b.Loop() {
				dst, _, _ = codec.Compress(dst[:0], text.Bytes(), kind)
			}
		})
		b.Run(kind.String()+"/inflate 16K", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := codec.Inflate(packed, flag, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
