//go:build mutate

package pocketmq_test

import "github.com/pocketmq/pocketmq/ha"

// breakRule takes a rule away that failover rests on.
func breakRule(one int) error { return ha.Break(one) }
