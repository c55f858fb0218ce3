package groups_test

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counterparts are the tests here that do what a consumer example of the official
// repository does.
var counterparts = map[string][]func(*testing.T){
	"acl":              {TestANamespaceKeepsGroupsAndTopicsApart},
	"broadcast":        {TestEveryBroadcastingMemberGetsEverything},
	"delay":            {TestDelayedMessagesComeLater},
	"interceptor":      {TestOfficialInterceptorsSeeEveryMessage},
	"namespace":        {TestANamespaceKeepsGroupsAndTopicsApart},
	"orderly":          {TestOfficialOrderlyConsumersKeepOrder},
	"pull/poll":        {TestPollInAGroup},
	"pull/poll_assign": {TestPollOfAssignedQueues},
	"pull/pull":        {TestPullTakesTurns},
	"pull/pull_from":   {TestPullFromReadsAnywhere},
	"retry/concurrent": {TestFailedMessagesComeAgain, TestDeadLettersAreSeenByEverybody},
	"retry/order":      {TestAnOrderlyMessageThatAlwaysFailsBecomesADeadLetter},
	"simple":           {TestOfficialConsumersThatJoinAndLeaveLoseNothing},
	"strategy":         {TestOfficialStrategiesShareAsTheySay},
	"tag":              {TestOfficialConsumersGetTheirTagsOnly},
	"tls":              {TestOfficialConsumersWithAndWithoutTLSShareAGroup},
	"trace":            {TestOfficialConsumersLeaveTraces},
}

// skipped are the examples that have none, and why.
var skipped = map[string]string{
	"rpc": "request-reply is not there",
}

func TestEveryOfficialConsumerExampleHasACounterpart(t *testing.T) {
	t.Parallel()
	source, _ := runtime.FuncForPC(reflect.ValueOf(consumer.NewPushConsumer).Pointer()).FileLine(reflect.ValueOf(consumer.NewPushConsumer).Pointer())
	root := filepath.Join(filepath.Dir(source), "..", "examples", "consumer")
	var examples []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "main.go" {
			rel, _ := filepath.Rel(root, filepath.Dir(path))
			examples = append(examples, filepath.ToSlash(rel))
		}
		return err
	}))
	require.NotEmpty(t, examples)
	for _, name := range examples {
		_, known := counterparts[name]
		_, left := skipped[name]
		assert.True(t, known != left, "consumer/%s: it has a counterpart, or a reason why not", name)
	}
	for name := range counterparts {
		assert.True(t, slices.Contains(examples, name), "there is no example consumer/%s", name)
	}
	for name, why := range skipped {
		summary(t, "consumer/"+name, "skipped, %s", why)
	}
}
