package routetable

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// DefaultTimeout is the silence after which a broker is dropped that did not
// name its own. Java: RouteInfoManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME.
const DefaultTimeout = 120 * time.Second

// Table is the state of one name server. Safe for concurrent use; no method
// blocks. What methods return is a copy that belongs to the caller.
type Table struct {
	routes sync.Map // topic -> []protocol.QueueData, never changed; what Route reads, written under mu
	groups sync.Map // broker name -> *shown; the same

	mu       sync.RWMutex                             // guards everything below
	topics   map[string]map[string]protocol.QueueData // topic -> broker name -> share; no empty inner maps
	brokers  map[string]*group                        // broker name -> group
	clusters map[string]map[string]struct{}           // cluster -> broker names; no empty inner maps
	live     map[place]*entry
	filters  map[place][]string // filter servers; no empty slices
	shares   int                // of all topics together
	limits   limits
}

// group is what is known of a broker group. It may be without addresses, when
// its first registration was refused.
type group struct {
	cluster string
	zone    string           // of its last registration; "" = none
	addrs   map[int64]string // broker id -> address
}

func (g *group) data(name string) protocol.BrokerData {
	return protocol.BrokerData{Cluster: g.cluster, BrokerName: name, Addrs: maps.Clone(g.addrs), Zone: g.zone}
}

// place is where a broker lives, the identity of one running broker.
type place struct{ cluster, addr string }

// entry is a live broker. Java: BrokerLiveInfo.
type entry struct {
	name    string
	id      int64
	last    time.Time // last sign of life
	timeout time.Duration
	version protocol.DataVersion
	conn    uint64
	haAddr  string
}

// New returns an empty table.
func New() *Table {
	return &Table{
		topics:   make(map[string]map[string]protocol.QueueData),
		brokers:  make(map[string]*group),
		clusters: make(map[string]map[string]struct{}),
		live:     make(map[place]*entry),
		filters:  make(map[place][]string),
		limits:   defaultLimits(),
	}
}

// Change tells what a caller may want to announce after a call.
type Change struct {
	Registered bool     // a broker, or a new address of one, came in
	Topics     []string // topics whose route changed, sorted; nil = none
	Min        *MinID   // nil: the smallest id is what and where it was
}

// MinID tells that the smallest id in a broker group is another one now, or has another
// address. Java: RouteInfoManager.notifyMinBrokerIdChanged.
//
// Differs: there it is told only when the id changes, and when a member is gone only
// in groups with an acting master.
type MinID struct {
	BrokerName   string
	ID           int64
	Addr, HAAddr string
	Offline      string   // address of the member that is gone; "" when one has come
	Tell         []string // addresses of those whom it concerns, sorted
}

// Expired is a broker that was dropped because it fell silent or lost its
// connection.
type Expired struct {
	BrokerName string
	ID         int64
	Addr       string
	Topics     []string // topics whose route changed, sorted
	Min        *MinID   // nil: the smallest id of the group is what it was, or none
}

// Live is one live broker.
type Live struct {
	Name string
	ID   int64
	Addr string
	Age  time.Duration // since its last sign of life
}

