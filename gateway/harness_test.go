package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/gateway/auth"
)

// node is a running Server over a fabric in memory, with a client.
type node struct {
	*Server
	t   *testing.T
	f   *fabric
	q   *queues
	g   *groupsFake
	hc  *http.Client
	log *logBuffer
}

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testOptions serves f on free ports of loopback.
func testOptions(f *fabric, log io.Writer) Options {
	return Options{
		Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Authenticator: fakeTokens{}, Authorizer: auth.TenantAuthorizer{},
		Appender: f, Reader: f, Topics: f, Producers: f, Health: f, Region: "eu",
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// start runs a node until the end of the test.
func start(t *testing.T, change func(*Options)) *node {
	t.Helper()
	n := &node{t: t, f: newFabric(), log: &logBuffer{}}
	o := testOptions(n.f, n.log)
	n.q = newQueues(n.f)
	n.g = newGroupsFake(n.f)
	o.Queues, o.Groups = n.q, n.g
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	n.Server = s
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 16}
	n.hc = &http.Client{Transport: tr}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return n
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// call sends a request. Options change it before it is sent.
func (n *node) call(method, path, body string, opts ...func(*http.Request)) *answer {
	n.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(n.t.Context(), method, "http://"+n.Addr()+path, r)
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tenantA)
	for _, o := range opts {
		o(req)
	}
	return n.send(req)
}

func (n *node) send(req *http.Request) *answer {
	n.t.Helper()
	res, err := n.hc.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return &answer{n.t, res.StatusCode, res.Header, b}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) {
		if value == "" {
			r.Header.Del(name)
			return
		}
		r.Header.Set(name, value)
	}
}

func token(v string) func(*http.Request) { return header("Authorization", "Bearer "+v) }

// ok fails the test unless the status is as given, and decodes the body.
func (a *answer) ok(status int, into any) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal(a.body, into); err != nil {
			a.t.Fatalf("decode %s: %v", a.body, err)
		}
	}
	return a
}

// problem is a decoded problem document.
type problem struct {
	Type, Title, Code, Detail, RequestID string
	Status                               int
	LogStart, Head                       *int64
	Errors                               []struct{ Pointer, Detail string }
}

// problem fails the test unless the answer is the problem document of a code, whole.
func (a *answer) problem(status int, code string) problem {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d %s: %s", a.status, status, code, a.body)
	}
	var p problem
	if err := json.Unmarshal(a.body, &p); err != nil {
		a.t.Fatalf("decode %s: %v", a.body, err)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		a.t.Errorf("Content-Type %q", ct)
	}
	if p.Code != code || p.Status != status || p.Title == "" || p.Type == "" || p.Detail == "" {
		a.t.Fatalf("problem %s, want code %s", a.body, code)
	}
	if p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		a.t.Errorf("requestId %q, header %q", p.RequestID, a.header.Get("X-Request-Id"))
	}
	if after := a.header.Get("Retry-After"); (after != "") != (status == 429 || status == 503) {
		a.t.Errorf("Retry-After %q with status %d", after, status)
	}
	return p
}
