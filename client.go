package pocketmq

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"

	"github.com/pocketmq/pocketmq/message"
)

// identity is what tells one client from every other.
type identity struct {
	clientID string // ip@pid#hex8, or ip@InstanceName
	ip       netip.Addr
	loader   uint32 // random per client; part of its unique keys
}

// newIdentity makes a client id that no other client of this machine has,
// unless instance asks for a certain one.
func newIdentity(instance string) identity {
	id := identity{ip: netip.AddrFrom4([4]byte{127, 0, 0, 1}), loader: rand.Uint32()}
	if instance == "" {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], id.loader)
		instance = fmt.Sprintf("%d#%s", os.Getpid(), hex.EncodeToString(b[:]))
	}
	id.clientID = id.ip.String() + "@" + instance
	return id
}

func (id identity) uniqKeys() *message.UniqKeys {
	return message.NewUniqKeys(id.ip, uint16(os.Getpid()), id.loader)
}

// checkInstance accepts "" and names that can stand in a client id.
func checkInstance(p *problems, name string) {
	for _, r := range name {
		if r < 0x21 || r == 0x7f {
			p.add("InstanceName %q holds a blank or a control character", name)
			return
		}
	}
}
