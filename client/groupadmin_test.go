package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGetGroup(t *testing.T) {
	const answer = `{"name":"g","groupID":"18446744073709551615","created":"2026-01-02T03:04:05.678Z","state":"stable","generation":4,"new":true,
		"members":[{"memberId":"m","instanceId":null,"topics":["a"],"owned":[{"topic":"a","partition":0}],"revoking":[],"sessionExpiresAt":"2026-01-02T03:04:15.678Z"}],
		"partitions":[{"topic":"a","partition":0,"owner":"m","committed":5,"head":50,"logStart":9,"lag":41,"lagSeconds":1.5,"retentionHeadroomSeconds":12.5,"gap":{"from":5,"to":9},"metadata":"x"},
			{"topic":"a","partition":1,"owner":null,"committed":null,"head":0,"logStart":0,"lag":0,"lagSeconds":0,"retentionHeadroomSeconds":null,"gap":null,"metadata":""}]}`
	g, err := groupServer(t, "GET", "/v1/groups/g", "", 200, answer).GetGroup(t.Context(), "g")
	if err != nil || string(g.JSON) != answer {
		t.Fatalf("%+v, %v", g, err)
	}
	want := &Group{
		Name: "g", GroupID: "18446744073709551615", Created: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), State: "stable", Generation: 4,
		Members: []GroupMembership{{MemberID: "m", Topics: []string{"a"}, Owned: []TopicPartition{{"a", 0}}, Revoking: []TopicPartition{},
			SessionExpiresAt: ptr(time.Date(2026, 1, 2, 3, 4, 15, 678e6, time.UTC))}},
		Partitions: []GroupPartitionInfo{
			{Topic: "a", Owner: ptr("m"), Committed: ptr(int64(5)), Head: 50, LogStart: 9, Lag: 41, LagSeconds: 1.5, RetentionHeadroomSeconds: ptr(12.5), Gap: &Gap{"a", 0, 5, 9}, Metadata: "x"},
			{Topic: "a", Partition: 1},
		},
		JSON: []byte(answer),
	}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Error(diff)
	}
}

func TestListGroups(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/groups" || r.URL.RawQuery != "cursor=c&limit=2" {
			t.Errorf("%s", r.URL)
		}
		answerJSON(w, 200, `{"items":[{"name":"a","groupID":"1"},{"name":"b"}],"nextCursor":"d"}`)
	})
	page, err := cl.ListGroups(t.Context(), 2, "c")
	if err != nil || len(page.Items) != 2 || page.Items[0].GroupID != "1" || string(page.Items[1].JSON) != `{"name":"b"}` || page.Next != "d" {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestGroupThatIsGone: of a group that was there a moment ago, and of one that never was.
func TestGroupThatIsGone(t *testing.T) {
	for name, call := range map[string]func(*Client) error{
		"delete": func(c *Client) error { return c.DeleteGroup(t.Context(), "g") },
		"leave":  func(c *Client) error { return c.LeaveGroup(t.Context(), "g", "m") },
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls.Add(1) == 1 {
					hangUp(w)
				}
				answerProblem(w, 404, `{"code":"UNKNOWN_GROUP"}`)
			})
			if err := call(cl); err != nil || calls.Load() != 2 {
				t.Errorf("%d calls, %v", calls.Load(), err)
			}
			if err := call(cl); !errors.Is(err, ErrUnknownGroup) || calls.Load() != 3 {
				t.Errorf("%d calls, %v", calls.Load(), err)
			}
		})
	}
}

// TestSeekGroup: where its answer is lost it is sent again, but for a seek to the latest record, which would pass what came meanwhile.
func TestSeekGroup(t *testing.T) {
	for _, c := range []struct {
		seek  GroupSeek
		body  string
		calls int32
	}{
		{GroupSeek{Topic: "a", To: SeekTarget{Earliest: true}}, `{"to":"earliest","topic":"a"}`, 2},
		{GroupSeek{Topic: "a", To: SeekTarget{Latest: true}}, `{"to":"latest","topic":"a"}`, 1},
		{GroupSeek{Topic: "a", To: SeekTarget{Latest: true}, DryRun: true}, `{"dryRun":true,"to":"latest","topic":"a"}`, 2},
		{GroupSeek{Topic: "a", To: SeekTarget{Time: time.UnixMilli(1)}}, `{"timestamp":"1970-01-01T00:00:00.001Z","topic":"a"}`, 2},
		{GroupSeek{Topic: "a", To: SeekTarget{Offsets: map[int32]int64{3: 42}}}, `{"offsets":{"3":42},"topic":"a"}`, 2},
	} {
		t.Run(c.body, func(t *testing.T) {
			const answer = `{"dryRun":false,"partitions":[{"topic":"a","partition":3,"from":40,"to":42,"skipped":2,"repeats":0,"lost":1},{"topic":"a","partition":4,"from":null,"to":1,"skipped":0,"repeats":0}]}`
			var calls atomic.Int32
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); string(body) != c.body || r.URL.Path != "/v1/groups/g/seek" {
					t.Errorf("%s %s", r.URL, body)
				}
				if calls.Add(1) == 1 {
					hangUp(w)
				}
				answerJSON(w, 200, answer)
			})
			got, err := cl.SeekGroup(t.Context(), "g", c.seek)
			if (err == nil) != (c.calls == 2) || calls.Load() != c.calls {
				t.Fatalf("%d calls, %v", calls.Load(), err)
			}
			if err != nil {
				if outcome, _ := Classify(err); outcome != Indefinite {
					t.Errorf("%s: %v", outcome, err)
				}
				return
			}
			want := &GroupSeekResult{Repeated: !c.seek.DryRun, JSON: []byte(answer), Partitions: []GroupMove{{"a", 3, ptr(int64(40)), 42, 2, 0, 1}, {"a", 4, nil, 1, 0, 0, 0}}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	cl := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("sent") })
	for _, to := range []SeekTarget{{}, {Earliest: true, Latest: true}} {
		if _, err := cl.SeekGroup(t.Context(), "g", GroupSeek{Topic: "a", To: to}); err == nil {
			t.Errorf("%+v is accepted", to)
		} else if outcome, _ := Classify(err); outcome != Definite {
			t.Errorf("%s: %v", outcome, err)
		}
	}
}

// TestConflictAfterALostAnswer: the first may have taken effect, and members have come since.
func TestConflictAfterALostAnswer(t *testing.T) {
	for name, call := range map[string]func(*Client) error{
		"delete": func(c *Client) error { return c.DeleteGroup(t.Context(), "g") },
		"seek": func(c *Client) error {
			_, err := c.SeekGroup(t.Context(), "g", GroupSeek{Topic: "a", To: SeekTarget{Earliest: true}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				switch calls.Add(1) {
				case 1:
					hangUp(w)
				case 2:
					w.WriteHeader(502)
					return
				}
				answerProblem(w, 409, `{"code":"CONFLICT","detail":"2 members"}`)
			})
			err := call(cl)
			if outcome, _ := Classify(err); outcome != Indefinite || calls.Load() != 3 || !strings.Contains(err.Error(), "2 members") {
				t.Errorf("%d calls, %s: %v", calls.Load(), outcome, err)
			}
			err = call(cl)
			if outcome, _ := Classify(err); outcome != Definite || calls.Load() != 4 {
				t.Errorf("%d calls, %s: %v", calls.Load(), outcome, err)
			}
		})
	}
}
