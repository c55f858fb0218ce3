package pocketmq_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestTLSCarriesAWholeCluster(t *testing.T) {
	t.Run("enforced", func(t *testing.T) {
		over := pocketmq.TCPWith(pocketmq.TCPConfig{Host: "127.0.0.1", TLS: pocketmq.TLSEnforcing})
		carries(t, over)

		c := run(t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 1}})
		for what, stranger := range map[string]pocketmq.TCPConfig{
			"DialTLS":         {},
			"set DialTLS":     {TLS: pocketmq.TLSEnforcing},
			"into RootCAs of": {DialTLS: &tls.Config{RootCAs: x509.NewCertPool()}},
		} {
			p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: c.NameServerAddrs(), Transport: pocketmq.TCPWith(stranger)})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err = p.Start(ctx)
			if err == nil {
				_, err = p.Send(ctx, text("T", "x"))
			}
			cancel()
			assert.ErrorContains(t, err, what)
			require.NoError(t, p.Close())
		}
	})
	t.Run("beside clients without", func(t *testing.T) {
		over := pocketmq.TCPWith(pocketmq.TCPConfig{Host: "127.0.0.1", DialTLS: &tls.Config{InsecureSkipVerify: true}})
		carries(t, over)
		c := run(t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 1}})
		p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: c.NameServerAddrs(), Transport: overTCP()})
		require.NoError(t, err)
		require.NoError(t, p.Start(t.Context()))
		_, err = p.Send(t.Context(), text("T", "x"))
		assert.NoError(t, err)
		require.NoError(t, p.Close())
	})
	_, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Transport: pocketmq.TCPWith(pocketmq.TCPConfig{Host: "127.0.0.1", TLS: 7})})
	assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
	assert.ErrorContains(t, err, "TLSMode(7)")
}

func TestAPreambleSaysWhereAMessageIsBorn(t *testing.T) {
	for _, welcome := range []bool{true, false} {
		c := run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCPWith(pocketmq.TCPConfig{Host: "127.0.0.1", ProxyProtocol: welcome}), Topics: map[string]int{"T": 1}})
		conn := stranger(t, c.Broker("broker-a", 0).Addr())
		_, err := conn.Write([]byte("PROXY TCP4 10.0.0.7 127.0.0.1 12345 10911\r\n"))
		require.NoError(t, err)
		if !welcome {
			isClosed(t, conn, "a preamble that is not welcome")
			continue
		}
		_, err = conn.Write(sendFrame(t, "T", "x"))
		require.NoError(t, err)
		sent := answerTo(t, conn)
		require.Zero(t, sent.Code, sent.Remark)
		id, _ := sent.Ext.Get("msgId")
		m, err := c.Admin().MessageByID(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, "10.0.0.7:12345", m.BornHost.String())
		require.NoError(t, conn.Close())
	}
}
