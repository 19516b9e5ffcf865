package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
)

func TestConsumeRefuses(t *testing.T) {
	ok := []string{"consume", "--server", "http://127.0.0.1:1", "--token", "x", "--retry-for", "0s", "--group", "g", "--topic", "t"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"consume", "--topic", "t"}, "--group"},
		{[]string{"consume", "--group", "g"}, "--topic"},
		{append(ok, "--start", "5"), "--start"},
		{append(ok, "--session-timeout", "10ms"), "--session-timeout"},
		{append(ok, "--session-timeout", "1h"), "--session-timeout"},
		{append(ok, "--max", "-1"), "--max"},
		{append(ok, "--concurrency", "2"), "there is none"},
		{append(ok, "--on-failure", "skip"), "there is none"},
		{append(ok, "--concurrency", "0", "--", "cat"), "--concurrency"},
		{append(ok, "--time-limit", "-1s", "--", "cat"), "--time-limit"},
		{append(ok, "--", "/nowhere/at/all"), "/nowhere/at/all"},
	} {
		if r := forebay(t, nil, "", c.args...); r.code != exitUsage || !strings.Contains(r.err, c.want) || r.out != "" {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
	if r := forebay(t, nil, "", ok...); r.code != exitFailure || r.out != "" || !strings.Contains(r.err, "join group g") {
		t.Errorf("a server that is away: %+v", r)
	}
}

func TestTopicRecordAsJSON(t *testing.T) {
	at := time.UnixMilli(1)
	for want, r := range map[string]client.Record{
		`{"topic":"t","partition":1,"offset":2,"time":"1970-01-01T00:00:00.001Z"}`:                                                                                         {Partition: 1, Offset: 2, Time: at},
		`{"topic":"t","partition":0,"offset":0,"time":"1970-01-01T00:00:00.001Z","key":"","data":""}`:                                                                      {Time: at, Key: []byte{}, Value: []byte{}},
		`{"topic":"t","partition":0,"offset":0,"time":"1970-01-01T00:00:00.001Z","keyBase64":"/w==","text":"<é\n>"}`:                                                       {Time: at, Key: []byte{255}, Value: []byte("<é\n>"), Kind: client.KindText},
		`{"topic":"t","partition":0,"offset":0,"time":"1970-01-01T00:00:00.001Z","keyBase64":"aw==","data":"AQ=="}`:                                                        {Time: at, Key: []byte("k"), KeyBinary: true, Value: []byte{1}, Kind: client.KindData},
		`{"topic":"t","partition":0,"offset":0,"time":"1970-01-01T00:00:00.001Z","value":{"n":12345678901234567890,"t":"\u2028"},"headers":[["a","1"],["a",""]],"id":"e"}`: {Time: at, Value: []byte("{\"n\":12345678901234567890,\r\n \"t\":\"\\u2028\"}"), Kind: client.KindJSON, Headers: []client.Header{{Name: "a", Value: "1"}, {Name: "a"}}, ID: "e"},
		`{"topic":"t","partition":0,"offset":0,"time":"1970-01-01T00:00:00.001Z","producerTime":"1970-01-01T00:00:00.002Z","deliverAt":"1970-01-01T00:00:00.003Z"}`:        {Time: at, ProducerTime: time.UnixMilli(2), DeliverAt: time.UnixMilli(3)},
	} {
		var out strings.Builder
		w := lineWriter{w: &out}
		if err := errors.Join(w.record(&client.GroupRecord{Topic: "t", Record: r}), w.flush()); err != nil || out.String() != want+"\n" {
			t.Errorf("%v\n%s\n%s", err, out.String(), want)
		}
	}
}

// wholeLines fails the test where something is written that does not end a line.
type wholeLines struct {
	t      *testing.T
	lines  int
	writes int
	fail   error
}

func (w *wholeLines) Write(p []byte) (int, error) {
	if w.fail != nil {
		return 0, w.fail
	}
	if !strings.HasSuffix(string(p), "\n") {
		w.t.Errorf("%q is not a whole line", p[max(0, len(p)-50):])
	}
	w.lines += strings.Count(string(p), "\n")
	w.writes++
	return len(p), nil
}

func TestLinesAreWrittenWhole(t *testing.T) {
	out := &wholeLines{t: t}
	w := lineWriter{w: out}
	records := make([]*client.GroupRecord, 1000)
	for i := range records {
		records[i] = &client.GroupRecord{Topic: "t", Record: client.Record{Offset: int64(i), Value: make([]byte, 200+i), Kind: client.KindData}}
	}
	if err := w.batches([]client.Batch{{Records: records[:500]}, {Records: records[500:]}}); err != nil || out.lines != 1000 || out.writes > 20 {
		t.Errorf("%v, %d lines in %d writes", err, out.lines, out.writes)
	}
	out.fail = errors.New("the disk is full")
	if err := w.batches([]client.Batch{{Records: records[:1]}}); !errors.Is(err, out.fail) {
		t.Error(err)
	}
}

// TestTroublesAreToldOnceInAWhile: a server that is away does not fill the screen.
func TestTroublesAreToldOnceInAWhile(t *testing.T) {
	var out strings.Builder
	now := time.UnixMilli(0)
	tr := &troubles{to: &out, now: func() time.Time { return now }}
	for range 3 {
		for partition := range 100 {
			tr.tell(&client.Error{Op: fmt.Sprintf("read t partition %d", partition), Cause: errors.New("connection refused")})
		}
		tr.tell(&client.Error{Op: "commit", Code: "LEASES_UNAVAILABLE", Status: 503})
		tr.tell(client.ErrStaleGeneration)
		tr.tell(errors.New("the session has lapsed"))
		now = now.Add(troubleEvery / 2)
	}
	const refused, away, lapsed = "forebay: read t partition 0: no answer: connection refused\n", "forebay: commit: LEASES_UNAVAILABLE\n", "forebay: the session has lapsed\n"
	if want := refused + away + lapsed + lapsed + refused + away + lapsed; out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
}
