package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/leases"
)

type settledJSON struct {
	Results []struct{ Receipt, Code, LeaseExpiresAt string }
	Clamped *struct{ Visibility string }
}

// leased makes that many leases and gives their receipts.
func (n *node) leased(count int) []string {
	n.t.Helper()
	for i := range count {
		n.q.offer("orders", "work", text(int64(i), "x"))
	}
	var got leaseJSON
	n.call("POST", work+"/lease", fmt.Sprintf(`{"max":%d}`, count)).ok(200, &got)
	receipts := make([]string, count)
	for i, m := range got.Messages {
		receipts[i] = m.Receipt
	}
	return receipts
}

func TestAck(t *testing.T) {
	n := worker(t, nil)
	r := n.leased(3)
	var got settledJSON
	n.call("POST", work+"/ack", fmt.Sprintf(`{"receipts":[%q,%q,"0:5:other"]}`, r[0], r[1])).ok(200, &got)
	if len(got.Results) != 3 || got.Results[0].Receipt != r[0] || got.Results[0].Code != "OK" || got.Results[1].Code != "OK" || got.Results[2].Code != "LEASE_LOST" ||
		got.Results[0].LeaseExpiresAt != "" {
		t.Errorf("%+v", got)
	}
	a := n.call("POST", work+"/ack?receipt="+r[2], "").ok(204, nil)
	if len(a.body) != 0 {
		t.Errorf("%q", a.body)
	}
	n.call("POST", work+"/ack?receipt="+r[2], "").ok(204, nil) // repeating what succeeded is a success
	n.call("POST", work+"/ack?receipt="+r[2], "{}").ok(204, nil)
	n.call("POST", work+"/ack?receipt=0:5:other", "").problem(410, "LEASE_LOST")
	n.q.lose("orders", "work")
	n.call("POST", work+"/extend?receipt="+r[0], "").problem(410, "LEASE_LOST")
	n.call("POST", work+"/nack?receipt="+r[0], "").problem(410, "LEASE_LOST")
}

func TestAckPutsTheMalformedInTheirPlaces(t *testing.T) {
	n := worker(t, nil)
	r := n.leased(2)
	var got settledJSON
	n.call("POST", work+"/ack", fmt.Sprintf(`{"receipts":["","x",%q,"0:1","1:1e3:n",%q,"é"]}`, r[0], r[1])).ok(200, &got)
	want := []string{"INVALID_REQUEST", "INVALID_REQUEST", "OK", "INVALID_REQUEST", "INVALID_REQUEST", "OK", "INVALID_REQUEST"}
	for i, w := range want {
		if got.Results[i].Code != w {
			t.Errorf("receipt %d: %+v, want %s", i, got.Results[i], w)
		}
	}
	if got.Results[6].Receipt != "é" || len(got.Results) != 7 {
		t.Errorf("%+v", got)
	}
	if s := n.q.settles; len(s) != 1 || len(s[0].Receipts) != 2 {
		t.Errorf("%+v was passed on", s)
	}
	n.call("POST", work+"/ack", `{"receipts":["x"]}`).ok(200, &got)
	if len(n.q.settles) != 1 {
		t.Error("a call without any receipt was passed on")
	}
}

func TestNack(t *testing.T) {
	n := worker(t, nil)
	r := n.leased(5)
	var got settledJSON
	n.call("POST", work+"/nack", fmt.Sprintf(`{"receipts":[%q],"delay":"90s","reason":"no stock"}`, r[0])).ok(200, &got)
	n.call("POST", work+"/nack", fmt.Sprintf(`{"receipts":[%q]}`, r[1])).ok(200, nil)
	n.call("POST", work+"/nack?receipt="+r[2]+"&delay=0s&reason=a%20b", "").ok(204, nil)
	n.call("POST", work+"/nack?receipt="+r[3], `{"delay":"1s","reason":"`+strings.Repeat("é", 600)+`"}`).ok(204, nil)
	s := n.q.settles
	if got.Results[0].Code != "OK" || s[0].Kind != leases.Nack || s[0].Delay == nil || *s[0].Delay != 90*time.Second || s[0].Reason != "no stock" {
		t.Errorf("%+v, %+v", got, s[0])
	}
	if s[1].Delay != nil || s[1].Reason != "" { // by the backoff
		t.Errorf("%+v", s[1])
	}
	if s[2].Delay == nil || *s[2].Delay != 0 || s[2].Reason != "a b" { // at once
		t.Errorf("%+v", s[2])
	}
	if s[3].Reason != strings.Repeat("é", 512) { // cut between characters
		t.Errorf("%d bytes of reason", len(s[3].Reason))
	}
}

