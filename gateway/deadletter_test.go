package gateway

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
)

type deadJSON struct {
	Items []struct {
		Partition, Offset, Attempts int64
		Reason, DeadAt              string
		FirstFailedAt               *string
		Expired                     bool
		Record                      *struct{ Key, Text string }
	}
	NextCursor *string
}

func TestDeadLetters(t *testing.T) {
	n := worker(t, nil)
	rec := text(7, "poison")
	n.q.bury("orders", "work", leases.DeadLetter{Partition: 1, Offset: 7, Attempts: 5, Reason: "no \"stock\"", FirstFailedAt: 1_700_000_000_000, DeadAt: 1_700_000_001_000, Record: &rec})
	n.q.bury("orders", "work", leases.DeadLetter{Partition: 2, Offset: 8, Attempts: 5, DeadAt: 1_700_000_001_000, Expired: true})
	var got deadJSON
	n.call("GET", work+"/dead-letters", "").ok(200, &got)
	d := got.Items[0]
	if len(got.Items) != 2 || d.Partition != 1 || d.Offset != 7 || d.Attempts != 5 || d.Reason != `no "stock"` || *d.FirstFailedAt != "2023-11-14T22:13:20.000Z" ||
		d.DeadAt != "2023-11-14T22:13:21.000Z" || d.Expired || d.Record == nil || d.Record.Text != "poison" || got.NextCursor != nil {
		t.Errorf("%+v", got)
	}
	if d := got.Items[1]; !d.Expired || d.Record != nil || d.FirstFailedAt != nil {
		t.Errorf("%+v", d)
	}
	got = deadJSON{}
	n.call("GET", work+"/dead-letters?records=false&limit=1", "").ok(200, &got)
	if len(got.Items) != 1 || got.Items[0].Record != nil || got.NextCursor == nil {
		t.Fatalf("%+v", got)
	}
	cursor := *got.NextCursor
	got = deadJSON{}
	n.call("GET", work+"/dead-letters?cursor="+cursor, "").ok(200, &got)
	if len(got.Items) != 1 || got.Items[0].Offset != 8 {
		t.Errorf("%+v", got)
	}
	for _, q := range []string{"limit=0", "limit=1001", "records=1", "cursor=", "cursor=!", "cursor=MQ", "cursor=MXg", "x=1"} {
		n.call("GET", work+"/dead-letters?"+q, "").problem(400, "INVALID_REQUEST")
	}
}

func TestDeadLettersAreReadInSteps(t *testing.T) {
	// A page ends where its records have become large, and goes on there.
	n := worker(t, nil)
	big := text(0, strings.Repeat("x", api.MaxRecordBytes-100))
	for i := range 50 {
		n.q.bury("orders", "work", leases.DeadLetter{Offset: int64(i), Attempts: 5, DeadAt: 1, Record: &big})
	}
	var offsets []int64
	path := work + "/dead-letters?limit=1000"
	for pages := 0; ; pages++ {
		var got deadJSON
		n.call("GET", path, "").ok(200, &got)
		for _, d := range got.Items {
			offsets = append(offsets, d.Offset)
		}
		if len(got.Items) > deadLetterStep {
			t.Errorf("%d MiB in one answer", len(got.Items))
		}
		if got.NextCursor == nil {
			break
		}
		path = work + "/dead-letters?limit=1000&cursor=" + url.QueryEscape(*got.NextCursor)
	}
	if len(offsets) != 50 || !slices.IsSorted(offsets) {
		t.Errorf("offsets %v", offsets)
	}
	// Small ones come in few calls.
	n = worker(t, nil)
	small := text(0, "x")
	for i := range 1000 {
		n.q.bury("orders", "work", leases.DeadLetter{Offset: int64(i), Attempts: 5, DeadAt: 1, Record: &small})
	}
	var got deadJSON
	n.call("GET", work+"/dead-letters?limit=1000", "").ok(200, &got)
	if len(got.Items) != 1000 || len(n.q.before) > 8 {
		t.Errorf("%d items in %d calls: %v", len(got.Items), len(n.q.before), n.q.before)
	}
}

