package protocol

// CheckClientConfigRequest asks whether a broker can serve a subscription, before
// a client relies on it. Java: CheckClientRequestBody.
type CheckClientConfigRequest struct {
	ClientID     string
	Group        string
	Namespace    string
	Subscription Subscription
}

// CheckClientConfigResponse says that it can. One whose kind of filter the broker
// does not have is an *Error of code SystemError instead.
type CheckClientConfigResponse struct{}

// CreateTopicListRequest is CreateTopicRequest for several topics, all of them or
// none. Java: CreateTopicListRequestBody.
type CreateTopicListRequest struct{ Configs []TopicConfig }

// CreateTopicListResponse acknowledges a CreateTopicListRequest.
type CreateTopicListResponse struct{}

// GetTopicConfigRequest asks a broker for a topic as it has it. Java:
// GetTopicConfigRequestHeader.
type GetTopicConfigRequest struct{ Topic string }

// GetTopicConfigResponse carries it. An unknown topic is an *Error of code
// TopicNotExist instead.
type GetTopicConfigResponse struct{ Config TopicConfig }

// Page asks for a part of a broker's table of topics or groups, which is in the
// order of their names.
type Page struct {
	First int // how many to pass over
	Most  int // how many to answer; 0 = MaxPage, which bounds it, too

	// Version is that of the table that the pages before came from. When the
	// broker's is another one the answer is the first page.
	Version DataVersion
}

// MaxPage is how many entries a page has at most. Java: 2000.
const MaxPage = 2000

// Of returns the part of a table with n entries and a version that p asks for:
// from first to end. nil asks for all.
func (p *Page) Of(n int, version DataVersion) (first, end int) {
	if p == nil {
		return 0, n
	}
	if p.Version == version {
		first = min(max(p.First, 0), n)
	}
	most := min(p.Most, MaxPage)
	if most <= 0 {
		most = MaxPage
	}
	return first, min(first+most, n)
}

// GetAllTopicConfigRequest asks a broker for its topics. Java:
// GetAllTopicConfigRequestHeader.
type GetAllTopicConfigRequest struct{ Page *Page } // nil = all

// GetAllTopicConfigResponse carries them, sorted. Java:
// TopicConfigAndMappingSerializeWrapper.
type GetAllTopicConfigResponse struct {
	Topics  []TopicConfig
	Version DataVersion
	Total   int // how many there are
}

// UpdateGroupListRequest is UpdateGroupRequest for several groups. Names are
// checked before any group is changed. Java: SubscriptionGroupList.
type UpdateGroupListRequest struct{ Configs []GroupConfig }

// UpdateGroupListResponse acknowledges an UpdateGroupListRequest.
type UpdateGroupListResponse struct{}

// GetAllGroupConfigRequest asks a broker for the settings of its groups. Java:
// GetAllSubscriptionGroupRequestHeader.
type GetAllGroupConfigRequest struct{ Page *Page } // nil = all

// GetAllGroupConfigResponse carries them, sorted. Java: SubscriptionGroupWrapper.
type GetAllGroupConfigResponse struct {
	Groups  []GroupConfig
	Version DataVersion
	Total   int // how many there are
}
