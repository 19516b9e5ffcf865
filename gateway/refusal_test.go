package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// Requests that net/http refuses before any handler are answered as all others are.
func TestUnreadableRequestsGetProblems(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	for request, want := range map[string]struct {
		status int
		code   string
	}{
		"GET /v1/topics/%zz HTTP/1.1\r\nHost: x\r\n\r\n":       {400, "INVALID_REQUEST"},
		"GET /v1/topics HTTP/1.1\r\n\r\n":                      {400, "INVALID_REQUEST"}, // no Host
		"GET /v1/topics HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n": {400, "INVALID_REQUEST"},
		"hello\r\n\r\n": {400, "INVALID_REQUEST"},
		"GET /v1/topics HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 128<<10) + "\r\n\r\n": {431, "TOO_LARGE"},
		"POST /v1/records HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n":               {501, "INVALID_REQUEST"},
		"GET /v1/topics HTTP/3.1\r\nHost: x\r\n\r\n":                                            {505, "INVALID_REQUEST"},
	} {
		for _, after := range []bool{false, true} {
			c := n.dial()
			r := bufio.NewReader(c)
			if after { // on a connection that has had an answer
				fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
				res, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
			}
			go func() { _, _ = io.WriteString(c, request) }()
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Errorf("%.60q: %v", request, err)
				continue
			}
			body, err := io.ReadAll(res.Body)
			var p problem
			if err != nil || json.Unmarshal(body, &p) != nil || res.StatusCode != want.status || res.Header.Get("Content-Type") != "application/problem+json" ||
				p.Code != want.code || p.Status != want.status || p.Detail == "" || p.RequestID == "" || p.RequestID != res.Header.Get("X-Request-Id") {
				t.Errorf("%.60q: %d %v %s %v", request, res.StatusCode, res.Header, body, err)
			}
		}
	}
}

// A record that looks like net/http's own words comes back as it is, also where they begin a write to the socket: the first write carries
// 4 KiB of head and body, so one of these lengths puts the words at the beginning of the second.
func TestRecordsAreNotTakenForRefusals(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", func(c *api.TopicConfig) { c.Partitions = 1 })
	plain := "HTTP/1.1 400 Bad Request" + string(plainHead) + "400 Bad Request"
	const shortest, longest = 3600, 4096
	var records []*forebayv1.Record
	for pad := shortest; pad < longest; pad++ {
		records = append(records, &forebayv1.Record{Value: []byte(strings.Repeat("x", pad) + plain)})
	}
	body, ct := protobuf(&forebayv1.PublishRequest{Records: records})
	n.call("POST", "/v1/topics/orders/records", body, ct).ok(200, nil)
	for i, want := range records {
		var got forebayv1.ReadResponse
		a := n.call("GET", fmt.Sprintf("/v1/topics/orders/partitions/0/records?limit=1&offset=%d", i), "", header("Accept", "application/x-protobuf")).ok(200, nil)
		if err := proto.Unmarshal(a.body, &got); err != nil {
			t.Fatalf("padding %d: %v", shortest+i, err)
		}
		if string(got.Records[0].Value) != string(want.Value) {
			t.Fatalf("padding %d: the record was changed", shortest+i)
		}
	}
}
