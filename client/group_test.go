package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
)

// groupServer answers one call, whose request it checks.
func groupServer(t *testing.T, method, path, body string, status int, answer string) *Client {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got, _ := io.ReadAll(r.Body); r.Method != method || r.URL.Path != path || string(got) != body {
			t.Errorf("got %s %s %s\nwant %s %s %s", r.Method, r.URL.Path, got, method, path, body)
		}
		if status == http.StatusNoContent {
			w.WriteHeader(status)
			return
		}
		answerJSON(w, status, answer)
	})
}

func TestJoinGroup(t *testing.T) {
	cl := groupServer(t, "POST", "/v1/groups/g/join", `{"topics":["a","b"],"memberId":"m-1","instanceId":"i","sessionTimeout":"6000ms","start":"earliest"}`,
		200, `{"memberId":"m-1","generation":4,"assignment":[{"topic":"a","partition":2,"offset":42}],"heartbeatInterval":"3333ms"}`)
	got, err := cl.JoinGroup(t.Context(), "g", JoinOptions{Topics: []string{"a", "b"}, MemberID: "m-1", InstanceID: "i", SessionTimeout: 6 * time.Second, Start: "earliest"})
	if err != nil {
		t.Fatal(err)
	}
	want := &Membership{MemberID: "m-1", Generation: 4, Assignment: []GroupOffset{{Topic: "a", Partition: 2, Offset: 42}}, HeartbeatInterval: 3333 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestJoinWhoseAnswerWasLost: the second is of the same member, so that no other holds partitions until its session lapses.
func TestJoinWhoseAnswerWasLost(t *testing.T) {
	var bodies []string
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bodies = append(bodies, string(body)); len(bodies) == 1 {
			hangUp(w)
		}
		answerJSON(w, 200, `{"memberId":"m-x","generation":1,"assignment":[],"heartbeatInterval":"1s"}`)
	})
	m, err := cl.JoinGroup(t.Context(), "g", JoinOptions{Topics: []string{"a"}})
	if err != nil || m.MemberID != "m-x" || len(bodies) != 2 || bodies[0] != bodies[1] || !strings.Contains(bodies[0], `"memberId":"m-`) {
		t.Errorf("%+v, %v, %q", m, err, bodies)
	}
	if a, b := NewMemberID(), NewMemberID(); a == b || len(a) > 200 {
		t.Error("two members have one ID")
	}
}