// Register takes in a broker that registers at now through connection conn,
// with all of its topics or only the changed ones. Topics that a registration
// leaves out are kept. Only a master's topics are looked at, and those that are
// known are replaced only when the data version differs from the last one. A
// slave is told its master's addresses. Under another id the same address is
// removed. Java: RouteInfoManager.registerBroker.
//
// Errors (*protocol.Error): SystemError when cluster, name or address is
// empty, when the table would hold more than it may, and when a broker id that is
// not known comes with exactly one topic: it would be routable for that topic
// alone. Such a broker registers all of its topics first. ServiceNotAvailable when
// the id belongs to a live broker of a later state version: whose master was
// replaced has to learn of it. Differs: RocketMQ ignores such a registration and
// answers that it was taken.
//
// Nothing of r is kept. HeartbeatTimeout 0 is DefaultTimeout.
func (t *Table) Register(now time.Time, conn uint64, r *protocol.RegisterBrokerRequest) (*protocol.RegisterBrokerResponse, Change, error) {
	if r.Cluster == "" || r.BrokerName == "" || r.Addr == "" {
		return nil, Change{}, protocol.Errorf(protocol.SystemError,
			"register broker failed: cluster %q, broker %q and address %q must not be empty", r.Cluster, r.BrokerName, r.Addr)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := place{r.Cluster, r.Addr}
	if err := t.roomLocked(at, r); err != nil {
		return nil, Change{}, err
	}
	defer t.showGroupLocked(r.BrokerName) // whatever becomes of it

	names := t.clusters[r.Cluster]
	if names == nil {
		names = make(map[string]struct{})
		t.clusters[r.Cluster] = names
	}
	names[r.BrokerName] = struct{}{}
	g := t.brokers[r.BrokerName]
	first := g == nil
	if first {
		g = &group{cluster: r.Cluster, addrs: make(map[int64]string)}
		t.brokers[r.BrokerName] = g
	}

	before := t.minLocked(r.BrokerName)
	rezoned := g.zone != r.Zone
	g.zone = r.Zone

	old, known := g.addrs[r.BrokerID]
	if !known && len(r.Topics) == 1 {
		// As in the reference the group stays, without an address.
		return nil, Change{}, protocol.Errorf(protocol.SystemError,
			"register broker failed: broker %s id %d is not known here and brings only topic %q; register all of its topics first",
			r.BrokerName, r.BrokerID, r.Topics[0].Name)
	}
	// A slave that became the master keeps one entry.
	moved := false
	for id, addr := range g.addrs {
		if addr == r.Addr && id != r.BrokerID {
			delete(g.addrs, id)
			moved = true
		}
	}
	if known && old != r.Addr {
		// Two brokers claim the id: the one with the newer state keeps it.
		if e := t.live[place{r.Cluster, old}]; e != nil && e.version.StateVersion > r.Version.StateVersion {
			delete(t.live, at)
			delete(t.filters, at)
			var c Change
			if moved || rezoned {
				c.Topics = t.topicsOfLocked(r.BrokerName)
			}
			return nil, c, protocol.Errorf(protocol.ServiceNotAvailable,
				"register broker failed: id %d of %s is that of %s, whose state is %d, and later than that of %s, which is %d: it has taken over",
				r.BrokerID, r.BrokerName, old, e.version.StateVersion, r.Addr, r.Version.StateVersion)
		}
	}
	g.addrs[r.BrokerID] = r.Addr
	first = first || !known
	c := Change{Registered: old != r.Addr}

	changed := make(map[string]struct{})
	if r.BrokerID == protocol.MasterID {
		e := t.live[at]
		stale := first || e == nil || e.version != r.Version
		for _, topic := range r.Topics {
			if topic.Name != "" && t.applyLocked(r.BrokerName, topic, stale) {
				changed[topic.Name] = struct{}{}
			}
		}
	}
	if c.Registered || moved || rezoned { // addresses and zone are part of every route
		for _, name := range t.topicsOfLocked(r.BrokerName) {
			changed[name] = struct{}{}
		}
	}
	if len(changed) > 0 {
		c.Topics = slices.Sorted(maps.Keys(changed))
		t.showGroupLocked(r.BrokerName) // before its topics lead to it
		t.showLocked(c.Topics...)
	}

	timeout := r.HeartbeatTimeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	t.live[at] = &entry{
		name: r.BrokerName, id: r.BrokerID, last: now, timeout: timeout,
		version: r.Version, conn: conn, haAddr: r.HAAddr,
	}
	if len(r.FilterServers) > 0 {
		t.filters[at] = slices.Clone(r.FilterServers)
	} else {
		delete(t.filters, at)
	}

	if after := t.minLocked(r.BrokerName); after.ID < before.ID || after.ID == before.ID && after != before {
		c.Min = t.tellLocked(after, after.Addr)
	}
	resp := &protocol.RegisterBrokerResponse{}
	if r.BrokerID != protocol.MasterID {
		if master, ok := g.addrs[protocol.MasterID]; ok {
			if e := t.live[place{r.Cluster, master}]; e != nil {
				resp.MasterAddr, resp.HAAddr = master, e.haAddr
			}
		}
	}
	return resp, c, nil
}

// minEntry is the member of a group with the smallest id.
type minEntry struct {
	name         string
	ID           int64
	Addr, haAddr string
}

// minLocked is that of a group; its ID is the largest there is when there is none.
func (t *Table) minLocked(name string) minEntry {
	m := minEntry{name: name, ID: math.MaxInt64}
	g := t.brokers[name]
	if g == nil {
		return m
	}
	for id, addr := range g.addrs {
		if id < m.ID {
			m.ID, m.Addr = id, addr
		}
	}
	if e := t.live[place{g.cluster, m.Addr}]; e != nil {
		m.haAddr = e.haAddr
	}
	return m
}

// tellLocked is what the members of a group are to be told, but for the one at an
// address; nil when there is nobody to tell.
func (t *Table) tellLocked(m minEntry, but string) *MinID {
	var tell []string
	if g := t.brokers[m.name]; g != nil {
		for _, addr := range g.addrs {
			if addr != but {
				tell = append(tell, addr)
			}
		}
	}
	if len(tell) == 0 {
		return nil
	}
	slices.Sort(tell)
	return &MinID{BrokerName: m.name, ID: m.ID, Addr: m.Addr, HAAddr: m.haAddr, Tell: tell}
}

// applyLocked puts a topic's share on a broker, when it is unknown or stale,
// and reports whether the route changed.
func (t *Table) applyLocked(brokerName string, topic protocol.TopicConfig, stale bool) bool {
	shares := t.topics[topic.Name]
	old, known := shares[brokerName]
	if known && !stale {
		return false
	}
	share := bounded(protocol.QueueData{
		BrokerName: brokerName, ReadQueues: topic.ReadQueues, WriteQueues: topic.WriteQueues,
		Perm: topic.Perm, SysFlag: topic.SysFlag,
	})
	if known && old == share {
		return false
	}
	if shares == nil {
		shares = make(map[string]protocol.QueueData)
		t.topics[topic.Name] = shares
	}
	if !known {
		t.shares++
	}
	shares[brokerName] = share
	return true
}

// Unregister takes a broker out of the routes. A request that names another
// address than the one that is registered under its name and id changes
// nothing: it is a late one of a former life. Java:
// RouteInfoManager.unRegisterBroker. Differs: there the id is not compared, so
// that a late request of a former slave removes the master it became.
func (t *Table) Unregister(r *protocol.UnregisterBrokerRequest) Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	topics, low, _ := t.removeLocked(place{r.Cluster, r.Addr}, r.BrokerName, r.BrokerID)
	return Change{Topics: topics, Min: low}
}

