package remoting

import (
	"fmt"

	"github.com/pocketmq/pocketmq/protocol"
)

// table writes an object of texts as a member. Java: KVTable.
func (w *writer) table(name string, t map[string]string) {
	w.object(name)
	for _, key := range sortedKeys(t) {
		w.text(key, t[key])
	}
	w.shut('}')
}

// putTable writes a table as the body, {"table":{}} for an empty one.
func (f *Frame) putTable(t map[string]string) {
	var w writer
	w.open('{')
	w.table("table", t)
	w.shut('}')
	f.Body = w.b
}

// kvTableOf reads what putTable writes; nil when v has no table.
func kvTableOf(v Value) (map[string]string, error) {
	table := v.Get("table")
	if table.Null() {
		return nil, nil
	}
	if table.kind != kindObject {
		return nil, fmt.Errorf("%w: the table is no object", errBadBody)
	}
	t := make(map[string]string, table.Len())
	table.Each(func(name, value Value) { t[name.Text()] = value.Text() })
	return t, nil
}

// putKVConfig sets a value of a name server's configuration. Java:
// PutKVConfigRequestHeader.
func putKVConfig() *command[protocol.NameServerConn, protocol.PutKVConfigRequest, protocol.PutKVConfigResponse] {
	return &command[protocol.NameServerConn, protocol.PutKVConfigRequest, protocol.PutKVConfigResponse]{
		name:   "PutKVConfig",
		codes:  []protocol.Code{protocol.CodePutKVConfig},
		method: protocol.NameServerConn.PutKVConfig,
		encodeRequest: func(q *protocol.PutKVConfigRequest, f *Frame) {
			f.put("namespace", q.Namespace)
			f.put("key", q.Key)
			f.put("value", q.Value)
		},
		decodeRequest: func(f *Frame) (*protocol.PutKVConfigRequest, error) {
			h := f.header()
			return &protocol.PutKVConfigRequest{Namespace: h.must("namespace"), Key: h.must("key"), Value: h.must("value")}, h.err
		},
	}
}

// getKVConfig asks for a value of a name server's configuration. Java:
// GetKVConfigRequestHeader.
func getKVConfig() *command[protocol.NameServerConn, protocol.GetKVConfigRequest, protocol.GetKVConfigResponse] {
	return &command[protocol.NameServerConn, protocol.GetKVConfigRequest, protocol.GetKVConfigResponse]{
		name:   "GetKVConfig",
		codes:  []protocol.Code{protocol.CodeGetKVConfig},
		method: protocol.NameServerConn.GetKVConfig,
		encodeRequest: func(q *protocol.GetKVConfigRequest, f *Frame) {
			f.put("namespace", q.Namespace)
			f.put("key", q.Key)
		},
		decodeRequest: func(f *Frame) (*protocol.GetKVConfigRequest, error) {
			h := f.header()
			return &protocol.GetKVConfigRequest{Namespace: h.must("namespace"), Key: h.must("key")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetKVConfigRequest, r *protocol.GetKVConfigResponse, f *Frame) {
			f.put("value", r.Value)
		},
		decodeResponse: func(f *Frame) (*protocol.GetKVConfigResponse, error) {
			h := f.header()
			return &protocol.GetKVConfigResponse{Value: h.text("value")}, nil
		},
	}
}

// deleteKVConfig removes a value of a name server's configuration. Java:
// DeleteKVConfigRequestHeader.
func deleteKVConfig() *command[protocol.NameServerConn, protocol.DeleteKVConfigRequest, protocol.DeleteKVConfigResponse] {
	return &command[protocol.NameServerConn, protocol.DeleteKVConfigRequest, protocol.DeleteKVConfigResponse]{
		name:   "DeleteKVConfig",
		codes:  []protocol.Code{protocol.CodeDeleteKVConfig},
		method: protocol.NameServerConn.DeleteKVConfig,
		encodeRequest: func(q *protocol.DeleteKVConfigRequest, f *Frame) {
			f.put("namespace", q.Namespace)
			f.put("key", q.Key)
		},
		decodeRequest: func(f *Frame) (*protocol.DeleteKVConfigRequest, error) {
			h := f.header()
			return &protocol.DeleteKVConfigRequest{Namespace: h.must("namespace"), Key: h.must("key")}, h.err
		},
	}
}

// listKVConfig asks for a namespace of a name server's configuration. Java:
// GetKVListByNamespaceRequestHeader, KVTable.
func listKVConfig() *command[protocol.NameServerConn, protocol.ListKVConfigRequest, protocol.ListKVConfigResponse] {
	return &command[protocol.NameServerConn, protocol.ListKVConfigRequest, protocol.ListKVConfigResponse]{
		name:          "ListKVConfig",
		codes:         []protocol.Code{protocol.CodeListKVConfig},
		method:        protocol.NameServerConn.ListKVConfig,
		encodeRequest: func(q *protocol.ListKVConfigRequest, f *Frame) { f.put("namespace", q.Namespace) },
		decodeRequest: func(f *Frame) (*protocol.ListKVConfigRequest, error) {
			h := f.header()
			return &protocol.ListKVConfigRequest{Namespace: h.must("namespace")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.ListKVConfigRequest, r *protocol.ListKVConfigResponse, f *Frame) {
			f.putTable(r.Table)
		},
		decodeResponse: func(f *Frame) (*protocol.ListKVConfigResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			t, err := kvTableOf(v)
			return &protocol.ListKVConfigResponse{Table: t}, err
		},
	}
}
