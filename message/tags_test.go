package message

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTagHashDoesNotAllocate(t *testing.T) {
	var sum int32
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		sum += TagHash("order-created") + TagHash("TAG_订单_\U0001F600")
	}))
	assert.NotZero(t, sum)
}

func TestTagHashOfBytesIsThatOfTheText(t *testing.T) {
	for _, tag := range []string{"", "TagA", "a标签", "\xff", "a\xf0\x9f", "\U0001F600x"} {
		assert.Equal(t, TagHash(tag), tagHashBytes([]byte(tag)), "%q", tag)
	}
	assert.Equal(t, int32(0xFFFD), TagHash("\xff"))
}
