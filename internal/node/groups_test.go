package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/gateway/auth"
)

// rest calls the REST API of a node as one tenant.
type rest struct {
	t     *testing.T
	n     *Node
	token string
	hc    *http.Client
}

func newREST(t *testing.T, n *Node, tenant string) *rest {
	t.Helper()
	token, err := auth.SignDev(key, auth.Claims{Tenant: tenant, Subject: "test", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &rest{t: t, n: n, token: token, hc: &http.Client{Transport: tr}}
}

// call sends body as JSON, wants the status, and decodes the answer.
func (r *rest) call(method, path string, body any, status int, into any) {
	r.t.Helper()
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			r.t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.n.Addr()+path, bytes.NewReader(b))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := r.hc.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode != status {
		r.t.Fatalf("%s %s: status %d, want %d: %s", method, path, res.StatusCode, status, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			r.t.Fatalf("%s: %v", answer, err)
		}
	}
}

type groupPlace struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

type groupOffset struct {
	groupPlace
	Offset int64 `json:"offset"`
}

// groupMember is a member of the group billing.
type groupMember struct {
	*rest
	MemberID   string
	Generation int64
	Assignment []groupOffset
	Revoke     []groupPlace
	read       map[string]int // by value: how often
}

func joinBilling(r *rest) *groupMember {
	r.t.Helper()
	m := &groupMember{rest: r, read: map[string]int{}}
	r.call("POST", "/v1/groups/billing/join", map[string]any{"topics": []string{"orders"}, "start": "earliest", "sessionTimeout": "1m"}, 200, m)
	return m
}

// beat sends a heartbeat that lets go of what is to be revoked.
func (m *groupMember) beat() {
	m.t.Helper()
	owned := []groupPlace{}
	for _, a := range m.Assignment {
		owned = append(owned, a.groupPlace)
	}
	m.Assignment, m.Revoke = nil, nil
	m.call("POST", "/v1/groups/billing/heartbeat", map[string]any{"memberId": m.MemberID, "generation": m.Generation, "owned": owned}, 200, m)
}

func (m *groupMember) partitions() (out []int32) {
	for _, a := range m.Assignment {
		out = append(out, a.Partition)
	}
	slices.Sort(out)
	return out
}

// work polls once and commits what came.
func (m *groupMember) work(wait string) (records int) {
	m.t.Helper()
	var polled struct {
		Partitions []struct {
			groupPlace
			Records    []struct{ Text string }
			NextOffset int64
		}
	}
	m.call("POST", "/v1/groups/billing/poll", map[string]any{"memberId": m.MemberID, "generation": m.Generation, "maxRecords": 50, "wait": wait}, 200, &polled)
	var offsets []groupOffset
	for _, p := range polled.Partitions {
		for _, rec := range p.Records {
			m.read[rec.Text]++
			records++
		}
		offsets = append(offsets, groupOffset{p.groupPlace, p.NextOffset})
	}
	if len(offsets) > 0 {
		m.commit(m.Generation, 204, offsets, nil)
	}
	return records
}

func (m *groupMember) commit(generation int64, status int, offsets []groupOffset, into any) {
	m.t.Helper()
	m.call("PUT", "/v1/groups/billing/offsets", map[string]any{"memberId": m.MemberID, "generation": generation, "offsets": offsets}, status, into)
}

// TestGroupOverREST: two members share the partitions of a topic, read and commit; what the one that leaves has owned goes to the other, which goes on
// where it was committed; a commit of the generation before is refused; and all of that is there after a restart.
func TestGroupOverREST(t *testing.T) {
	dir := t.TempDir()
	config := func() Config {
		c := embedded(dir)
		c.EmbeddedRedis = true
		return c
	}
	n := start(t, config())
	c := connect(t, n, "acme")
	partitions := 4
	if _, _, err := c.PutTopic(t.Context(), "orders", client.TopicSettings{Partitions: &partitions}); err != nil {
		t.Fatal(err)
	}
	publish(t, c, 200)
	r := newREST(t, n, "acme")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// until asks again as long as f is not content: a heartbeat is how members hear of anything.
	until := func(what string, f func() bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for !f() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s: not within a minute", what)
			}
		}
	}

	a := joinBilling(r)
	if got := fmt.Sprint(a.partitions()); got != "[0 1 2 3]" {
		t.Fatalf("the first member owns %s", got)
	}
	if a.work("0s") != 50 {
		t.Fatalf("read %d", len(a.read))
	}
	b := joinBilling(r)
	until("two partitions each", func() bool {
		a.beat()
		b.beat()
		return len(a.Assignment) == 2 && len(b.Assignment) == 2 && len(a.Revoke) == 0
	})
	if all := append(a.partitions(), b.partitions()...); len(slices.Compact(slices.Sorted(slices.Values(all)))) != 4 {
		t.Fatalf("owned by a: %v, by b: %v", a.partitions(), b.partitions())
	}
	a.beat() // the generation in which b got the last one
	before, owned := b.Generation, slices.Clone(b.Assignment)
	if a.work("0s") == 0 || b.work("0s") == 0 {
		t.Error("a member read nothing")
	}

	b.call("POST", "/v1/groups/billing/leave", map[string]any{"memberId": b.MemberID}, 204, nil)
	until("all partitions are the other's", func() bool {
		a.beat()
		return len(a.Assignment) == 4
	})
	var refused struct {
		Code       string
		Generation int64
	}
	b.commit(before, 409, []groupOffset{{owned[0].groupPlace, 0}}, &refused)
	if refused.Code != "STALE_GENERATION" || refused.Generation <= before {
		t.Errorf("a commit of generation %d by who has left: %+v", before, refused)
	}
	a.commit(before, 409, []groupOffset{{a.Assignment[0].groupPlace, 0}}, &refused)
	if refused.Code != "STALE_GENERATION" {
		t.Errorf("a commit of generation %d by who is still there: %+v", before, refused)
	}
	var group struct {
		State      string
		Members    []struct{ MemberID string }
		Partitions []struct {
			Owner     string
			Committed *int64
			Head, Lag int64
		}
	}
	until("everything is read", func() bool {
		a.work("0s")
		return len(a.read)+len(b.read) >= 200
	})
	for v, times := range a.read {
		if times != 1 || b.read[v] != 0 {
			t.Errorf("record %s was read %d times, and %d times by the other", v, times, b.read[v])
		}
	}
	check := func() {
		t.Helper()
		group.Members, group.Partitions = nil, nil
		r.call("GET", "/v1/groups/billing", nil, 200, &group)
		if len(group.Members) != 1 || group.Members[0].MemberID != a.MemberID || len(group.Partitions) != 4 {
			t.Fatalf("%+v", group)
		}
		for _, p := range group.Partitions {
			if p.Owner != a.MemberID || p.Committed == nil || *p.Committed != p.Head || p.Lag != 0 {
				t.Errorf("%+v", p)
			}
		}
	}
	check()
	if group.State != "stable" {
		t.Errorf("state %s", group.State)
	}
	r.call("POST", "/v1/groups/billing/seek", map[string]any{"topic": "orders", "to": "earliest"}, 409, nil)

	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n = start(t, config())
	r.n, c = n, connect(t, n, "acme")
	check()
	publish(t, c, 1)
	r.call("POST", "/v1/groups/billing/join", map[string]any{"topics": []string{"orders"}, "start": "earliest", "memberId": a.MemberID, "sessionTimeout": "1m"}, 200, a)
	if a.work("20s") != 1 || a.read["0"] != 2 {
		t.Errorf("after a restart: %d values", len(a.read))
	}
	r.call("POST", "/v1/groups/billing/leave", map[string]any{"memberId": a.MemberID}, 204, nil)
	r.call("DELETE", "/v1/groups/billing", nil, 204, nil)
	r.call("GET", "/v1/groups/billing", nil, 404, nil)
}
