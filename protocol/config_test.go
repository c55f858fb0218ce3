package protocol

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPagesOfATable(t *testing.T) {
	now := DataVersion{Counter: 3}
	for _, row := range []struct {
		page       *Page
		n          int
		first, end int
	}{
		{nil, 5000, 0, 5000},
		{&Page{}, 5, 0, 5},
		{&Page{}, 5000, 0, MaxPage},
		{&Page{First: 3, Most: 1, Version: now}, 5, 3, 4},
		{&Page{First: 3, Most: 9, Version: now}, 5, 3, 5},
		{&Page{First: 3, Most: 9, Version: DataVersion{Counter: 2}}, 5, 0, 5}, // of another table: from the start
		{&Page{First: 9, Version: now}, 5, 5, 5},
		{&Page{First: -1, Most: -1, Version: now}, 5, 0, 5},
		{&Page{First: 1, Most: 1 << 31, Version: now}, 5000, 1, 1 + MaxPage},
		{&Page{First: 3, Version: now}, 0, 0, 0},
	} {
		first, end := row.page.Of(row.n, now)
		assert.Equal(t, [2]int{row.first, row.end}, [2]int{first, end}, "%+v of %d", row.page, row.n)
	}
}
