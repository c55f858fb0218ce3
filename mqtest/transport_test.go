package mqtest_test

import (
	"testing"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/remoting"
)

func overMemory(*testing.T) pocketmq.Transport { return pocketmq.InMemory() }

func overPipes(*testing.T) pocketmq.Transport {
	return remoting.NewTransport("127.0.0.1", pipenet.New())
}

func overTCP(*testing.T) pocketmq.Transport { return pocketmq.TCP("127.0.0.1") }

func TestInMemoryIsATransport(t *testing.T) { t.Parallel(); mqtest.TestTransport(t, overMemory) }

func TestInMemoryIsATransportInVirtualTime(t *testing.T) {
	t.Parallel()
	mqtest.TestTransportInBubble(t, overMemory)
}

func TestFramesOnPipesAreATransport(t *testing.T) { t.Parallel(); mqtest.TestTransport(t, overPipes) }

func TestFramesOnPipesAreATransportInVirtualTime(t *testing.T) {
	t.Parallel()
	mqtest.TestTransportInBubble(t, overPipes)
}

func TestTCPIsATransport(t *testing.T) { t.Parallel(); mqtest.TestTransport(t, overTCP) }
