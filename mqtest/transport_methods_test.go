package mqtest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestTheSuiteHasEveryMethodOfTheServices(t *testing.T) {
	for service, all := range map[reflect.Type][]exchange{
		reflect.TypeFor[protocol.BrokerConn]():     brokerExchanges(),
		reflect.TypeFor[protocol.NameServerConn](): nameServerExchanges(),
	} {
		var want, got []string
		for i := range service.NumMethod() {
			if name := service.Method(i).Name; name != "Close" {
				want = append(want, name)
			}
		}
		for _, e := range all {
			got = append(got, e.method)
		}
		slices.Sort(got)
		assert.Equal(t, want, got, "add an exchange, so that the suite carries the new method of %v over every transport", service)
	}
}

func TestCasesHaveNamesOfTheirOwn(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range transportCases() {
		assert.False(t, seen[c.name], c.name)
		seen[c.name] = true
	}
	assert.Greater(t, len(seen), 50)
}