func TestRedriveAndDiscard(t *testing.T) {
	n := worker(t, nil)
	n.q.bury("orders", "work", leases.DeadLetter{Offset: 1})
	var task struct {
		ID, State, CreatedAt string
		Total, Done          int64
	}
	a := n.call("POST", work+"/dead-letters/redrive", `{"offsets":[{"partition":3,"offset":42},{"offset":9223372036854775807,"partition":0}],"ratePerSecond":50}`).ok(202, &task)
	if task.ID != "task-1" || task.State != "running" || task.Total != 1 || task.CreatedAt == "" || a.header.Get("Location") != work+"/tasks/task-1" {
		t.Errorf("%+v, %v", task, a.header)
	}
	n.call("GET", a.header.Get("Location"), "").ok(200, &task)
	n.call("DELETE", a.header.Get("Location"), "").ok(200, &task)
	if task.State != "cancelled" {
		t.Errorf("%+v", task)
	}
	n.call("GET", work+"/tasks/missing", "").problem(404, "NOT_FOUND")
	n.call("GET", work+"/tasks/a%20b", "").problem(400, "INVALID_REQUEST")
	n.call("POST", work+"/dead-letters/redrive", `{"all":true}`).ok(202, nil)
	var discarded struct{ Discarded int64 }
	n.call("POST", work+"/dead-letters/discard", `{"all":false,"offsets":[{"partition":0,"offset":0}]}`).ok(200, &discarded)
	if p := n.q.picked; discarded.Discarded != 1 || len(p[0].Offsets) != 2 || p[0].Offsets[0] != (leases.Target{Partition: 3, Offset: 42}) || p[0].Offsets[1].Offset != 9223372036854775807 ||
		p[0].All || !p[1].All || p[2].All || n.q.rates[0] != 50 || n.q.rates[1] != api.DefaultRedriveRate {
		t.Errorf("%+v, %v", p, n.q.rates)
	}
}

func TestSelectionsRefused(t *testing.T) {
	n := worker(t, nil)
	for body, pointer := range map[string]string{
		``:                              "",
		`{}`:                            "",
		`{"all":false}`:                 "",
		`{"all":"yes"}`:                 "/all",
		`{"all":null}`:                  "/all",
		`{"offsets":[]}`:                "/offsets",
		`{"offsets":[{"partition":0}]}`: "/offsets/0",
		`{"offsets":[{"offset":0}]}`:    "/offsets/0",
		`{"offsets":[{"partition":0,"offset":1},5]}`:                 "/offsets/1",
		`{"offsets":[{"partition":0,"offset":1e3}]}`:                 "/offsets/0/offset", // H4
		`{"offsets":[{"partition":0,"offset":1.5}]}`:                 "/offsets/0/offset",
		`{"offsets":[{"partition":0,"offset":-0}]}`:                  "/offsets/0/offset",
		`{"offsets":[{"partition":0,"offset":-1}]}`:                  "/offsets/0/offset",
		`{"offsets":[{"partition":0,"offset":"5"}]}`:                 "/offsets/0/offset",
		`{"offsets":[{"partition":0,"offset":9223372036854775808}]}`: "/offsets/0/offset",
		`{"offsets":[{"partition":10000,"offset":1}]}`:               "/offsets/0/partition",
		`{"offsets":[{"partition":0,"offset":1,"reason":"x"}]}`:      "/offsets/0/reason",
		`{"all":true,"offsets":[{"partition":0,"offset":1}]}`:        "",
		`{"all":true,"ratePerSecond":0}`:                             "/ratePerSecond",
		`{"all":true,"ratePerSecond":1e2}`:                           "/ratePerSecond",
		`{"all":true,"ratePerSecond":100001}`:                        "/ratePerSecond",
		`{"all":true,"rate":1}`:                                      "/rate",
	} {
		p := n.call("POST", work+"/dead-letters/redrive", body).problem(400, "INVALID_REQUEST")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v, want the pointer %q", body, p.Errors, pointer)
		}
	}
	n.call("POST", work+"/dead-letters/discard", `{"all":true,"ratePerSecond":5}`).problem(400, "INVALID_REQUEST")
	many := strings.TrimSuffix(strings.Repeat(`{"partition":0,"offset":1},`, api.MaxRedriveOffsets+1), ",")
	n.call("POST", work+"/dead-letters/discard", fmt.Sprintf(`{"offsets":[%s]}`, many)).problem(413, "TOO_LARGE")
	if len(n.q.picked) != 0 {
		t.Errorf("%d were passed on", len(n.q.picked))
	}
}
