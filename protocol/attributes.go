package protocol

import (
	"encoding/json"
	"fmt"
)

// Attributes are texts by name in one comparable value, "" for none: a JSON object
// with its names in order. Java: TopicConfig.attributes.
type Attributes string

// AttributesOf returns m as Attributes.
func AttributesOf(m map[string]string) Attributes {
	if len(m) == 0 {
		return ""
	}
	text, err := json.Marshal(m) // sorts the names
	if err != nil {
		panic(fmt.Sprintf("protocol: attributes %v do not encode: %v", m, err)) // texts only
	}
	return Attributes(text)
}

// Map returns the attributes by name, never nil. The caller owns it.
func (a Attributes) Map() map[string]string {
	m := make(map[string]string)
	if a != "" {
		if err := json.Unmarshal([]byte(a), &m); err != nil {
			panic(fmt.Sprintf("protocol: attributes %q are not those of AttributesOf: %v", string(a), err))
		}
	}
	return m
}

// MarshalJSON writes the object.
func (a Attributes) MarshalJSON() ([]byte, error) {
	if a == "" {
		return []byte("{}"), nil
	}
	return []byte(a), nil
}

// UnmarshalJSON reads an object of texts.
func (a *Attributes) UnmarshalJSON(text []byte) error {
	var m map[string]string
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	*a = AttributesOf(m)
	return nil
}
