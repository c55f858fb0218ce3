package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryLayoutIsAsItSays(t *testing.T) {
	for _, l := range layouts() {
		t.Run(l.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				require.NoError(t, run(t.Context(), []string{l.name}, &out), "%s", out.String())
				text := out.String()
				for _, g := range l.groups {
					assert.Contains(t, text, "  "+g.Name+"/0  MASTER  8 messages; slave 1 has 8")
					assert.Contains(t, text, "  "+g.Name+"/1  SLAVE   8 messages")
					assert.Contains(t, text, "4 queues on "+g.Name)
				}
				if l.elects {
					assert.Contains(t, text, "the next one went to broker-a, epoch 2")
				} else {
					assert.Contains(t, text, "the next one went to broker-b")
				}
				assert.Contains(t, text, "what broker-a had is read all the same")
			})
		})
	}
}

func TestALayoutThatIsUnknownIsRefused(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), []string{"3m"}, &bytes.Buffer{}), "there are 2m-2s-async, 2m-2s-sync")
}