func TestExtend(t *testing.T) {
	n := worker(t, nil)
	r := n.leased(2)
	var got settledJSON
	n.call("POST", work+"/extend", fmt.Sprintf(`{"receipts":[%q,"0:9:x"],"visibility":"5m"}`, r[0])).ok(200, &got)
	if got.Results[0].LeaseExpiresAt != "2023-11-14T22:14:20.000Z" || got.Results[1].Code != "LEASE_LOST" || got.Results[1].LeaseExpiresAt != "" || got.Clamped != nil {
		t.Errorf("%+v", got)
	}
	n.call("POST", work+"/extend", fmt.Sprintf(`{"receipts":[%q],"visibility":"13h"}`, r[0])).ok(200, &got)
	if got.Clamped == nil || got.Clamped.Visibility != "12h" {
		t.Errorf("%+v", got.Clamped)
	}
	var one struct {
		Receipt, Code, LeaseExpiresAt string
		Clamped                       *struct{ Visibility string }
	}
	n.call("POST", work+"/extend?visibility=0s&receipt="+r[1], "").ok(200, &one)
	if one.Receipt != r[1] || one.Code != "OK" || one.LeaseExpiresAt == "" || one.Clamped == nil || one.Clamped.Visibility != "1s" {
		t.Errorf("%+v", one)
	}
	s := n.q.settles
	if s[0].Visibility != 5*time.Minute || s[1].Visibility != 12*time.Hour || s[2].Visibility != time.Second {
		t.Errorf("%+v", s)
	}
}

func TestSettleRefused(t *testing.T) {
	n := worker(t, nil)
	for body, pointer := range map[string]string{
		``:                                      "/receipts",
		`{}`:                                    "/receipts",
		`{"receipts":[]}`:                       "/receipts",
		`{"receipts":null}`:                     "/receipts",
		`{"receipts":"0:1:n"}`:                  "/receipts",
		`{"receipts":[1]}`:                      "/receipts/0",
		`{"receipts":["0:1:n",null]}`:           "/receipts/1",
		`{"receipts":["0:1:n"],"delay":"25h"}`:  "/delay",
		`{"receipts":["0:1:n"],"delay":5}`:      "/delay",
		`{"receipts":["0:1:n"],"reason":5}`:     "/reason",
		`{"receipts":["0:1:n"],"receipts":[]}`:  "/receipts",
		`{"receipts":["0:1:n"],"x":1}`:          "/x",
		`{"receipts":["0:1:n"],"visibility":1}`: "/visibility",
		"{\"receipts\":[\"\xff\"]}":             "/receipts/0",
		`{"receipts":["0:1:n"]}x`:               "",
	} {
		p := n.call("POST", work+"/nack", body).problem(400, "INVALID_REQUEST")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v, want the pointer %q", body, p.Errors, pointer)
		}
	}
	n.call("POST", work+"/ack", `{"receipts":["0:1:n"],"delay":"1s"}`).problem(400, "INVALID_REQUEST")
	for _, q := range []string{
		"receipt=", "receipt=x", "receipt=0:1", "receipt=0:1:", "receipt=-1:1:n", "receipt=0:01:n", "receipt=0:1e3:n", "receipt=0:9223372036854775808:n", "receipt=10000:1:n",
		"receipt=0:1:a:b", "receipt=0:1:%20", "receipt=0:1:%FF", "receipt=0:1:n&receipt=0:1:n", "delay=1s", "receipt=0:1:n&visibility=1s", "receipt=0:1:n&delay=x", "receipt=0:1:n&delay=13h",
		"receipt=0:1:" + strings.Repeat("n", 200),
	} {
		n.call("POST", work+"/nack?"+q, "").problem(400, "INVALID_REQUEST")
	}
	n.call("POST", work+"/nack?receipt=0:1:n", `{"receipts":["0:1:n"]}`).problem(400, "INVALID_REQUEST")
	n.call("POST", work+"/nack?receipt=0:1:n&delay=1s", `{"delay":"1s"}`).problem(400, "INVALID_REQUEST")
	n.call("POST", work+"/nack?receipt=0:1:n&reason=a", `{"reason":"b"}`).problem(400, "INVALID_REQUEST")
	n.call("POST", work+"/extend?receipt=0:1:n&visibility=1m", `{"visibility":"1m"}`).problem(400, "INVALID_REQUEST")
	many := `{"receipts":[` + strings.Repeat(`"0:1:n",`, api.MaxReceiptsPerRequest) + `"0:1:n"]}`
	n.call("POST", work+"/ack", many).problem(413, "TOO_LARGE")
	if len(n.q.settles) != 0 {
		t.Errorf("%d were passed on", len(n.q.settles))
	}
}