// TestHeartbeat: what is let go depends on the difference between saying nothing and owning nothing.
func TestHeartbeat(t *testing.T) {
	for _, c := range []struct {
		owned []TopicPartition
		body  string
	}{
		{nil, `{"memberId":"m","generation":4}`},
		{[]TopicPartition{}, `{"memberId":"m","generation":4,"owned":[]}`},
		{[]TopicPartition{{"a", 0}}, `{"memberId":"m","generation":4,"owned":[{"topic":"a","partition":0}]}`},
	} {
		cl := groupServer(t, "POST", "/v1/groups/g/heartbeat", c.body, 200, `{"generation":5,"assignment":[{"topic":"a","partition":0,"offset":7}],"revoke":[{"topic":"a","partition":1}]}`)
		got, err := cl.Heartbeat(t.Context(), "g", GroupMember{"m", 4}, c.owned)
		if err != nil {
			t.Fatal(err)
		}
		want := &Membership{MemberID: "m", Generation: 5, Assignment: []GroupOffset{{Topic: "a", Offset: 7}}, Revoke: []TopicPartition{{"a", 1}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestMembershipThatIsNone(t *testing.T) {
	for _, answer := range []string{`{}`, `[]`, `{"generation":0}`, `{"generation":1,"heartbeatInterval":"soon"}`, `{"generation":1,"heartbeatInterval":"0s"}`, `{"generation":1`} {
		if m, err := decodeMembership([]byte(answer), "m"); err == nil {
			t.Errorf("%s: %+v", answer, m)
		}
	}
}

func TestLeaveGroup(t *testing.T) {
	cl := groupServer(t, "POST", "/v1/groups/g/leave", `{"memberId":"m"}`, 204, "")
	if err := cl.LeaveGroup(t.Context(), "g", "m"); err != nil {
		t.Error(err)
	}
}

func TestCommitOffsets(t *testing.T) {
	offsets := []GroupOffset{{Topic: "a", Partition: 1, Offset: 42, Metadata: "x"}, {Topic: "a", Partition: 2}}
	const list = `[{"topic":"a","partition":1,"offset":42,"metadata":"x"},{"topic":"a","partition":2,"offset":0}]`
	for _, c := range []struct {
		m       GroupMember
		offsets []GroupOffset
		body    string
	}{
		{GroupMember{"m", 4}, offsets, `{"memberId":"m","generation":4,"offsets":` + list + `}`},
		{GroupMember{}, offsets, `{"offsets":` + list + `}`},
		{GroupMember{"m", 4}, nil, `{"memberId":"m","generation":4,"offsets":[]}`},
	} {
		cl := groupServer(t, "PUT", "/v1/groups/g/offsets", c.body, 204, "")
		if err := cl.CommitOffsets(t.Context(), "g", c.m, c.offsets); err != nil {
			t.Error(err)
		}
	}
	cl := groupServer(t, "GET", "/v1/groups/g/offsets", "", 200, `{"offsets":`+list+`}`)
	got, err := cl.CommittedOffsets(t.Context(), "g")
	if diff := cmp.Diff(offsets, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestRefusedMember(t *testing.T) {
	for code, want := range map[string]error{"STALE_GENERATION": ErrStaleGeneration, "NOT_OWNER": ErrNotOwner, "UNKNOWN_GROUP": ErrUnknownGroup} {
		var calls atomic.Int32
		cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			answerProblem(w, api.Codes[api.Code(code)].Status, `{"code":"`+code+`"}`)
		})
		if err := cl.CommitOffsets(t.Context(), "g", GroupMember{"m", 4}, nil); !errors.Is(err, want) || calls.Load() != 1 {
			t.Errorf("%d calls, %v", calls.Load(), err)
		}
	}
}

func TestPoll(t *testing.T) {
	const record = `{"partition":2,"offset":42,"time":"2026-01-02T03:04:05.678Z","key":"k","text":"paid","new":1}`
	cl := groupServer(t, "POST", "/v1/groups/g/poll", `{"memberId":"m","generation":4,"maxRecords":5,"maxBytes":6,"wait":"2000ms"}`,
		200, `{"partitions":[{"topic":"a","partition":2,"records":[`+record+`],"nextOffset":43,"head":50}]}`)
	got, err := cl.Poll(t.Context(), "g", GroupMember{"m", 4}, PollOptions{MaxRecords: 5, MaxBytes: 6, Wait: 2 * time.Second})
	if err != nil || len(got) != 1 || len(got[0].Records) != 1 || string(got[0].JSON[0]) != record {
		t.Fatalf("%+v, %v", got, err)
	}
	p, r := got[0], got[0].Records[0]
	if p.Topic != "a" || p.Partition != 2 || p.NextOffset != 43 || p.Head != 50 || r.Offset != 42 || string(r.Key) != "k" || string(r.Value) != "paid" || r.Kind != KindText {
		t.Errorf("%+v", p)
	}
}

// TestPollWhoseAnswerWasLost: a second one would pass over what the first has read.
func TestPollWhoseAnswerWasLost(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{
		"hung up":   func(w http.ResponseWriter, _ *http.Request) { hangUp(w) },
		"a proxy":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
		"not whole": func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, 200, `{"partitions":[{"topic":"a"`) },
		"the server": func(w http.ResponseWriter, _ *http.Request) {
			answerProblem(w, 504, `{"code":"OUTCOME_UNKNOWN","detail":"lost"}`)
		},
		"rubbish": func(w http.ResponseWriter, _ *http.Request) {
			answerJSON(w, 200, `{"partitions":[{"topic":"a","partition":0,"records":[{"offset":1,"data":"?"}],"nextOffset":2}]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) { calls.Add(1); fail(w, r) })
			polled, err := cl.Poll(t.Context(), "g", GroupMember{"m", 4}, PollOptions{})
			if outcome, reason := Classify(err); outcome != Indefinite || calls.Load() != 1 || polled != nil {
				t.Errorf("%d calls, %s (%s): %v", calls.Load(), outcome, reason, err)
			}
			if err == nil || !strings.Contains(err.Error(), "join again with the same member ID") {
				t.Error(err)
			}
		})
	}
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			answerProblem(w, 503, `{"code":"OVERLOADED"}`) // that one has read nothing
			return
		}
		answerJSON(w, 200, `{"partitions":[]}`)
	})
	if polled, err := cl.Poll(t.Context(), "g", GroupMember{"m", 4}, PollOptions{}); err != nil || len(polled) != 0 || calls.Load() != 2 {
		t.Errorf("%d calls, %v, %v", calls.Load(), polled, err)
	}
}

func TestPollBehindAGap(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answerProblem(w, 409, `{"code":"RETENTION_GAP","gaps":[{"topic":"a","partition":2,"from":5,"to":9}]}`)
	})
	_, err := cl.Poll(t.Context(), "g", GroupMember{"m", 4}, PollOptions{})
	var e *Error
	if !errors.Is(err, ErrRetentionGap) || !errors.As(err, &e) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Gap{{"a", 2, 5, 9}}, e.Gaps); diff != "" {
		t.Error(diff)
	}
}

func TestPollBesideAGap(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answerJSON(w, 200, `{"partitions":[{"topic":"a","partition":1,"records":[],"nextOffset":3,"head":3}],"gaps":[{"topic":"a","partition":2,"from":5,"to":9}]}`)
	})
	got, err := cl.Poll(t.Context(), "g", GroupMember{"m", 4}, PollOptions{})
	if err != nil || len(got) != 2 || got[0].Gap != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if diff := cmp.Diff(PolledPartition{Topic: "a", Partition: 2, NextOffset: 9, Gap: &Gap{"a", 2, 5, 9}}, got[1]); diff != "" {
		t.Error(diff)
	}
}

// FuzzGroupAnswers: what a server, or somebody in its place, may answer. What is taken is whole.
func FuzzGroupAnswers(f *testing.F) {
	for _, whole := range []string{
		`{"memberId":"m","generation":4,"assignment":[{"topic":"a","partition":2,"offset":42}],"revoke":[{"topic":"a","partition":1}],"heartbeatInterval":"3333ms"}`,
		`{"partitions":[{"topic":"a","partition":2,"records":[{"partition":2,"offset":42,"time":"2026-01-02T03:04:05.678Z","key":"k","data":"AQ==","headers":[["a","1"]]}],"nextOffset":43,"head":50}]}`,
		`{"name":"g","groupID":"7","created":"2026-01-02T03:04:05.678Z","state":"stable","generation":4,"members":[{"memberId":"m","instanceId":null,"owned":[]}],"partitions":[{"topic":"a","partition":1,"committed":5,"gap":{"from":5,"to":9}}]}`,
	} {
		f.Add([]byte(whole))
		for i := 0; i < len(whole); i += 7 {
			f.Add([]byte(whole[:i]))
			flipped := []byte(whole)
			flipped[i] ^= 1 << (i % 8)
			f.Add(flipped)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if m, err := decodeMembership(raw, "m"); err == nil && (m.Generation < 1 || m.HeartbeatInterval < 0) {
			t.Errorf("%+v", m)
		}
		polled, err := decodePolled(raw)
		for i := range polled {
			p := &polled[i]
			if len(p.Records) != len(p.JSON) {
				t.Fatalf("%d records, %d texts", len(p.Records), len(p.JSON))
			}
			for j, text := range p.JSON {
				var m jsonMessage
				if json.Unmarshal(text, &m) != nil || m.Offset != p.Records[j].Offset {
					t.Errorf("%s: %+v", text, p.Records[j])
				}
			}
		}
		if err != nil && polled != nil {
			t.Errorf("half an answer: %+v, %v", polled, err)
		}
		var g Group
		if g.decode(raw) != nil {
			return
		}
		for _, p := range g.Partitions {
			if p.Gap != nil && (p.Gap.Topic != p.Topic || p.Gap.Partition != p.Partition) {
				t.Errorf("%+v", p.Gap)
			}
		}
	})
}
