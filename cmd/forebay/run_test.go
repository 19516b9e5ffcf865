package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// asForebay is the variable that makes this binary the command itself, for tests that need a process to kill.
const asForebay = "RUN_AS_FOREBAY"

func TestMain(m *testing.M) {
	if os.Getenv(asForebay) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

type result struct {
	code     int
	out, err string
}

// forebay runs one command line as a process would, with nothing of this process's environment.
func forebay(t *testing.T, environ []string, stdin string, args ...string) result {
	t.Helper()
	return forebayIn(t, t.Context(), environ, strings.NewReader(stdin), args...)
}

func forebayIn(t *testing.T, ctx context.Context, environ []string, stdin io.Reader, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(ctx, args, stdio{in: stdin, out: &out, err: &errs, environ: environ})
	return result{code, out.String(), errs.String()}
}

func TestUsageErrorsExitWith2(t *testing.T) {
	token := filepath.Join(t.TempDir(), "absent")
	cases := []struct {
		name    string
		environ []string
		args    []string
		want    string
	}{
		{"unknown command", nil, []string{"frobnicate"}, "frobnicate"},
		{"unknown flag", nil, []string{"version", "--nope"}, "--nope"},
		{"missing argument", nil, []string{"topics", "get"}, "topic"},
		{"missing required flag", nil, []string{"serve"}, "--object-store"},
		{"unknown variable", []string{"FOREBAY_LISTN=x"}, []string{"version"}, "FOREBAY_LISTN, did you mean FOREBAY_LISTEN?"},
		{"bad value in a variable", []string{"FOREBAY_LINGER=soon"}, []string{"config", "dev"}, "soon"},
		{"config file that is not there", nil, []string{"--config", token, "version"}, "no such file"},
		{"config file of the environment that is not there", []string{"FOREBAY_CONFIG=" + token}, []string{"version"}, "no such file"},
		{"bad server address", nil, []string{"topics", "list", "--server", "nowhere", "--token", "x"}, "nowhere"},
		{"bad offset", nil, []string{"read", "t", "--from", "-3"}, "--from"},
		{"bad time", nil, []string{"read", "t", "--timestamp", "yesterday"}, "RFC 3339"},
		{"offset without partition", nil, []string{"tail", "t", "--from", "3"}, "--partition"},
		{"key twice", nil, []string{"publish", "t", "1", "--key", "k", "--key-field", "f"}, "exclude"},
		{"resume of arguments", nil, []string{"publish", "t", "1", "--producer-id", "p"}, "--producer-id"},
		{"values and a file", nil, []string{"publish", "t", "1", "--file", "f"}, "not both"},
		{"header without a value", nil, []string{"publish", "t", "1", "--header", "a"}, "NAME=VALUE"},
		{"bad tenant", nil, []string{"token", "--tenant", "__x", "--subject", "s"}, "__x"},
		{"unknown scope", nil, []string{"token", "--tenant", "t", "--subject", "s", "--scope", "read consume"}, `no scope "consume"; there are publish, read, admin, platform`},
		{"bench without time", nil, []string{"bench", "publish", "--duration", "0s"}, "duration"},
		{"bad cluster", nil, []string{"etcd", "--name", "a", "--data", "d", "--initial-cluster", "b"}, "NAME=IP:PORT"},
		{"no keys", nil, []string{"serve", "--object-store", "mem:", "--etcd", "127.0.0.1:1"}, "jwt-key"},
		{"compactor without a store", nil, []string{"compact", "--etcd", "127.0.0.1:1"}, "--object-store"},
		{"no grace", nil, []string{"compact", "--object-store", "mem:", "--etcd", "127.0.0.1:1", "--gc-grace", "0s"}, "--gc-grace"},
		{"no worker", nil, []string{"serve", "--object-store", "mem:", "--etcd", "127.0.0.1:1", "--compact-workers", "0"}, "--compact-workers"},
		{"report of half a fabric", nil, []string{"storage", "report", "--object-store", "mem:"}, "--etcd"},
		{"report from nowhere", nil, []string{"storage", "report", "--ops", "nowhere"}, "--ops"},
		{"negative price", nil, []string{"storage", "report", "--price-gb-month=-1"}, "prices"},
		{"redis that is no URL", nil, []string{"serve", "--object-store", "mem:", "--etcd", "127.0.0.1:1", "--redis", "localhost"}, "redis:"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := forebay(t, c.environ, "", c.args...)
			if r.code != exitUsage || !strings.Contains(r.err, c.want) || r.out != "" {
				t.Errorf("status %d, stdout %q, stderr %q; want 2 and %q", r.code, r.out, r.err, c.want)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"serve", "--help"}} {
		if r := forebay(t, nil, "", args...); r.code != exitOK || !strings.Contains(r.out, "Usage: forebay") || r.err != "" {
			t.Errorf("%v: status %d, stdout %q, stderr %q", args, r.code, r.out, r.err)
		}
	}
	if r := forebay(t, nil, "", "serve", "--help"); !strings.Contains(r.out, "$FOREBAY_OBJECT_STORE") || strings.Contains(r.out, "store-faults") {
		t.Errorf("help of serve: %s", r.out)
	}
	r := forebay(t, nil, "", "version", "--output", "json")
	var v map[string]string
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v["version"] == "" || r.code != exitOK {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestConfigShowsSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(file, []byte("linger: 7ms\ncache-bytes: 1GiB\netcd: [a:1, b:2]\nobject-store: 'mem:'\nredis: redis://:hush@h:1\nserver: http://other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"FOREBAY_CACHE_BYTES=2GiB", "FOREBAY_LISTEN=env:1", "FOREBAY_ETCD_PASSWORD=hush"}
	r := forebay(t, environ, "", "config", "serve", "--config", file, "--listen", "flag:1", "--output", "json")
	if r.code != exitOK || strings.Contains(r.out, "hush") {
		t.Fatalf("%+v", r)
	}
	var got struct {
		Settings []struct {
			Name, Env, Source string
			Value             any
		}
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, s := range got.Settings {
		seen[s.Name] = fmt.Sprint(s.Value, " ", s.Source, " ", s.Env)
	}
	for name, want := range map[string]string{
		"listen":        "flag:1 flag FOREBAY_LISTEN",
		"cache-bytes":   "2GiB environment FOREBAY_CACHE_BYTES",
		"linger":        "7ms file FOREBAY_LINGER",
		"segment-bytes": "8MiB default FOREBAY_SEGMENT_BYTES",
		"etcd":          "[a:1 b:2] file FOREBAY_ETCD",
		"etcd-password": "(redacted) environment FOREBAY_ETCD_PASSWORD",
		"redis":         "redis://(redacted)@h:1 file FOREBAY_REDIS",
		"log-level":     "INFO default FOREBAY_LOG_LEVEL",
	} {
		if seen[name] != want {
			t.Errorf("%s: %q, want %q", name, seen[name], want)
		}
	}
	if text := forebay(t, environ, "", "config", "serve", "--config", file); text.code != exitOK || !strings.Contains(text.out, "a:1,b:2") {
		t.Errorf("%+v", text)
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	one := forebay(t, nil, "", "token", "--tenant", "acme", "--subject", "me", "--data", dir)
	if one.code != exitOK || strings.Count(strings.TrimSpace(one.out), ".") != 2 {
		t.Fatalf("%+v", one)
	}
	info, err := os.Stat(filepath.Join(dir, "dev.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestFailureIsOnStderrAndInTheStatus is case K1.
func TestFailureIsOnStderrAndInTheStatus(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"name":"t","partitions":1}`)
			return
		}
		w.WriteHeader(504)
		_, _ = io.WriteString(w, `{"code":"OUTCOME_UNKNOWN","status":504,"detail":"no idea","requestId":"r-9"}`)
	}))
	defer s.Close()
	r := forebay(t, nil, "", "publish", "t", "1", "--server", s.URL, "--token", "x", "--output", "json")
	if r.code != exitFailure || !strings.Contains(r.err, "r-9") || !strings.Contains(r.err, "not known") {
		t.Errorf("%+v", r)
	}
	var sum publishSummary
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil || sum.Acked != 0 || sum.Error == "" {
		t.Errorf("%s, %v", r.out, err)
	}
	s.Close()
	if r := forebay(t, nil, "", "topics", "list", "--server", s.URL, "--token", "x", "--retry-for", "0s"); r.code != exitFailure || r.out == "" && r.err == "" {
		t.Errorf("a server that is away: %+v", r)
	}
}

func TestTokenStaysOnThisMachine(t *testing.T) {
	for server, here := range map[string]bool{
		"http://127.0.0.1:8080": true, "http://localhost:1": true, "http://[::1]:1": true,
		"http://example.com": false, "http://127.0.0.1.example.com": false, "http://10.0.0.1": false, "::": false,
	} {
		if onThisMachine(server) != here {
			t.Errorf("%s", server)
		}
	}
}

func TestSegmentDumpRefusesWhatIsNone(t *testing.T) {
	r := forebay(t, nil, "not a segment", "segment", "dump", "-")
	if r.code != exitFailure || !strings.Contains(r.err, "corrupt segment") {
		t.Errorf("%+v", r)
	}
}
