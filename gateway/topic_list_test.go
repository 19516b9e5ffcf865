package gateway

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
)

type topicPage struct {
	Items      []topicJSON
	NextCursor *string
}

func TestListTopicsPages(t *testing.T) {
	n := start(t, nil)
	var page topicPage
	n.call("GET", "/v1/topics", "").ok(200, &page)
	if page.Items == nil || len(page.Items) != 0 || page.NextCursor != nil {
		t.Fatalf("empty list: %+v", page)
	}
	for i := range 7 {
		n.f.elsewhere(tenantA, fmt.Sprintf("t%d", i), func(c *api.TopicConfig) { c.Partitions = 1 })
	}
	n.f.elsewhere(tenantB, "theirs", nil)
	var names []string
	path := "/v1/topics?limit=3"
	for range 4 {
		page = topicPage{}
		n.call("GET", path, "").ok(200, &page)
		for _, it := range page.Items {
			names = append(names, it.Name)
			if len(it.PartitionInfo) != 1 {
				t.Errorf("%s without partitionInfo", it.Name)
			}
		}
		if page.NextCursor == nil {
			break
		}
		path = "/v1/topics?limit=3&cursor=" + url.QueryEscape(*page.NextCursor)
	}
	if got := fmt.Sprint(names); got != "[t0 t1 t2 t3 t4 t5 t6]" {
		t.Errorf("pages held %s", got)
	}
}

// Topics with reserved names are the fabric's own.
func TestListTopicsHidesInternalOnes(t *testing.T) {
	n := start(t, nil)
	for _, name := range []string{"A", "__audit", "__journal", "a", "b"} {
		n.f.elsewhere(tenantA, name, func(c *api.TopicConfig) { c.Partitions = 1 })
	}
	for limit := 1; limit <= 6; limit++ {
		var names []string
		for path := fmt.Sprint("/v1/topics?limit=", limit); path != ""; {
			var page topicPage
			n.call("GET", path, "").ok(200, &page)
			for _, it := range page.Items {
				names = append(names, it.Name)
			}
			path = ""
			if page.NextCursor != nil {
				path = fmt.Sprint("/v1/topics?limit=", limit, "&cursor=", *page.NextCursor)
			}
		}
		if got := fmt.Sprint(names); got != "[A a b]" {
			t.Errorf("limit %d: pages held %s", limit, got)
		}
	}
}

func TestListTopicsBoundsPartitions(t *testing.T) {
	n := start(t, nil)
	for i := range 3 {
		n.f.topic(fmt.Sprintf("big%d", i), func(c *api.TopicConfig) { c.Partitions = 10_000 })
	}
	var page topicPage
	n.call("GET", "/v1/topics", "").ok(200, &page)
	if len(page.Items) != 2 || page.NextCursor == nil {
		t.Fatalf("%d topics of 10,000 partitions in a page", len(page.Items))
	}
	n.call("GET", "/v1/topics?cursor="+*page.NextCursor, "").ok(200, &page)
	if len(page.Items) != 1 || page.Items[0].Name != "big2" || page.NextCursor != nil {
		t.Errorf("second page: %d items", len(page.Items))
	}
}

func TestListTopicsRefusals(t *testing.T) {
	n := start(t, nil)
	for _, q := range []string{"limit=0", "limit=1001", "limit=x", "limit=", "limit=1e2", "cursor=", "cursor=!", "cursor=MQ", "cursor=Mng", "order=asc", "limit=1&limit=2", "limit=%zz", "cursor=%FF"} {
		n.call("GET", "/v1/topics?"+q, "").problem(400, "INVALID_REQUEST")
	}
	p := n.call("GET", "/v1/topics?ofset=3", "").problem(400, "INVALID_REQUEST")
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "ofset" {
		t.Errorf("the unknown parameter is not named: %+v", p)
	}
	n.call("GET", "/v1/topics", "", token(tenantA+"/nothing")).problem(403, "FORBIDDEN")
	n.f.failWith("Sync", api.Errorf(api.CodeMetadataUnavailable, "no quorum"))
	n.call("GET", "/v1/topics", "").problem(503, "METADATA_UNAVAILABLE")
}

// onlyTopic permits one topic, as an ACL might.
type onlyTopic string

func (o onlyTopic) Authorize(_ context.Context, _ *auth.Principal, _ auth.Operation, r auth.Resource) error {
	if r.Name == string(o) {
		return nil
	}
	return api.Errorf(api.CodeForbidden, "not yours")
}

func TestListTopicsShowsWhatMayBeSeen(t *testing.T) {
	n := start(t, func(o *Options) { o.Authorizer = onlyTopic("b") })
	for _, name := range []string{"a", "b", "c"} {
		n.f.topic(name, nil)
	}
	var page topicPage
	n.call("GET", "/v1/topics", "").ok(200, &page)
	if len(page.Items) != 1 || page.Items[0].Name != "b" {
		t.Errorf("shown: %+v", page.Items)
	}
}

func TestListCursorRoundTrip(t *testing.T) {
	for _, name := range []string{"a", "A.b_c-9", long(200)} {
		got, err := parseListCursor(formatListCursor(name))
		if err != nil || got != name {
			t.Errorf("%s came back as %q, %v", name, got, err)
		}
	}
}
