//go:build !mutate

package pocketmq_test

import "errors"

func breakRule(int) error { return errors.New("it needs the build tag mutate") }
