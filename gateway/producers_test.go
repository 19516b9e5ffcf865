package gateway

import (
	"errors"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

func TestStartProducer(t *testing.T) {
	n := start(t, nil)
	for i, body := range []string{"", "{}", " {} "} {
		var got struct{ Epoch int }
		n.call("POST", "/v1/producers/loader%201", body).ok(200, &got)
		if got.Epoch != i+1 {
			t.Errorf("epoch %d, want %d", got.Epoch, i+1)
		}
	}
	if n.f.epochs[tenantA+"/loader 1"] != 3 {
		t.Errorf("the id is not decoded: %v", n.f.epochs)
	}
	for _, path := range []string{"/v1/producers/__x", "/v1/producers/a%00b", "/v1/producers/%FF", "/v1/producers/" + long(201), "/v1/producers/p?x=1"} {
		n.call("POST", path, "").problem(400, "INVALID_REQUEST")
	}
	n.call("POST", "/v1/producers/p", `{"epoch":3}`).problem(400, "INVALID_REQUEST")
	n.call("POST", "/v1/producers/p", `{}`, header("Content-Type", "text/plain")).problem(415, "UNSUPPORTED_MEDIA_TYPE")
	n.call("POST", "/v1/producers/p", "", token(tenantA+"/read")).problem(403, "FORBIDDEN")
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{api.Errorf(api.CodeMetadataUnavailable, "no quorum"), 503, "METADATA_UNAVAILABLE"},
		{api.Errorf(api.CodeOutcomeUnknown, "the deadline"), 504, "OUTCOME_UNKNOWN"},
		{errors.New("bug"), 500, "INTERNAL"},
	} {
		n.f.failWith("StartProducer", c.err)
		n.call("POST", "/v1/producers/p", "").problem(c.status, c.code)
	}
}

func TestProducerPositions(t *testing.T) {
	n := start(t, nil)
	if a := n.call("GET", "/v1/producers/p", "").ok(200, nil); string(a.body) != `{"id":"p","partitions":[]}` {
		t.Errorf("nothing written: %s", a.body)
	}
	n.f.topic("a", nil)
	n.f.positions = []metadata.ProducerPosition{{Topic: "a", Partition: 3, Sequence: 119}, {Topic: "b", Partition: 0, Sequence: 7}}
	if a := n.call("GET", "/v1/producers/p", "").ok(200, nil); string(a.body) !=
		`{"id":"p","partitions":[{"topic":"a","partition":3,"sequence":119},{"topic":"b","partition":0,"sequence":7}]}` {
		t.Errorf("all topics: %s", a.body)
	}
	if a := n.call("GET", "/v1/producers/p?topic=a", "").ok(200, nil); string(a.body) != `{"id":"p","partitions":[{"topic":"a","partition":3,"sequence":119}]}` {
		t.Errorf("one topic: %s", a.body)
	}
	if a := n.call("GET", `/v1/producers/say%20%22hi%22`, "").ok(200, nil); string(a.body[:18]) != `{"id":"say \"hi\""` {
		t.Errorf("quotes: %s", a.body)
	}
	n.call("GET", "/v1/producers/p?topic=missing", "").problem(404, "UNKNOWN_TOPIC")
	n.call("GET", "/v1/producers/p?topic=", "").problem(400, "INVALID_REQUEST")
	n.call("GET", "/v1/producers/p?topics=a", "").problem(400, "INVALID_REQUEST")
	n.call("GET", "/v1/producers/__p", "").problem(400, "INVALID_REQUEST")
	n.call("GET", "/v1/producers/p", "", token(tenantA+"/read")).problem(403, "FORBIDDEN")
	n.f.failWith("ProducerPositions", api.Errorf(api.CodeMetadataUnavailable, "no quorum"))
	n.call("GET", "/v1/producers/p", "").problem(503, "METADATA_UNAVAILABLE")
}
