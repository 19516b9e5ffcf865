package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/leases/groups"
	"github.com/forebaymq/forebay/segment"
)

const billing = "/v1/groups/billing"

// member is a node with the topic orders and the group billing, in which m-1 is a member in generation 1.
func member(t *testing.T, change func(*Options)) *node {
	t.Helper()
	n := start(t, change)
	n.f.topic("orders", nil)
	n.g.joined("billing", "orders")
	return n
}

// groupCalls are the calls of each route of a group that are valid in form, with the method of the fake that they end in.
func groupCalls() []struct{ method, path, body, call string } {
	return []struct{ method, path, body, call string }{
		{"GET", "", "", "Group"},
		{"DELETE", "", "", "DeleteGroup"},
		{"POST", "/join", `{"topics":["orders"]}`, "Join"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":1}`, "Heartbeat"},
		{"POST", "/leave", `{"memberId":"m-1"}`, "Leave"},
		{"POST", "/poll", `{"memberId":"m-1","generation":1}`, "Poll"},
		{"POST", "/seek", `{"topic":"orders","to":"latest"}`, "GroupSeek"},
		{"GET", "/offsets", "", "Offsets"},
		{"PUT", "/offsets", `{"memberId":"m-1","generation":1,"offsets":[{"topic":"orders","partition":0,"offset":1}]}`, "Commit"},
	}
}

// same compares an answer with JSON.
func (a *answer) same(want string) {
	a.t.Helper()
	a.ok(200, nil)
	var got, wanted any
	if err := errors.Join(json.Unmarshal(a.body, &got), json.Unmarshal([]byte(want), &wanted)); err != nil {
		a.t.Fatalf("%s: %v", a.body, err)
	}
	if !reflect.DeepEqual(got, wanted) {
		a.t.Errorf("got  %s\nwant %s", a.body, want)
	}
}

func TestGroupAnswers(t *testing.T) {
	n := member(t, nil)
	n.call("POST", billing+"/join", `{"topics":["orders"],"memberId":"m-0","instanceId":"host-1","sessionTimeout":"30s","start":"earliest"}`).
		same(`{"memberId":"m-1","generation":2,"assignment":[{"topic":"orders","partition":0,"offset":7,"topicID":"18446744073709551615"}],"heartbeatInterval":"3333ms"}`)
	if want := (groups.JoinRequest{Name: groups.Name{Tenant: tenantA, Group: "billing"}, Topics: []string{"orders"}, MemberID: "m-0", InstanceID: "host-1", SessionTimeout: 30 * time.Second, Start: groups.Earliest}); !reflect.DeepEqual(n.g.joins[0], want) {
		t.Errorf("%+v", n.g.joins[0])
	}
	const beat = `{"generation":2,"assignment":[{"topic":"orders","partition":0,"offset":7,"topicID":"18446744073709551615"}],"revoke":[{"topic":"orders","partition":1}]}`
	for _, body := range []string{`"owned":[{"topic":"orders","partition":3,"offset":7,"topicID":"1"}]`, `"owned":[]`, `"owned":null`} {
		n.call("POST", billing+"/heartbeat", `{"memberId":"m-1","generation":1,`+body+`}`).same(beat)
	}
	if b := n.g.beats; !b[0].OwnedSet || len(b[0].Owned) != 1 || b[0].Owned[0] != (groups.TopicPartition{Topic: "orders", Partition: 3}) ||
		!b[1].OwnedSet || len(b[1].Owned) != 0 || b[2].OwnedSet || b[0].Generation != 1 || b[0].MemberID != "m-1" {
		t.Errorf("%+v", b)
	}
	n.g.offer("billing", groups.Polled{
		TopicPartition: groups.TopicPartition{Topic: "orders", Partition: 1}, Records: []segment.Record{text(4, "a"), text(5, "b")}, NextOffset: 6, Head: 9,
	})
	n.call("POST", billing+"/poll", `{"memberId":"m-1","generation":2,"maxRecords":5,"maxBytes":6,"wait":"30s"}`).same(`{"partitions":[{"topic":"orders","partition":1,"records":[
		{"partition":1,"offset":4,"time":"2023-11-14T22:13:20.000Z","key":"k","text":"a","headers":[["a","1"]]},
		{"partition":1,"offset":5,"time":"2023-11-14T22:13:20.000Z","key":"k","text":"b","headers":[["a","1"]]}],"nextOffset":6,"head":9}]}`)
	if p := n.g.polls[0]; p.MaxRecords != 5 || p.MaxBytes != 6 || p.Wait != 30*time.Second {
		t.Errorf("%+v", p)
	}
	n.g.offer("billing", groups.Polled{TopicPartition: groups.TopicPartition{Topic: "orders", Partition: 0}, Gap: &groups.Gap{From: 3, To: 5}},
		groups.Polled{TopicPartition: groups.TopicPartition{Topic: "orders", Partition: 1}, Records: []segment.Record{text(6, "c")}, NextOffset: 7, Head: 9})
	n.call("POST", billing+"/poll", `{"memberId":"m-1","generation":2}`).same(`{"partitions":[{"topic":"orders","partition":1,"records":[
		{"partition":1,"offset":6,"time":"2023-11-14T22:13:20.000Z","key":"k","text":"c","headers":[["a","1"]]}],"nextOffset":7,"head":9}],
		"gaps":[{"topic":"orders","partition":0,"from":3,"to":5}]}`)
	n.call("POST", billing+"/poll", `{"memberId":"m-1","generation":2}`).same(`{"partitions":[]}`)
	n.call("PUT", billing+"/offsets", `{"memberId":"m-1","generation":2,"offsets":[{"topic":"orders","partition":0,"offset":42,"metadata":"é"}]}`).ok(204, nil)
	n.call("GET", billing+"/offsets", "").same(`{"offsets":[{"topic":"orders","partition":0,"offset":42,"metadata":"é"}]}`)
	n.call("GET", billing, "").same(`{"name":"billing","groupID":"1","created":"2023-11-14T22:13:20.000Z","state":"rebalancing","generation":2,"members":[
		{"memberId":"m-1","instanceId":"i","topics":["orders"],"owned":[{"topic":"orders","partition":0}],"revoking":[{"topic":"orders","partition":0}],"sessionExpiresAt":"2023-11-14T22:13:20.000Z"},
		{"memberId":"m-2","instanceId":null,"topics":["orders"],"owned":[],"revoking":[],"sessionExpiresAt":null}],"partitions":[
		{"topic":"orders","partition":0,"owner":"m-1","committed":3,"head":9,"logStart":5,"lag":4,"lagSeconds":1.5,"retentionHeadroomSeconds":90,"gap":{"from":3,"to":5},"metadata":"a"},
		{"topic":"orders","partition":1,"owner":null,"committed":null,"head":0,"logStart":0,"lag":0,"lagSeconds":0,"retentionHeadroomSeconds":null,"gap":null,"metadata":""}]}`)
	n.call("POST", billing+"/seek", `{"topic":"orders","to":"earliest"}`).problem(409, "CONFLICT")
	n.call("DELETE", billing, "").problem(409, "CONFLICT")
	n.call("POST", billing+"/leave", `{"memberId":"m-1"}`).ok(204, nil)
	n.call("POST", billing+"/leave", `{"memberId":"m-1"}`).ok(204, nil)
	const sought = `"partitions":[{"topic":"orders","partition":0,"from":3,"to":5,"skipped":2,"repeats":0,"lost":1},{"topic":"orders","partition":1,"from":null,"to":4,"skipped":0,"repeats":0,"lost":0}]}`
	n.call("POST", billing+"/seek", `{"topic":"orders","to":"earliest","dryRun":true}`).same(`{"dryRun":true,` + sought)
	n.call("POST", billing+"/seek", `{"topic":"orders","timestamp":"2023-11-14T22:13:20Z"}`).same(`{"dryRun":false,` + sought)
	n.call("POST", billing+"/seek", `{"offsets":{"1":5,"0":4},"topic":"orders"}`).same(`{"dryRun":false,` + sought)
	if s := n.g.seeks; !s[1].Earliest || !s[1].DryRun || s[2].Time == nil || *s[2].Time != 1_700_000_000_000 || s[2].Earliest || s[3].Offsets[1] != 5 || s[3].Offsets[0] != 4 {
		t.Errorf("%+v", s)
	}
	n.call("DELETE", billing, "").ok(204, nil)
	n.call("DELETE", billing, "").problem(404, "UNKNOWN_GROUP")
}

func TestGroupConflictsHaveTheirMembers(t *testing.T) {
	n := member(t, nil)
	extra := func(a *answer, code string) map[string]any {
		t.Helper()
		a.problem(409, code)
		var m map[string]any
		if err := json.Unmarshal(a.body, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	const offsets = `"offsets":[{"topic":"orders","partition":%d,"offset":1}]}`
	if m := extra(n.call("PUT", billing+"/offsets", `{"memberId":"m-1","generation":7,`+fmt.Sprintf(offsets, 0)), "STALE_GENERATION"); m["generation"] != 1.0 {
		t.Error(m)
	}
	extra(n.call("PUT", billing+"/offsets", `{"memberId":"m-1","generation":1,`+fmt.Sprintf(offsets, 1)), "NOT_OWNER")
	extra(n.call("POST", billing+"/heartbeat", `{"memberId":"m-7","generation":1}`), "STALE_GENERATION")
	n.f.failWith("Poll", api.Errorf(api.CodeRetentionGap, "lost").With("gaps", []map[string]any{{"topic": "orders", "partition": 0, "from": 1, "to": 4}}))
	if m := extra(n.call("POST", billing+"/poll", `{"memberId":"m-1","generation":1}`), "RETENTION_GAP"); fmt.Sprint(m["gaps"]) != "[map[from:1 partition:0 to:4 topic:orders]]" {
		t.Error(m)
	}
}

func TestGroupBodiesRefused(t *testing.T) {
	n := member(t, nil)
	long := strings.Repeat("x", 201)
	for _, c := range []struct{ method, path, body, pointer string }{
		{"POST", "/join", ``, ""},
		{"POST", "/join", `[]`, ""},
		{"POST", "/join", `{}`, "/topics"},
		{"POST", "/join", `{"topics":[]}`, "/topics"},
		{"POST", "/join", `{"topics":"orders"}`, "/topics"},
		{"POST", "/join", `{"topics":["orders","__x"]}`, "/topics/1"},
		{"POST", "/join", `{"topics":["orders",1]}`, "/topics/1"},
		{"POST", "/join", `{"topics":[` + strings.Repeat(`"orders",`, 100) + `"orders"]}`, "/topics"},
		{"POST", "/join", `{"topics":["orders"],"topics":["orders"]}`, "/topics"},
		{"POST", "/join", `{"topics":["orders"],"memberId":7}`, "/memberId"},
		{"POST", "/join", `{"topics":["orders"],"memberId":"a b"}`, "/memberId"},
		{"POST", "/join", `{"topics":["orders"],"instanceId":"` + long + `"}`, "/instanceId"},
		{"POST", "/join", `{"topics":["orders"],"sessionTimeout":10}`, "/sessionTimeout"},
		{"POST", "/join", `{"topics":["orders"],"sessionTimeout":"999ms"}`, "/sessionTimeout"},
		{"POST", "/join", `{"topics":["orders"],"sessionTimeout":"301s"}`, "/sessionTimeout"},
		{"POST", "/join", `{"topics":["orders"],"start":"2026-01-02T03:04:05Z"}`, "/start"},
		{"POST", "/join", `{"topics":["orders"],"group":"x"}`, "/group"},
		{"POST", "/join", `{"topics":["orders"]}{}`, ""},
		{"POST", "/heartbeat", `{"generation":1}`, "/memberId"},
		{"POST", "/heartbeat", `{"memberId":"m-1"}`, "/generation"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":-1}`, "/generation"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":"1"}`, "/generation"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":1,"owned":{}}`, "/owned"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":1,"owned":[{"topic":"orders","partition":0},{"topic":"orders"}]}`, "/owned/1/partition"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":1,"owned":[{"partition":0}]}`, "/owned/0/topic"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":1,"owned":[{"topic":"orders","partition":10000}]}`, "/owned/0/partition"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":1,"owned":[{"topic":"orders","partition":0,"offset":-1}]}`, "/owned/0/offset"},
		{"POST", "/heartbeat", `{"memberId":"m-1","generation":1,"owned":[{"topic":"orders","partition":0,"metadata":""}]}`, "/owned/0/metadata"},
		{"POST", "/leave", `{}`, "/memberId"},
		{"POST", "/leave", `{"memberId":"m-1","why":""}`, "/why"},
		{"POST", "/poll", `{"memberId":"m-1"}`, "/generation"},
		{"POST", "/poll", `{"memberId":"m-1","generation":1,"maxRecords":0}`, "/maxRecords"},
		{"POST", "/poll", `{"memberId":"m-1","generation":1,"maxRecords":10001}`, "/maxRecords"},
		{"POST", "/poll", `{"memberId":"m-1","generation":1,"maxBytes":16777217}`, "/maxBytes"},
		{"POST", "/poll", `{"memberId":"m-1","generation":1,"wait":"31s"}`, "/wait"},
		{"POST", "/seek", `{"to":"latest"}`, "/topic"},
		{"POST", "/seek", `{"topic":"orders"}`, ""},
		{"POST", "/seek", `{"topic":"orders","to":"latest","offsets":{"0":1}}`, ""},
		{"POST", "/seek", `{"topic":"orders","to":"now"}`, "/to"},
		{"POST", "/seek", `{"topic":"orders","timestamp":"x"}`, "/timestamp"},
		{"POST", "/seek", `{"topic":"orders","offsets":{"0":-1}}`, "/offsets/0"},
		{"POST", "/seek", `{"topic":"orders","to":"latest","dryRun":1}`, "/dryRun"},
		{"POST", "/seek", `{"topic":"orders","at":1}`, "/at"},
		{"PUT", "/offsets", `{}`, "/offsets"},
		{"PUT", "/offsets", `{"offsets":[]}`, "/offsets"},
		{"PUT", "/offsets", `{"memberId":"m-1","offsets":[]}`, "/generation"},
		{"PUT", "/offsets", `{"generation":1,"offsets":[]}`, "/memberId"},
		{"PUT", "/offsets", `{"offsets":[{"topic":"orders","partition":0}]}`, "/offsets/0/offset"},
		{"PUT", "/offsets", `{"offsets":[{"topic":"orders","partition":0,"offset":-1}]}`, "/offsets/0/offset"},
		{"PUT", "/offsets", `{"offsets":[{"topic":"orders","partition":0,"offset":1e3}]}`, "/offsets/0/offset"},
		{"PUT", "/offsets", `{"offsets":[{"topic":"orders","partition":0,"offset":1,"metadata":"` + strings.Repeat("x", 4097) + `"}]}`, "/offsets/0/metadata"},
		{"PUT", "/offsets", `{"offsets":[` + strings.Repeat(`{"topic":"orders","partition":0,"offset":1},`, 10_000) + `{"topic":"orders","partition":0,"offset":1}]}`, "/offsets"},
	} {
		p := n.call(c.method, billing+c.path, c.body).problem(400, "INVALID_REQUEST")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != c.pointer {
			t.Errorf("%s %.200s: %+v, want the pointer %q", c.path, c.body, p.Errors, c.pointer)
		}
	}
	n.call("POST", billing+"/join", `{"topics":["orders"]}`, header("Content-Type", "application/x-protobuf")).problem(415, "UNSUPPORTED_MEDIA_TYPE")
	if len(n.g.joins)+len(n.g.beats)+len(n.g.polls)+len(n.g.seeks)+len(n.g.commits) != 0 {
		t.Error("something was passed on")
	}
	p := n.call("POST", billing+"/join", `{"topics":["orders","missing"]}`).problem(404, "UNKNOWN_TOPIC")
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/topics/1" {
		t.Errorf("%+v", p)
	}
}

func TestGroupRoutesRefuse(t *testing.T) {
	n := member(t, nil)
	n.f.topic("there", func(c *api.TopicConfig) { c.Residency = "us" })
	down := api.Errorf(api.CodeLeasesUnavailable, "redis is down")
	down.RetryAfter = 3 * time.Second
	for _, c := range groupCalls() {
		t.Run(c.method+c.path, func(t *testing.T) {
			call := func(path string, opts ...func(*http.Request)) *answer {
				return n.call(c.method, path+c.path, c.body, opts...)
			}
			call(billing, header("Authorization", "")).problem(401, "UNAUTHENTICATED")
			call(billing, token(tenantA+"/nothing")).problem(403, "FORBIDDEN")
			call("/v1/groups/__x").problem(400, "INVALID_REQUEST")
			n.call(c.method, billing+c.path+"?nonsense=1", c.body).problem(400, "INVALID_REQUEST")
			if strings.Contains(c.body, "orders") {
				n.call(c.method, billing+c.path, strings.Replace(c.body, "orders", "missing", 1)).problem(404, "UNKNOWN_TOPIC")
				n.call(c.method, billing+c.path, strings.Replace(c.body, "orders", "there", 1)).problem(403, "RESIDENCY_VIOLATION")
				call(billing, token(tenantB)).problem(404, "UNKNOWN_TOPIC") // another tenant sees nothing of it
			} else {
				call(billing, token(tenantB)).problem(404, "UNKNOWN_GROUP")
			}
			if c.call != "Join" {
				call("/v1/groups/missing").problem(404, "UNKNOWN_GROUP")
			}
			n.f.failWith(c.call, down)
			defer n.f.failWith(c.call, nil)
			a := call(billing)
			a.problem(503, "LEASES_UNAVAILABLE")
			if a.header.Get("Retry-After") != "3" {
				t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
			}
		})
	}
}

func TestWithoutGroupsLeasesAreUnavailable(t *testing.T) {
	n := start(t, func(o *Options) { o.Groups = nil })
	n.f.topic("orders", nil)
	n.call("GET", "/v1/groups", "").problem(503, "LEASES_UNAVAILABLE")
	for _, c := range groupCalls() {
		n.call(c.method, billing+c.path, c.body).problem(503, "LEASES_UNAVAILABLE")
		n.call(c.method, billing+c.path, c.body, token(tenantA+"/nothing")).problem(403, "FORBIDDEN")
	}
}

func TestScopesOfGroups(t *testing.T) {
	n := member(t, nil)
	for _, c := range groupCalls() {
		for scope, may := range map[string]bool{"admin": true, "read": c.method != "DELETE", "publish": c.method == "GET"} {
			a := n.call(c.method, billing+c.path, c.body, token(tenantA+"/"+scope))
			if (a.status != 403) != may {
				t.Errorf("%s %s with scope %s: %d", c.method, c.path, scope, a.status)
			}
		}
	}
}

// named permits what it lists.
type named map[string]bool

func (a named) Authorize(_ context.Context, _ *auth.Principal, op auth.Operation, res auth.Resource) error {
	if k := fmt.Sprintf("%s %s:%s", op, res.Kind, res.Name); !a[k] {
		return api.Errorf(api.CodeForbidden, "no %s", k)
	}
	return nil
}

func TestMembersMustBeAllowedToRead(t *testing.T) {
	n := member(t, func(o *Options) {
		o.Authorizer = named{"consume group:billing": true, "consume group:other": true, "read topic:orders": true}
	})
	n.f.topic("secret", nil)
	n.g.joined("other", "orders", "secret")
	n.call("POST", billing+"/join", `{"topics":["orders","secret"]}`).problem(403, "FORBIDDEN")
	n.call("PUT", billing+"/offsets", `{"offsets":[{"topic":"orders","partition":0,"offset":1},{"topic":"secret","partition":0,"offset":1}]}`).problem(403, "FORBIDDEN")
	n.call("POST", billing+"/seek", `{"topic":"secret","to":"latest"}`).problem(403, "FORBIDDEN")
	n.call("POST", "/v1/groups/other/poll", `{"memberId":"m-1","generation":1}`).problem(403, "FORBIDDEN")
	if len(n.g.joins)+len(n.g.commits)+len(n.g.seeks)+len(n.g.polls) != 0 {
		t.Error("something was passed on")
	}
	n.call("POST", billing+"/poll", `{"memberId":"m-1","generation":1}`).ok(200, nil)
	n.call("POST", "/v1/groups/other/heartbeat", `{"memberId":"m-1","generation":1}`).ok(200, nil) // it may let go
}

func TestListGroups(t *testing.T) {
	n := start(t, nil)
	n.g.put("c", "a", "b")
	var page struct {
		Items      []struct{ Name, GroupID, Created string }
		NextCursor *string
	}
	n.call("GET", "/v1/groups?limit=2", "").ok(200, &page)
	if len(page.Items) != 2 || page.Items[0].Name != "a" || page.Items[0].GroupID != "2" || page.Items[1].Name != "b" || page.NextCursor == nil {
		t.Fatalf("%+v", page)
	}
	n.call("GET", "/v1/groups?cursor="+*page.NextCursor, "").ok(200, &page)
	if len(page.Items) != 1 || page.Items[0].Name != "c" || page.NextCursor != nil {
		t.Errorf("%+v", page)
	}
	n.call("GET", "/v1/groups", "", token(tenantB)).same(`{"items":[],"nextCursor":null}`)
	n.call("GET", "/v1/groups", "", token(tenantA+"/nothing")).problem(403, "FORBIDDEN")
	for _, q := range []string{"limit=0", "cursor=!", "x=1"} {
		n.call("GET", "/v1/groups?"+q, "").problem(400, "INVALID_REQUEST")
	}
}

func TestDrainEndsWaitingPolls(t *testing.T) {
	n := member(t, nil)
	waiting := make(chan struct{}, 1)
	n.f.onCall("PollWaits", func() { waiting <- struct{}{} })
	answers := make(chan string, 1)
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+n.Addr()+billing+"/poll", strings.NewReader(`{"memberId":"m-1","generation":1,"wait":"30s"}`))
	req.Header.Set("Authorization", "Bearer "+tenantA)
	go func() {
		res, err := n.hc.Do(req)
		if err != nil {
			answers <- err.Error()
			return
		}
		_ = res.Body.Close()
		answers <- res.Status
	}()
	<-waiting
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Error(err)
	}
	if got := <-answers; got != "200 OK" {
		t.Error(got)
	}
}

