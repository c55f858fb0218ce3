package filter_test

import (
	"fmt"

	"github.com/pocketmq/pocketmq/filter"
)

func ExampleParseTags() {
	tags, err := filter.ParseTags("created || paid")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tags.List(), tags.MatchTag("paid"), tags.MatchTag("cancelled"))
	// Output: [created paid] true false
}
