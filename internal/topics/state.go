package topics

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

func (s *state) search(name string) (int, bool) {
	return slices.BinarySearchFunc(s.topics, name, func(t *topic, name string) int {
		return strings.Compare(t.config.Name, name)
	})
}

func (s *state) find(name string) *topic {
	if i, ok := s.search(name); ok {
		return s.topics[i]
	}
	return nil
}

// clone returns a copy that may be changed until it is published.
func (s *state) clone() *state {
	return &state{version: s.version, topics: slices.Clone(s.topics)}
}

// put creates or replaces a topic.
func (s *state) put(c protocol.TopicConfig) *topic {
	line, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("topics: %+v does not encode: %v", c, err)) // strings and numbers only
	}
	t := &topic{config: c, line: line}
	if i, found := s.search(c.Name); found {
		s.topics[i] = t
	} else {
		s.topics = slices.Insert(s.topics, i, t)
	}
	return t
}

// remove takes a topic out and reports whether it was there.
func (s *state) remove(name string) bool {
	i, found := s.search(name)
	if found {
		s.topics = slices.Delete(s.topics, i, i+1)
	}
	return found
}

// contents is the file's content.
type contents struct {
	DataVersion      protocol.DataVersion            `json:"dataVersion"`
	TopicConfigTable map[string]protocol.TopicConfig `json:"topicConfigTable"`
}

// encode writes one line per topic. The lines are kept encoded: a broker with
// thousands of topics writes all of them at each change.
func (s *state) encode() []byte {
	version, err := json.Marshal(s.version)
	if err != nil {
		panic(fmt.Sprintf("topics: %+v does not encode: %v", s.version, err)) // numbers only
	}
	size := 64 + len(version)
	for _, t := range s.topics {
		size += len(t.config.Name) + len(t.line) + 5
	}
	out := make([]byte, 0, size)
	out = append(out, "{\n\"dataVersion\":"...)
	out = append(out, version...)
	out = append(out, ",\n\"topicConfigTable\":{"...)
	for i, t := range s.topics {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, "\n\""...)
		out = append(out, t.config.Name...) // a legal name needs no escape
		out = append(out, "\":"...)
		out = append(out, t.line...)
	}
	return append(out, "\n}}"...)
}

// decode reads what encode wrote.
func decode(data []byte) (*state, error) {
	var c contents
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	s := &state{version: c.DataVersion}
	for name, config := range c.TopicConfigTable {
		if config.Name != name {
			return nil, fmt.Errorf("entry %q describes topic %q", name, config.Name)
		}
		if err := checkName(name); err != nil {
			return nil, err
		}
		line, err := json.Marshal(config)
		if err != nil {
			return nil, err
		}
		s.topics = append(s.topics, &topic{config: config, line: line})
	}
	slices.SortFunc(s.topics, func(a, b *topic) int { return strings.Compare(a.config.Name, b.config.Name) })
	return s, nil
}