func TestPollEndsWithItsClient(t *testing.T) {
	n := member(t, func(o *Options) { o.Timeouts.Request = time.Nanosecond })
	waiting, cut := make(chan struct{}, 1), make(chan struct{}, 1)
	n.f.onCall("PollWaits", func() { waiting <- struct{}{} })
	n.f.onCall("PollCut", func() { cut <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+n.Addr()+billing+"/poll", strings.NewReader(`{"memberId":"m-1","generation":1,"wait":"30s"}`))
	req.Header.Set("Authorization", "Bearer "+tenantA)
	ended := make(chan error, 1)
	go func() {
		_, err := n.hc.Do(req)
		ended <- err
	}()
	<-waiting
	cancel()
	<-cut
	n.g.mu.Lock()
	defer n.g.mu.Unlock()
	if !errors.Is(n.g.cause, context.Canceled) {
		t.Errorf("the poll ended because: %v", n.g.cause)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPollThatCannotBeSent(t *testing.T) {
	// The next poll goes on after it, so the client must not just try again.
	n := member(t, func(o *Options) { o.Limits.MaxAnswerBytes = 1 })
	n.g.offer("billing", groups.Polled{TopicPartition: groups.TopicPartition{Topic: "orders"}, Records: []segment.Record{text(1, strings.Repeat("x", 70<<10))}, NextOffset: 2})
	n.call("POST", billing+"/poll", `{"memberId":"m-1","generation":1}`).problem(504, "OUTCOME_UNKNOWN")
}
