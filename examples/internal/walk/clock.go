package walk

import (
	"context"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq"
)

// Clock is the time of a cluster whose intervals are Speed times shorter than
// RocketMQ's. Where one waits a minute there, one waits a second here at speed
// 60; what is told is the minute.
type Clock struct {
	Begin time.Time
	Speed float64
}

// At returns the cluster time at t: how long after Begin.
func (c Clock) At(t time.Time) time.Duration { return c.Cluster(t.Sub(c.Begin)) }

// Now returns the cluster time now.
func (c Clock) Now() time.Duration { return c.At(time.Now()) }

// Real returns how long d of cluster time takes.
func (c Clock) Real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.Speed) }

// Cluster returns how much cluster time passes in d.
func (c Clock) Cluster(d time.Duration) time.Duration { return time.Duration(float64(d) * c.Speed) }

// Timings returns RocketMQ's intervals for this clock.
func (c Clock) Timings() pocketmq.Timings { return pocketmq.DefaultTimings().Scaled(1 / c.Speed) }

// Until waits for a moment of cluster time.
func (c Clock) Until(ctx context.Context, at time.Duration) error {
	timer := time.NewTimer(time.Until(c.Begin.Add(c.Real(at))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Slack is the cluster time by which a busy machine may be late.
func (c Clock) Slack() time.Duration { return c.Cluster(time.Second) }

// Seconds prints a moment or a span: "12.3 s".
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
