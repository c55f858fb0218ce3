package message

import (
	"fmt"
	"strings"
	"time"
)

// keyedExt gives a message of one key, by far the most frequent kind, a home
// for its Keys within the same allocation.
type keyedExt struct {
	Ext
	key [1]string
}

// DecodeExt decodes the stored record at the start of rec into a message that
// owns its memory; rec is not kept. A compressed body is inflated up to
// c.InflateLimit. brokerName goes into Queue. topic is a hint: when the record
// lies in that topic, this string is used instead of a new one.
//
// A record that cannot be decoded or inflated is ErrBadRecord. The body's
// checksum is not compared: View.CheckBody does that.
// Java: MessageDecoder.clientDecode, PullAPIWrapper.processPullResult.
func (c *Codec) DecodeExt(rec []byte, brokerName, topic string) (*Ext, error) {
	v, at, err := parse(rec)
	if err != nil {
		return nil, err
	}
	keyed := new(keyedExt)
	e := &keyed.Ext

	e.SysFlag = v.SysFlag()
	body := v[at.body:at.bodyEnd]
	if e.SysFlag&FlagCompressed != 0 {
		if e.Body, err = c.Inflate(body, e.SysFlag, c.InflateLimit); err != nil {
			return nil, fmt.Errorf("position %d, topic %q: %w", v.Position(), v[at.topic:at.topicEnd], err)
		}
		e.SysFlag &^= FlagCompressed
		if len(e.Body) == 0 {
			e.Body = nil
		}
	} else if len(body) > 0 {
		e.Body = append(make([]byte, 0, len(body)), body...)
	}

	if stored := v[at.topic:at.topicEnd]; string(stored) != topic {
		topic = string(stored)
	}
	e.Topic = topic
	e.Queue = Queue{Topic: topic, BrokerName: brokerName, QueueID: int(v.QueueID())}
	e.QueueOffset = v.QueueOffset()
	e.CommitLogOffset = v.Position()
	e.Flag = v.Flag()
	e.PreparedTransactionOffset = v.int64At(at.reconsume + 4)
	e.ReconsumeTimes = int(v.int32At(at.reconsume))
	e.BornTime, e.StoreTime = time.UnixMilli(v.BornTime()), time.UnixMilli(v.int64At(at.storeTime))
	e.BornHost = v.BornHost()
	e.StoreHost = v.hostAt(at.storeTime+8, e.SysFlag&FlagStoreHostV6 != 0)
	e.StoreSize = v.Size()
	e.BodyCRC = v.BodyCRC()

	// One string holds the properties text and the id.
	props := v[at.props:]
	var id [2 * (hostV6 + 8)]byte
	idText := appendOffsetMsgID(id[:0], e.StoreHost, e.CommitLogOffset)
	var b strings.Builder
	b.Grow(len(props) + len(idText))
	b.Write(props)
	b.Write(idText)
	text := b.String()
	e.properties, e.OffsetMsgID = text[:len(props)], text[len(props):]
	e.fill(&keyed.key)
	return e, nil
}

// fill sets the fields that come from properties. one is where a single key
// is kept.
func (e *Ext) fill(one *[1]string) {
	var keys, goShardingKey, retryTopic, uniqKey, transactionID string
	prepared := false
	for text := e.properties; len(text) > 0; {
		var name, value string
		name, value, text = cutProperty(text)
		if value == "" {
			continue
		}
		switch name {
		case PropUniqKey:
			uniqKey = value
		case PropTags:
			e.Tag = value
		case PropKeys:
			keys = value
		case PropShardingKey:
			e.ShardingKey = value
		case PropShardingKeyGo:
			goShardingKey = value
		case PropRetryTopic:
			retryTopic = value
		case PropTransactionPrepared:
			prepared = value == "true"
		case PropTransactionID:
			transactionID = value
		default:
			if IsReserved(name) {
				continue
			}
			if e.Properties == nil {
				e.Properties = make(map[string]string)
			}
			e.Properties[name] = value
		}
	}

	if keys != "" {
		e.Keys = splitKeys(keys, one)
	}
	if e.ShardingKey == "" {
		e.ShardingKey = goShardingKey
	}
	if retryTopic != "" && IsRetryTopic(e.Topic) {
		e.Topic = retryTopic
	}
	e.MsgID = uniqKey
	if uniqKey == "" {
		e.MsgID = e.OffsetMsgID
	}
	e.TransactionID = transactionID
	if prepared && uniqKey != "" {
		e.TransactionID = uniqKey
	}
}

// splitKeys parts the value of KEYS at its blanks; nil if it has only blanks.
func splitKeys(value string, one *[1]string) []string {
	if strings.IndexByte(value, ' ') < 0 {
		one[0] = value
		return one[:1:1]
	}
	var keys []string
	for key := range strings.SplitSeq(value, " ") {
		if key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}
