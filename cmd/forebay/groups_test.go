package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

const (
	groupJSON = `{"name":"g","groupID":"7","created":"2026-01-02T03:04:05.678Z","state":"rebalancing","generation":4,` +
		`"members":[{"memberId":"m-1","instanceId":null,"topics":["t"],"owned":[{"topic":"t","partition":0},{"topic":"t","partition":1}],"revoking":[{"topic":"t","partition":1}],"sessionExpiresAt":"2026-01-02T03:04:15.000Z"}],` +
		`"partitions":[{"topic":"t","partition":0,"owner":"m-1","committed":45,"head":50,"logStart":9,"lag":5,"lagSeconds":1.5,"retentionHeadroomSeconds":3600,"gap":null,"metadata":""},` +
		`{"topic":"t","partition":1,"owner":null,"committed":5,"head":50,"logStart":9,"lag":45,"lagSeconds":90,"retentionHeadroomSeconds":0,"gap":{"from":5,"to":9},"metadata":""},` +
		`{"topic":"t","partition":2,"owner":null,"committed":null,"head":0,"logStart":0,"lag":0,"lagSeconds":0,"retentionHeadroomSeconds":null,"gap":null,"metadata":""},` +
		`{"topic":"u","partition":3,"owner":null,"committed":1,"head":9,"logStart":2,"lag":8,"lagSeconds":0,"retentionHeadroomSeconds":null,"gap":{"from":1,"to":2},"metadata":""}]}`
	emptyGroupJSON = `{"name":"e","groupID":"8","created":"2026-01-02T03:04:05.678Z","state":"empty","generation":0,"members":[],"partitions":[]}`
	soughtJSON     = `{"dryRun":%v,"partitions":[{"topic":"t","partition":0,"from":42,"to":40,"skipped":0,"repeats":2},{"topic":"t","partition":1,"from":null,"to":7,"skipped":0,"repeats":0},{"topic":"t","partition":2,"from":1,"to":2,"skipped":1,"repeats":0,"lost":4}]}`
)

// fakeGroups serves group g, which has live members where busy, and group e, which has none.
type fakeGroups struct {
	*httptest.Server
	t  *testing.T
	mu struct {
		sync.Mutex
		calls []string // method, path and body
	}
	busy, lost bool
}

func newFakeGroups(t *testing.T) *fakeGroups {
	t.Helper()
	f := &fakeGroups{t: t}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeGroups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := strings.TrimPrefix(r.URL.Path, "/v1/groups")
	f.mu.calls = append(f.mu.calls, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, rest, body)))
	dry := strings.Contains(string(body), `"dryRun":true`)
	switch call := r.Method + " " + rest; {
	case f.lost:
		panic(http.ErrAbortHandler)
	case f.busy && !dry && r.Method != http.MethodGet:
		answer(w, 409, `{"code":"CONFLICT","detail":"the group has 2 live members: stop them first"}`)
	case call == "GET " && r.URL.Query().Get("cursor") == "":
		answer(w, 200, `{"items":[{"name":"g","groupID":"7","created":"2026-01-02T03:04:05.678Z"}],"nextCursor":"c"}`)
	case call == "GET ":
		answer(w, 200, `{"items":[{"name":"longer","groupID":"9","created":"2026-01-02T03:04:05.678Z"}],"nextCursor":null}`)
	case call == "GET /g":
		answer(w, 200, groupJSON)
	case call == "GET /e":
		answer(w, 200, emptyGroupJSON)
	case call == "DELETE /g":
		w.WriteHeader(204)
	case call == "POST /g/seek" && strings.Contains(string(body), `"9":`):
		answer(w, 404, `{"code":"UNKNOWN_PARTITION","detail":"no partition 9"}`)
	case call == "POST /g/seek":
		answer(w, 200, fmt.Sprintf(soughtJSON, dry))
	default:
		answer(w, 404, `{"code":"UNKNOWN_GROUP","detail":"no such group"}`)
	}
}

func (f *fakeGroups) run(t *testing.T, args ...string) result {
	t.Helper()
	return forebay(t, []string{"FOREBAY_SERVER=" + f.URL, "FOREBAY_TOKEN=x", "FOREBAY_RETRY_FOR=0s"}, "", append([]string{"groups"}, args...)...)
}