// removeLocked forgets the broker (name, id) at a place, and its group when it
// was the last of it. It returns the topics whose route changed, whether the smallest
// id of the group did, and whether the place was an address of the group.
func (t *Table) removeLocked(at place, name string, id int64) (topics []string, low *MinID, removed bool) {
	if e := t.live[at]; e != nil && e.name == name && e.id == id {
		delete(t.live, at)
		delete(t.filters, at)
	}
	g := t.brokers[name]
	if g == nil || g.addrs[id] != at.addr {
		return nil, nil, false
	}
	defer t.showGroupLocked(name)
	topics = t.topicsOfLocked(name)
	delete(g.addrs, id)
	if len(g.addrs) > 0 {
		if m := t.minLocked(name); m.ID > id {
			low = t.tellLocked(m, "")
			low.Offline = at.addr
		}
		return topics, low, true
	}
	t.forgetLocked(name)
	for _, topic := range topics {
		shares := t.topics[topic]
		delete(shares, name)
		t.shares--
		if len(shares) == 0 {
			delete(t.topics, topic)
		}
	}
	t.showLocked(topics...)
	return topics, nil, true
}

// forgetLocked forgets a group.
func (t *Table) forgetLocked(name string) {
	delete(t.brokers, name)
	t.groups.Delete(name)
	for cluster, names := range t.clusters {
		delete(names, name)
		if len(names) == 0 {
			delete(t.clusters, cluster)
		}
	}
}