func TestSettleInProtobuf(t *testing.T) {
	n := worker(t, nil)
	r := n.leased(4)
	results := func(a *answer) *forebayv1.SettleResponse {
		t.Helper()
		var got forebayv1.SettleResponse
		if err := proto.Unmarshal(a.ok(200, nil).body, &got); err != nil || a.header.Get("Content-Type") != "application/x-protobuf" {
			t.Fatalf("%v, %v", err, a.header)
		}
		return &got
	}
	body, ct := protobuf(&forebayv1.AckRequest{Receipts: []string{r[0], "0:9:x", "x", r[1]}})
	got := results(n.call("POST", work+"/ack", body, ct))
	if len(got.Results) != 4 || got.Results[0].Code != "" || got.Results[1].Code != "LEASE_LOST" || got.Results[2].Code != "INVALID_REQUEST" || got.Results[3].Code != "" {
		t.Errorf("%v", got)
	}
	body, ct = protobuf(&forebayv1.ExtendRequest{Receipts: []string{r[2]}, VisibilityMs: proto.Int64(1)})
	got = results(n.call("POST", work+"/extend", body, ct))
	if len(got.Results) != 1 || got.Results[0].LeaseExpiresAtMs != 1_700_000_060_000 || got.Clamped.GetVisibilityMs() != 1000 {
		t.Errorf("%v", got)
	}
	body, ct = protobuf(&forebayv1.NackRequest{Receipts: []string{r[2]}, DelayMs: proto.Int64(0), Reason: "r"})
	results(n.call("POST", work+"/nack", body, ct))
	if s := n.q.settles[2]; s.Delay == nil || *s.Delay != 0 || s.Reason != "r" {
		t.Errorf("%+v", s)
	}
	got = results(n.call("POST", work+"/extend?receipt="+r[3], "", header("Accept", "application/x-protobuf")))
	if len(got.Results) != 1 || got.Results[0].LeaseExpiresAtMs == 0 {
		t.Errorf("%v", got)
	}
	for _, m := range []proto.Message{
		&forebayv1.AckRequest{}, &forebayv1.NackRequest{Receipts: []string{"0:1:n"}, DelayMs: proto.Int64(-1)}, // no receipts; field 2 is not of an ack
	} {
		body, ct := protobuf(m)
		n.call("POST", work+"/ack", body, ct).problem(400, "INVALID_REQUEST")
	}
	body, ct = protobuf(&forebayv1.NackRequest{Receipts: []string{"0:1:n"}, DelayMs: proto.Int64(-1)})
	n.call("POST", work+"/nack", body, ct).problem(400, "INVALID_REQUEST")
	n.call("POST", work+"/ack", "\x0a\x02\xff\xfe", ct).problem(400, "INVALID_REQUEST")
	n.call("POST", work+"/ack", "\x0a\x09x", ct).problem(400, "INVALID_REQUEST")
	n.call("POST", work+"/ack", strings.Repeat("\x0a\x050:1:n", api.MaxReceiptsPerRequest+1), ct).problem(413, "TOO_LARGE")
}

func TestReceiptsOutliveTheirRequest(t *testing.T) {
	// The body's memory is used again by later requests; what was passed on must not change.
	n := worker(t, nil)
	r := n.leased(3)
	n.call("POST", work+"/ack", fmt.Sprintf(`{"receipts":[%q,"\u0030:1:%s"]}`, r[0], strings.Repeat("n", 20))).ok(200, nil)
	for range 5 {
		n.call("POST", work+"/ack", `{"receipts":["9999:9999:zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"]}`).ok(200, nil)
	}
	if s := n.q.settles[0].Receipts; s[0] != r[0] || s[1] != "0:1:"+strings.Repeat("n", 20) {
		t.Errorf("%q", s)
	}
}