func TestGroupCommands(t *testing.T) {
	const moved = "TOPIC  PARTITION  FROM  TO  SKIPPED  REPEATED  LOST\nt      0          42    40  0        2         0\nt      1          -     7   0        0         0\nt      2          1     2   1        0         4\n"
	const told = "1 record skipped, 2 records to be read again, 4 offsets lost to retention\n"
	for _, c := range []struct {
		name     string
		args     []string
		call     string // the last one
		out, err string
	}{
		{"list", []string{"list"}, "GET", "GROUP   CREATED               ID\ng       2026-01-02T03:04:05Z  7\nlonger  2026-01-02T03:04:05Z  9\n", ""},
		{"list as JSON", []string{"list", "--output", "json"}, "GET", `{"name":"g","groupID":"7","created":"2026-01-02T03:04:05.678Z"}` + "\n" + `{"name":"longer","groupID":"9","created":"2026-01-02T03:04:05.678Z"}` + "\n", ""},
		{"describe as JSON", []string{"describe", "g", "--output", "json"}, "GET /g", groupJSON + "\n", ""},
		{"describe an empty one", []string{"describe", "e"}, "GET /e", "group e: empty, generation 0, 0 members\n", ""},
		{"describe", []string{"describe", "g"}, "GET /g", `group g: rebalancing, generation 4, 1 member

MEMBER  INSTANCE  SESSION ENDS          OWNS   LETS GO OF
m-1     -         2026-01-02T03:04:15Z  t:0,1  t:1

TOPIC  PARTITION  OWNER  COMMITTED  HEAD  LAG  LAG TIME  RETENTION HEADROOM  LOST
t      0          m-1    45         50    5    1.5s      1h0m0s              -
t      1          -      5          50    45   1m30s     none                5 to 8
t      2          -      -          0     0    -         -                   -
u      3          -      1          9     8    -         -                   1

LOST: retention has deleted 4 offsets of t partition 1 before group g read it: 5 to 8
LOST: retention has deleted 1 offset of u partition 3 before group g read it: 1
There the group stands still until it is decided where to go on, while it reads its other partitions. An owner may commit an offset behind what is lost. Or stop all members, and run for example:
  forebay groups seek g --topic t --offset 1:9   # the first that are left
  forebay groups seek g --topic u --offset 3:2   # the first that are left
`, ""},
		{"delete", []string{"delete", "g"}, "DELETE /g", "", ""},
		{"delete as JSON", []string{"delete", "g", "--output", "json"}, "DELETE /g", `{"deleted":true,"group":"g"}` + "\n", ""},
		{"seek", []string{"seek", "g", "--topic", "t", "--to", "latest"}, `POST /g/seek {"to":"latest","topic":"t"}`, moved, told},
		{"seek to a time", []string{"seek", "g", "--topic", "t", "--timestamp", "2026-01-02T03:04:05.0001Z"}, `POST /g/seek {"timestamp":"2026-01-02T03:04:05.001Z","topic":"t"}`, moved, told},
		{"seek to offsets", []string{"seek", "g", "--topic", "t", "--offset", "0:5,3:0", "--offset", "1:2"}, `POST /g/seek {"offsets":{"0":5,"1":2,"3":0},"topic":"t"}`, moved, told},
		{"seek as JSON", []string{"seek", "g", "--topic", "t", "--to", "earliest", "--output", "json"}, `POST /g/seek {"to":"earliest","topic":"t"}`, fmt.Sprintf(soughtJSON, false) + "\n", ""},
		{"dry run", []string{"seek", "g", "--topic", "t", "--to", "earliest", "--dry-run"}, `POST /g/seek {"dryRun":true,"to":"earliest","topic":"t"}`, moved, "dry run, nothing was changed: " + told},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeGroups(t)
			r := f.run(t, c.args...)
			if r.code != exitOK || r.err != c.err || r.out != c.out {
				t.Errorf("status %d\n%s\n%s\nwant\n%s\n%s", r.code, r.out, r.err, c.out, c.err)
			}
			if n := len(f.mu.calls); n == 0 || f.mu.calls[n-1] != c.call {
				t.Errorf("calls %q, want %q", f.mu.calls, c.call)
			}
		})
	}
}

func TestGroupCommandsFail(t *testing.T) {
	seek := []string{"seek", "g", "--topic", "t"}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"describe", "x"}, exitFailure, "UNKNOWN_GROUP: no such group (forebay groups list"},
		{[]string{"delete", "x"}, exitFailure, "UNKNOWN_GROUP"},
		{[]string{"describe"}, exitUsage, "group"},
		{[]string{"seek", "g", "--to", "latest"}, exitUsage, "--topic"},
		{seek, exitUsage, "where to"},
		{append(seek, "--to", "tomorrow"), exitUsage, "--to"},
		{append(seek, "--to", "latest", "--offset", "0:1"), exitUsage, "--offset"},
		{append(seek, "--offset", "0:1,0:2"), exitUsage, "twice"},
		{append(seek, "--offset", "0=1"), exitUsage, "PARTITION:OFFSET"},
		{append(seek, "--timestamp", "noon"), exitUsage, "RFC 3339"},
		{append(seek, "--offset", "9:1"), exitFailure, "UNKNOWN_PARTITION: no partition 9"},
	} {
		if r := newFakeGroups(t).run(t, c.args...); r.code != c.code || !strings.Contains(r.err, c.want) || r.out != "" {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}

// TestGroupWithMembers: it is not moved and not deleted under them, but the dry run works.
func TestGroupWithMembers(t *testing.T) {
	f := newFakeGroups(t)
	f.busy = true
	seek := []string{"seek", "g", "--topic", "t", "--to", "latest"}
	for _, args := range [][]string{seek, {"delete", "g"}} {
		if r := f.run(t, args...); r.code != exitFailure || !strings.Contains(r.err, "CONFLICT: the group has 2 live members: stop them first") || !strings.Contains(r.err, "forebay groups describe g shows them") || r.out != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := f.run(t, append(seek, "--dry-run")...); r.code != exitOK {
		t.Errorf("%+v", r)
	}
}

// TestGroupChangeOfUnknownOutcome is case K1: what may have taken effect is not called a failure without a word.
func TestGroupChangeOfUnknownOutcome(t *testing.T) {
	f := newFakeGroups(t)
	f.lost = true
	for _, args := range [][]string{{"seek", "g", "--topic", "t", "--to", "latest"}, {"delete", "g"}} {
		if r := f.run(t, args...); r.code != exitFailure || !strings.Contains(r.err, "not known whether that took effect: forebay groups describe g") || r.out != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
