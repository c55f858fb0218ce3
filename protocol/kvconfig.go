package protocol

// NamespaceOrderTopic is the namespace of a name server's KV configuration that
// holds the ordered topics: topic -> "broker-a:4;broker-b:4", the queues that
// its messages are sent to. Routes of the topic carry it, and brokers learn of
// it when they register. Java: NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG.
const NamespaceOrderTopic = "ORDER_TOPIC_CONFIG"

// PutKVConfigRequest sets one value of a name server's KV configuration. Each
// name server has its own: tools write to all of them.
// Java: PutKVConfigRequestHeader.
type PutKVConfigRequest struct {
	Namespace string // not empty
	Key       string // not empty
	Value     string
}

// PutKVConfigResponse acknowledges a PutKVConfigRequest: the value outlives the
// name server if that has a folder.
type PutKVConfigResponse struct{}

// GetKVConfigRequest asks for one value. Java: GetKVConfigRequestHeader.
type GetKVConfigRequest struct {
	Namespace string
	Key       string
}

// GetKVConfigResponse carries the value. One that is not there is an *Error of
// code QueryNotFound.
type GetKVConfigResponse struct{ Value string }

// DeleteKVConfigRequest removes one value; one that is not there is no error.
// Java: DeleteKVConfigRequestHeader.
type DeleteKVConfigRequest struct {
	Namespace string
	Key       string
}

// DeleteKVConfigResponse acknowledges a DeleteKVConfigRequest.
type DeleteKVConfigResponse struct{}

// ListKVConfigRequest asks for everything in a namespace.
// Java: GetKVListByNamespaceRequestHeader.
type ListKVConfigRequest struct{ Namespace string }

// ListKVConfigResponse carries key -> value, for the receiver to keep. A
// namespace that nothing was ever put into is an *Error of code QueryNotFound.
type ListKVConfigResponse struct{ Table map[string]string }
