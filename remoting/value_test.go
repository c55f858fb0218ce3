package remoting

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBodiesAsFastjsonWritesThem(t *testing.T) {
	v, err := ParseBody([]byte(`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5,},"brokerAddrs":{0:"1.2.3.4:5","2":'x'},n:null,B:TRUE,"q":"7",l:[1,,"a",{}],}`))
	require.NoError(t, err)
	n := 0
	v.Get("offsetTable").Each(func(name, value Value) {
		n++
		assert.Equal(t, "t", name.Get("topic").Text())
		assert.EqualValues(t, 0, name.Get("queueId").Int(-1))
		assert.EqualValues(t, 5, value.Int(-1))
	})
	assert.Equal(t, 1, n)
	assert.Equal(t, "1.2.3.4:5", v.Get("brokerAddrs").Get("0").Text())
	assert.Equal(t, "x", v.Get("brokerAddrs").Get("2").Text())
	assert.True(t, v.Get("n").Null())
	assert.True(t, v.Get("absent").Get("deeper").Null())
	assert.True(t, v.Get("b").Bool(false), "names in any case")
	assert.EqualValues(t, 7, v.Get("q").Int(0))
	assert.EqualValues(t, -1, v.Get("l").Int(-1))
	assert.False(t, v.Get("l").Bool(false))
	assert.True(t, v.Get("absent").Bool(true))
	require.Len(t, v.Get("l").List(), 3)
	assert.Equal(t, "a", v.Get("l").List()[1].Text())

	v, err = ParseBody([]byte(" \n"))
	require.NoError(t, err)
	assert.True(t, v.Null())
}

func TestHostileBodies(t *testing.T) {
	for _, body := range []string{"{", "[", `{"a"}`, `{"a":}`, "1 2", "{}x", "[1 2]", `"`, "{{}}", strings.Repeat("[", 1000), strings.Repeat("{", 1000), "\x00"} {
		_, err := ParseBody([]byte(body))
		assert.ErrorIs(t, err, errBadBody, body)
	}
	_, err := ParseBody([]byte("[" + strings.Repeat("1,", maxValues) + "]"))
	assert.ErrorIs(t, err, errBadBody)
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"a":{{"b":1}:[1,'2',null,true,{x:"\u0041"}]}}`))
	f.Add([]byte(`{0:"x",}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseBody(b)
		if err != nil {
			require.ErrorIs(t, err, errBadBody)
			return
		}
		v.Each(func(name, value Value) { _, _ = name.Text(), value.Int(0) })
	})
}
