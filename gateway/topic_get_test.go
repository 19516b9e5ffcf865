package gateway

import (
	"testing"

	"github.com/forebaymq/forebay/api"
)

func TestGetTopicShowsWhatOthersDid(t *testing.T) {
	n := start(t, nil)
	n.call("GET", "/v1/topics/orders", "").problem(404, "UNKNOWN_TOPIC")
	n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 2 })
	var got topicJSON
	n.call("GET", "/v1/topics/orders", "").ok(200, &got)
	n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 5 })
	n.call("GET", "/v1/topics/orders", "").ok(200, &got)
	if got.Partitions != 5 || len(got.PartitionInfo) != 5 {
		t.Errorf("a raise elsewhere is not seen: %+v", got)
	}
	n.call("GET", "/v1/topics/orders", "", token(tenantB)).problem(404, "UNKNOWN_TOPIC")
	n.call("GET", "/v1/topics/orders?x=1", "").problem(400, "INVALID_REQUEST")
	n.call("GET", "/v1/topics/orders", "", token(tenantA+"/nothing")).problem(403, "FORBIDDEN")

	n.f.failWith("Sync", api.Errorf(api.CodeMetadataUnavailable, "no quorum"))
	n.call("GET", "/v1/topics/orders", "").problem(503, "METADATA_UNAVAILABLE")
}

func TestTopicNamesInPaths(t *testing.T) {
	n := start(t, nil)
	n.f.topic("a-b.c", nil)
	for path, status := range map[string]int{
		"/v1/topics/a%2Db%2ec":    200, // needless encoding is the same name
		"/v1/topics/a%2Fb":        400, // a slash is no part of a name
		"/v1/topics/%2e%2e":       400,
		"/v1/topics/%2E":          400,
		"/v1/topics/a%00b":        400,
		"/v1/topics/%FF%FE":       400, // not UTF-8
		"/v1/%FF":                 400,
		"/v1/topics/a%25b":        400,
		"/v1/topics/a%20b":        400,
		"/v1/topics/%C3%A9":       400,
		"/v1/topics/__audit":      400,
		"/v1/topics/a;b":          400,
		"/v1/topics/missing":      404,
		"/v1/topics/" + long(200): 404,
		"/v1/topics/" + long(201): 400,
	} {
		if a := n.call("GET", path, ""); a.status != status {
			t.Errorf("%s: %d, want %d: %s", path, a.status, status, a.body)
		}
	}
}

func long(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'n'
	}
	return string(b)
}
