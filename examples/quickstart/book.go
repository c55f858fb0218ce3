package main

import (
	"context"
	"fmt"
	"sync"
)

// book keeps account of messages by their ids: a message has the same id when
// it is acknowledged and each time it is consumed.
type book struct {
	news chan struct{} // one slot: something was consumed

	mu           sync.Mutex // guards the fields below
	acknowledged map[string]bool
	consumed     map[string]int // how often
}

func newBook() *book {
	return &book{news: make(chan struct{}, 1), acknowledged: make(map[string]bool), consumed: make(map[string]int)}
}

func (b *book) acknowledge(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acknowledged[id] = true
}

func (b *book) consume(id string) {
	b.mu.Lock()
	b.consumed[id]++
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default: // there is news already
	}
}

// wait returns when everything acknowledged has been consumed, or ctx ends.
func (b *book) wait(ctx context.Context) {
	for b.lost() > 0 {
		select {
		case <-b.news:
		case <-ctx.Done():
			return
		}
	}
}

// lost counts what was acknowledged and has not been consumed.
func (b *book) lost() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := 0
	for id := range b.acknowledged {
		if b.consumed[id] == 0 {
			lost++
		}
	}
	return lost
}

// settle prints the account. Something lost is an error.
func (b *book) settle(sent int) error {
	lost := b.lost()
	b.mu.Lock()
	defer b.mu.Unlock()
	duplicates := 0
	for _, times := range b.consumed {
		duplicates += times - 1
	}
	fmt.Printf("   sent          %4d\n", sent)
	fmt.Printf("   acknowledged  %4d\n", len(b.acknowledged))
	fmt.Printf("   consumed      %4d\n", len(b.consumed))
	fmt.Printf("   duplicates    %4d  (at-least-once: a crash or a change of owners may deliver a message again)\n", duplicates)
	fmt.Printf("   lost          %4d\n", lost)
	if lost > 0 {
		return fmt.Errorf("%d acknowledged messages were lost", lost)
	}
	return nil
}