// topicsOfLocked lists the topics that have a share on a broker, sorted.
func (t *Table) topicsOfLocked(brokerName string) []string {
	var topics []string
	for topic, shares := range t.topics {
		if _, ok := shares[brokerName]; ok {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return topics
}

// Heartbeat notes a sign of life at now and reports whether the broker is
// known; an unknown one has to register.
// Java: RouteInfoManager.updateBrokerInfoUpdateTimestamp.
func (t *Table) Heartbeat(now time.Time, r *protocol.BrokerHeartbeatRequest) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.live[place{r.Cluster, r.Addr}]
	if e == nil {
		return false
	}
	e.last = now
	return true
}

// DataVersion tells whether the topics of a broker are known here in the
// version it asks for. The question is a sign of life too. An unknown broker
// is answered Changed. Java: DefaultRequestProcessor.queryBrokerTopicConfig.
func (t *Table) DataVersion(now time.Time, r *protocol.QueryDataVersionRequest) protocol.QueryDataVersionResponse {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.live[place{r.Cluster, r.Addr}]
	if e == nil {
		return protocol.QueryDataVersionResponse{Changed: true}
	}
	e.last = now
	return protocol.QueryDataVersionResponse{Changed: e.version != r.Version, Version: e.version}
}

// Expire drops every broker whose last sign of life is longer ago than its
// timeout; strictly longer, so one that is exactly that old stays. Sorted by
// broker name and id. Java: RouteInfoManager.scanNotActiveBroker. Differs:
// there the entry of an address that a broker has left stays for ever.
func (t *Table) Expire(now time.Time) []Expired {
	return t.drop(func(e *entry) bool { return e.last.Add(e.timeout).Before(now) })
}

// ConnClosed drops the brokers whose last registration came through conn. One
// that has registered again through another connection stays. Sorted by broker
// name and id. Java: RouteInfoManager.onChannelDestroy.
func (t *Table) ConnClosed(conn uint64) []Expired {
	return t.drop(func(e *entry) bool { return e.conn == conn })
}

func (t *Table) drop(gone func(*entry) bool) []Expired {
	t.mu.Lock()
	defer t.mu.Unlock()
	var dropped []Expired
	for at, e := range t.live {
		if !gone(e) {
			continue
		}
		topics, low, removed := t.removeLocked(at, e.name, e.id)
		if removed {
			dropped = append(dropped, Expired{e.name, e.id, at.addr, topics, low})
		}
	}
	slices.SortFunc(dropped, func(a, b Expired) int {
		return cmp.Or(cmp.Compare(a.BrokerName, b.BrokerName), cmp.Compare(a.ID, b.ID))
	})
	return dropped
}

// ClusterInfo lists all broker groups, sorted by name, one without addresses
// too. Java: RouteInfoManager.getAllClusterInfo.
func (t *Table) ClusterInfo() []protocol.BrokerData {
	t.mu.RLock()
	defer t.mu.RUnlock()
	info := make([]protocol.BrokerData, 0, len(t.brokers))
	for _, name := range slices.Sorted(maps.Keys(t.brokers)) {
		info = append(info, t.brokers[name].data(name))
	}
	return info
}

// Members returns the addresses of a broker group by id, for the caller to keep;
// none when it is not known. Java: RouteInfoManager.getBrokerMemberGroup.
func (t *Table) Members(brokerName string) map[int64]string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	addrs := make(map[int64]string)
	if g := t.brokers[brokerName]; g != nil {
		maps.Copy(addrs, g.addrs)
	}
	return addrs
}

// Live lists the brokers that are alive, sorted by name and id, with how long
// ago, at now, they gave their last sign of life.
func (t *Table) Live(now time.Time) []Live {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var live []Live
	for at, e := range t.live {
		if g := t.brokers[e.name]; g == nil || g.addrs[e.id] != at.addr {
			continue // an address that the broker has left
		}
		live = append(live, Live{Name: e.name, ID: e.id, Addr: at.addr, Age: now.Sub(e.last)})
	}
	slices.SortFunc(live, func(a, b Live) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Addr, b.Addr))
	})
	return live
}
