package memnet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMailboxDeliversInTheOrderOfPosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m mailbox
		type arrival struct {
			what string
			at   time.Duration
		}
		var got []arrival // written by one delivery at a time
		start := time.Now()
		post := func(what string, d time.Duration) {
			m.post(d, func() { got = append(got, arrival{what, time.Since(start)}) })
		}
		post("a", 100*time.Millisecond)
		post("b", 100*time.Millisecond)
		post("c", time.Millisecond) // never overtakes
		time.Sleep(50 * time.Millisecond)
		post("d", 100*time.Millisecond)
		m.post(100*time.Millisecond, func() { post("f", 0); post("g", time.Second) })
		post("e", 100*time.Millisecond)
		time.Sleep(time.Minute)
		synctest.Wait()
		ms := time.Millisecond
		assert.Equal(t, []arrival{{"a", 100 * ms}, {"b", 100 * ms}, {"c", 100 * ms}, {"d", 150 * ms}, {"e", 150 * ms}, {"f", 150 * ms}, {"g", 1150 * ms}}, got)

		post("h", time.Second)
		m.close()
		post("i", time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, got, 7)
	})
}

func TestMailboxClosedByItsOwnDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m mailbox
		delivered := 0
		m.post(1, func() { delivered++; m.close() })
		m.post(1, func() { delivered++ })
		m.post(2, func() { delivered++ })
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, delivered)
	})
}
