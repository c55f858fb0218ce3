package message

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// uniqKeyRoom is what UNIQ_KEY takes in a properties text beside what the
// user gave: name, two marks and the 32 characters of a key with an IPv4
// address.
const uniqKeyRoom = len(PropUniqKey) + 2 + 2*uniqV4

// maxProblems is how many faults an error lists; more would bury the reader.
const maxProblems = 5

// Validate reports everything that is wrong with the properties of m: a
// reserved name, an empty name, value or key, a key with a blank, a control
// character 0x01 or 0x02, text that is not UTF-8, more than one kind of delay or a
// negative one, and a properties text that with UNIQ_KEY takes more than
// MaxPropertiesLength bytes. The error is of kind ErrIllegalMessage and names
// each fault with its remedy. Topic and body are not looked at. A valid message
// costs no allocation. Java: MessageAccessor, Message.putUserProperty.
//
// Differs: Java also refuses values of blanks only, and does not look for
// control characters, so that such a property arrives as another one.
func (m *Message) Validate() error {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	size := m.fieldsSize() + uniqKeyRoom
	for name, value := range m.Properties {
		size += propertySize(name, value)
		if name == "" {
			add("a property without a name; give it one")
			continue
		}
		if IsReserved(name) {
			add("property %q is reserved; %s", name, reservedRemedy(name))
			continue
		}
		if value == "" {
			add("property %q is empty; leave it out", name)
		}
		if why := unfit(name); why != "" {
			add("the name of property %q %s", name, why)
		}
		if why := unfit(value); why != "" {
			add("the value of property %q %s", name, why)
		}
	}
	for i, key := range m.Keys {
		if key == "" {
			add("key %d is empty; leave it out", i)
		} else if strings.IndexByte(key, ' ') >= 0 {
			add("key %d, %q, contains a blank, which separates keys; make it two keys or use another character", i, key)
		} else if why := unfit(key); why != "" {
			add("key %d, %q, %s", i, key, why)
		}
	}
	if why := unfit(m.Tag); why != "" {
		add("tag %q %s", m.Tag, why)
	}
	if why := unfit(m.ShardingKey); why != "" {
		add("sharding key %q %s", m.ShardingKey, why)
	}

	kinds := 0
	if m.DelayLevel != 0 {
		kinds++
	}
	if m.Delay != 0 {
		kinds++
	}
	if !m.DeliverAt.IsZero() {
		kinds++
	}
	if kinds > 1 {
		add("more than one of DelayLevel, Delay and DeliverAt is set; set one")
	}
	if m.DelayLevel < 0 {
		add("DelayLevel is %d; levels start at 1, 0 means no delay", m.DelayLevel)
	}
	if m.Delay < 0 {
		add("Delay is %v; it must not be negative, 0 means no delay", m.Delay)
	}

	if size > MaxPropertiesLength {
		add("properties, keys and tag take %d bytes as text, maximum %d; move content to the body", size, MaxPropertiesLength)
	}
	if problems == nil {
		return nil
	}
	slices.Sort(problems) // the order of the map does not show
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w: %s", ErrIllegalMessage, strings.Join(problems, "; "))
}

// unfit tells why s cannot be part of a properties text, "" if it can.
func unfit(s string) string {
	ascii := true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == nameEnd || c == valueEnd:
			return fmt.Sprintf("contains the control character %#02x, which separates properties; encode it", c)
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	if !ascii && !utf8.ValidString(s) {
		return "is not UTF-8; encode binary values, for example as base64"
	}
	return ""
}
