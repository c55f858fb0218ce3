package remoting

import (
	"cmp"
	"slices"

	"github.com/pocketmq/pocketmq/protocol"
)

// checkClientConfig asks whether a broker can serve a subscription. Java:
// ClientManageProcessor.checkClientConfig.
func checkClientConfig() *command[protocol.BrokerConn, protocol.CheckClientConfigRequest, protocol.CheckClientConfigResponse] {
	return &command[protocol.BrokerConn, protocol.CheckClientConfigRequest, protocol.CheckClientConfigResponse]{
		name:   "CheckClientConfig",
		codes:  []protocol.Code{protocol.CodeCheckClientConfig},
		method: protocol.BrokerConn.CheckClientConfig,
		encodeRequest: func(q *protocol.CheckClientConfigRequest, f *Frame) {
			var w writer
			w.open('{')
			w.text("clientId", q.ClientID)
			w.text("group", q.Group)
			w.text("namespace", q.Namespace)
			w.name("subscriptionData")
			w.subscription(&q.Subscription)
			w.shut('}')
			f.Body = w.b
		},
		decodeRequest: func(f *Frame) (*protocol.CheckClientConfigRequest, error) {
			v, err := f.object()
			return &protocol.CheckClientConfigRequest{
				ClientID: v.Get("clientId").Text(), Group: v.Get("group").Text(), Namespace: v.Get("namespace").Text(),
				Subscription: subscriptionOf(v.Get("subscriptionData")),
			}, err
		},
	}
}

// createTopicList creates or changes several topics. Java:
// CreateTopicListRequestBody.
func createTopicList() *command[protocol.BrokerConn, protocol.CreateTopicListRequest, protocol.CreateTopicListResponse] {
	return &command[protocol.BrokerConn, protocol.CreateTopicListRequest, protocol.CreateTopicListResponse]{
		name:   "CreateTopicList",
		codes:  []protocol.Code{protocol.CodeCreateTopicList},
		method: protocol.BrokerConn.CreateTopicList,
		encodeRequest: func(q *protocol.CreateTopicListRequest, f *Frame) {
			var w writer
			w.open('{')
			w.list("topicConfigList")
			for i := range q.Configs {
				w.topic(&q.Configs[i])
			}
			w.shut(']')
			w.shut('}')
			f.Body = w.b
		},
		decodeRequest: func(f *Frame) (*protocol.CreateTopicListRequest, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			var m members
			q := &protocol.CreateTopicListRequest{}
			for _, t := range m.objects(v, "topicConfigList") {
				q.Configs = append(q.Configs, m.topic(t.Get("topicName"), t))
			}
			return q, m.err
		},
	}
}

