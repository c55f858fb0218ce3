package consume

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatTheErrorOfAHandlerMeans(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		err  error
		want verdict
	}{
		"nil":                         {nil, verdict{done: 5}},
		"an error":                    {boom, verdict{}},
		"retry after a level":         {RetryAfter(boom, 7), verdict{level: 7}},
		"a level of 0 is no wish":     {RetryAfter(boom, 0), verdict{}},
		"a level below 0 is no wish":  {RetryAfter(boom, -1), verdict{}},
		"the broker knows the levels": {RetryAfter(boom, 99), verdict{level: 99}},
		"dead letter":                 {DeadLetter(boom), verdict{dead: true}},
		"done":                        {Done(2, boom), verdict{done: 2}},
		"none done":                   {Done(0, boom), verdict{}},
		"fewer than none":             {Done(-3, boom), verdict{}},
		"all done":                    {Done(5, boom), verdict{done: 5}},
		"more than all":               {Done(6, boom), verdict{done: 5}},
		"done without an error":       {Done(2, nil), verdict{done: 2}},
		"all done without an error":   {Done(5, nil), verdict{done: 5}},
		"the rest dead":               {Done(2, DeadLetter(boom)), verdict{done: 2, dead: true}},
		"dead, two done":              {DeadLetter(Done(2, boom)), verdict{done: 2, dead: true}},
		"the rest later":              {Done(2, RetryAfter(boom, 4)), verdict{done: 2, level: 4}},
		"later, two done":             {RetryAfter(Done(2, boom), 4), verdict{done: 2, level: 4}},
		"dead outweighs later":        {RetryAfter(DeadLetter(boom), 4), verdict{dead: true}},
		"also inside":                 {DeadLetter(RetryAfter(boom, 4)), verdict{dead: true}},
		"the outer level counts":      {RetryAfter(RetryAfter(boom, 4), 5), verdict{level: 5}},
		"the outer count counts":      {Done(1, Done(3, boom)), verdict{done: 1}},
		"wrapped":                     {fmt.Errorf("order 7: %w", Done(1, DeadLetter(boom))), verdict{done: 1, dead: true}},
		"joined":                      {errors.Join(boom, RetryAfter(boom, 3)), verdict{level: 3}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, judge(tc.err, 5)) })
	}
}

func TestRefinedErrorsCarryTheirCause(t *testing.T) {
	boom := errors.New("boom")
	for _, err := range []error{RetryAfter(boom, 3), DeadLetter(boom), Done(2, boom), Done(1, DeadLetter(RetryAfter(boom, 3)))} {
		assert.ErrorIs(t, err, boom)
		assert.ErrorContains(t, err, "boom")
	}
	assert.NoError(t, RetryAfter(nil, 3))
	assert.NoError(t, DeadLetter(nil))
	assert.EqualError(t, Done(2, nil), "the messages after the first 2 are not consumed")
	assert.EqualError(t, Done(2, DeadLetter(boom)), "boom (dead letter) (after 2 consumed messages)")
}
