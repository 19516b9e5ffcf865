package gateway

import (
	"errors"
	"testing"

	"github.com/forebaymq/forebay/api"
)

type topicJSON struct {
	Name          string
	TopicID       string
	Partitions    int
	PartitionInfo []struct{ Partition, LogStart, Head, Bytes int64 }
}

func TestPutTopicCreatesAndUpdates(t *testing.T) {
	n := start(t, nil)
	var got topicJSON
	n.call("PUT", "/v1/topics/orders", `{"partitions":2}`).ok(201, &got)
	if got.Name != "orders" || got.Partitions != 2 || len(got.PartitionInfo) != 2 {
		t.Fatalf("created %+v", got)
	}
	n.call("PUT", "/v1/topics/orders", "").ok(200, &got)
	if got.Partitions != 2 {
		t.Errorf("an empty body changed partitions to %d", got.Partitions)
	}
	n.call("PUT", "/v1/topics/orders", `{"partitions":3}`).problem(409, "CONFLICT")
	n.call("PUT", "/v1/topics/orders", `{"partitions":3,"acknowledgeKeyRemap":true}`).ok(200, &got)
	if got.Partitions != 3 {
		t.Errorf("partitions %d, want 3", got.Partitions)
	}
	n.call("PUT", "/v1/topics/orders", `{"partitions":1}`).problem(409, "PARTITIONS_CANNOT_SHRINK")
	n.call("PUT", "/v1/topics/other", `{}`).ok(201, &got)
	if got.Partitions != api.DefaultPartitions {
		t.Errorf("default partitions %d", got.Partitions)
	}
}

func TestPutTopicRefusals(t *testing.T) {
	n := start(t, func(o *Options) { o.Limits.MaxRequestBytes = 1 << 10 })
	for name, c := range map[string]struct {
		a      *answer
		status int
		code   string
	}{
		"no token":       {n.call("PUT", "/v1/topics/x", `{}`, header("Authorization", "")), 401, "UNAUTHENTICATED"},
		"bad token":      {n.call("PUT", "/v1/topics/x", `{}`, token("nobody")), 401, "UNAUTHENTICATED"},
		"read scope":     {n.call("PUT", "/v1/topics/x", `{}`, token(tenantA+"/read")), 403, "FORBIDDEN"},
		"bad name":       {n.call("PUT", "/v1/topics/__x", `{}`), 400, "INVALID_REQUEST"},
		"unknown member": {n.call("PUT", "/v1/topics/x", `{"partition":1}`), 400, "INVALID_REQUEST"},
		"not JSON":       {n.call("PUT", "/v1/topics/x", `partitions: 3`), 400, "INVALID_REQUEST"},
		"query":          {n.call("PUT", "/v1/topics/x?dry=1", `{}`), 400, "INVALID_REQUEST"},
		"protobuf":       {n.call("PUT", "/v1/topics/x", `{}`, header("Content-Type", "application/x-protobuf")), 415, "UNSUPPORTED_MEDIA_TYPE"},
		"encoding":       {n.call("PUT", "/v1/topics/x", `{}`, header("Content-Encoding", "br")), 415, "UNSUPPORTED_MEDIA_TYPE"},
		"too large":      {n.call("PUT", "/v1/topics/x", string(make([]byte, 1<<10+1))), 413, "TOO_LARGE"},
	} {
		t.Run(name, func(t *testing.T) { c.a.t = t; c.a.problem(c.status, c.code) })
	}
	if n.f.count("PutTopic") > 3 {
		t.Error("a refused request reached the log")
	}
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{api.Errorf(api.CodeOutcomeUnknown, "the deadline came first"), 504, "OUTCOME_UNKNOWN"},
		{api.Errorf(api.CodeMetadataUnavailable, "no quorum"), 503, "METADATA_UNAVAILABLE"},
		{api.Errorf(api.CodeQuotaExceeded, "too many topics"), 429, "QUOTA_EXCEEDED"},
		{errors.New("secret detail"), 500, "INTERNAL"},
	} {
		n.f.failWith("PutTopic", c.err)
		n.call("PUT", "/v1/topics/x", `{}`).problem(c.status, c.code)
	}
}