// getTopicConfig asks a broker for one topic. Java: TopicConfigAndQueueMapping.
func getTopicConfig() *command[protocol.BrokerConn, protocol.GetTopicConfigRequest, protocol.GetTopicConfigResponse] {
	return &command[protocol.BrokerConn, protocol.GetTopicConfigRequest, protocol.GetTopicConfigResponse]{
		name:          "GetTopicConfig",
		codes:         []protocol.Code{protocol.CodeGetTopicConfig},
		method:        protocol.BrokerConn.GetTopicConfig,
		encodeRequest: func(q *protocol.GetTopicConfigRequest, f *Frame) { f.put("topic", q.Topic) },
		decodeRequest: func(f *Frame) (*protocol.GetTopicConfigRequest, error) {
			h := f.header()
			return &protocol.GetTopicConfigRequest{Topic: h.must("topic")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetTopicConfigRequest, r *protocol.GetTopicConfigResponse, f *Frame) {
			var w writer
			w.topic(&r.Config)
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetTopicConfigResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			var m members
			r := &protocol.GetTopicConfigResponse{Config: m.topic(v.Get("topicName"), v)}
			return r, m.err
		},
	}
}

// pageNames are the fields of a page.
type pageNames struct{ first, most string }

// putPage writes which page is asked for; nothing when it is all.
func (f *Frame) putPage(n pageNames, p *protocol.Page) {
	if p == nil {
		return
	}
	f.putInt(n.first, p.First)
	if p.Most > 0 {
		f.putInt(n.most, p.Most)
	}
	var w writer
	w.dataVersion(p.Version)
	f.put("dataVersion", string(w.b))
}

// page reads what putPage wrote. Who knows of no pages, as clients before
// RocketMQ 5.3, gets all.
func (h *header) page(n pageNames) *protocol.Page {
	version := h.text("dataVersion")
	if version == "" && h.text(n.first) == "" && h.text(n.most) == "" {
		return nil
	}
	p := &protocol.Page{First: h.intOr(n.first, 0), Most: h.intOr(n.most, 0)}
	v, err := ParseBody([]byte(version))
	if err != nil {
		h.fail("the field dataVersion: %v", err)
	}
	var m members
	if p.Version = m.dataVersion(v); m.err != nil {
		h.fail("the field dataVersion: %v", m.err)
	}
	return p
}

// getAllTopicConfig asks a broker for its topics. Java:
// AdminBrokerProcessor.getAllTopicConfig.
func getAllTopicConfig() *command[protocol.BrokerConn, protocol.GetAllTopicConfigRequest, protocol.GetAllTopicConfigResponse] {
	names := pageNames{"topicSeq", "maxTopicNum"}
	return &command[protocol.BrokerConn, protocol.GetAllTopicConfigRequest, protocol.GetAllTopicConfigResponse]{
		name:          "GetAllTopicConfig",
		codes:         []protocol.Code{protocol.CodeGetAllTopicConfig},
		method:        protocol.BrokerConn.GetAllTopicConfig,
		encodeRequest: func(q *protocol.GetAllTopicConfigRequest, f *Frame) { f.putPage(names, q.Page) },
		decodeRequest: func(f *Frame) (*protocol.GetAllTopicConfigRequest, error) {
			h := f.header()
			return &protocol.GetAllTopicConfigRequest{Page: h.page(names)}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetAllTopicConfigRequest, r *protocol.GetAllTopicConfigResponse, f *Frame) {
			f.putInt("totalTopicNum", r.Total)
			var w writer
			w.open('{')
			w.name("dataVersion")
			w.dataVersion(r.Version)
			w.name("mappingDataVersion")
			w.dataVersion(protocol.DataVersion{})
			w.object("topicConfigTable")
			for i := range r.Topics {
				w.name(r.Topics[i].Name)
				w.topic(&r.Topics[i])
			}
			w.shut('}')
			w.object("topicQueueMappingDetailMap")
			w.shut('}')
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetAllTopicConfigResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			var m members
			r := &protocol.GetAllTopicConfigResponse{Version: m.dataVersion(v.Get("dataVersion"))}
			v.Get("topicConfigTable").Each(func(name, t Value) { r.Topics = append(r.Topics, m.topic(name, t)) })
			if m.err != nil {
				return nil, m.err
			}
			slices.SortFunc(r.Topics, func(a, b protocol.TopicConfig) int { return cmp.Compare(a.Name, b.Name) })
			h := f.header()
			r.Total = h.intOr("totalTopicNum", len(r.Topics))
			return r, h.err
		},
	}
}

// updateGroupList creates consumer groups or changes their settings. Java:
// SubscriptionGroupList.
func updateGroupList() *command[protocol.BrokerConn, protocol.UpdateGroupListRequest, protocol.UpdateGroupListResponse] {
	return &command[protocol.BrokerConn, protocol.UpdateGroupListRequest, protocol.UpdateGroupListResponse]{
		name:   "UpdateGroupList",
		codes:  []protocol.Code{protocol.CodeUpdateGroupList},
		method: protocol.BrokerConn.UpdateGroupList,
		encodeRequest: func(q *protocol.UpdateGroupListRequest, f *Frame) {
			var w writer
			w.open('{')
			w.list("groupConfigList")
			for i := range q.Configs {
				w.group(&q.Configs[i])
			}
			w.shut(']')
			w.shut('}')
			f.Body = w.b
		},
		decodeRequest: func(f *Frame) (*protocol.UpdateGroupListRequest, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			var m members
			q := &protocol.UpdateGroupListRequest{}
			for _, g := range m.objects(v, "groupConfigList") {
				q.Configs = append(q.Configs, m.group(g))
			}
			return q, m.err
		},
	}
}

// getAllGroupConfig asks a broker for the settings of its groups. Java:
// AdminBrokerProcessor.getAllSubscriptionGroup.
func getAllGroupConfig() *command[protocol.BrokerConn, protocol.GetAllGroupConfigRequest, protocol.GetAllGroupConfigResponse] {
	names := pageNames{"groupSeq", "maxGroupNum"}
	return &command[protocol.BrokerConn, protocol.GetAllGroupConfigRequest, protocol.GetAllGroupConfigResponse]{
		name:          "GetAllGroupConfig",
		codes:         []protocol.Code{protocol.CodeGetAllGroupConfig},
		method:        protocol.BrokerConn.GetAllGroupConfig,
		encodeRequest: func(q *protocol.GetAllGroupConfigRequest, f *Frame) { f.putPage(names, q.Page) },
		decodeRequest: func(f *Frame) (*protocol.GetAllGroupConfigRequest, error) {
			h := f.header()
			return &protocol.GetAllGroupConfigRequest{Page: h.page(names)}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetAllGroupConfigRequest, r *protocol.GetAllGroupConfigResponse, f *Frame) {
			f.putInt("totalGroupNum", r.Total)
			var w writer
			w.open('{')
			w.name("dataVersion")
			w.dataVersion(r.Version)
			w.object("forbiddenTable")
			w.shut('}')
			w.object("subscriptionGroupTable")
			for i := range r.Groups {
				w.name(r.Groups[i].Name)
				w.group(&r.Groups[i])
			}
			w.shut('}')
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetAllGroupConfigResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			var m members
			r := &protocol.GetAllGroupConfigResponse{Version: m.dataVersion(v.Get("dataVersion"))}
			v.Get("subscriptionGroupTable").Each(func(name, g Value) {
				config := m.group(g)
				config.Name = name.Text()
				r.Groups = append(r.Groups, config)
			})
			if m.err != nil {
				return nil, m.err
			}
			slices.SortFunc(r.Groups, func(a, b protocol.GroupConfig) int { return cmp.Compare(a.Name, b.Name) })
			h := f.header()
			r.Total = h.intOr("totalGroupNum", len(r.Groups))
			return r, h.err
		},
	}
}
