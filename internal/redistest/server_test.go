package redistest

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func get(t *testing.T, s *Server, key string) any {
	t.Helper()
	return s.Must("GET", key)
}

func TestKillAndRestartEmpty(t *testing.T) {
	s := Start(t)
	s.Must("SET", "k", "v")
	if v := get(t, s, "k"); v != "v" {
		t.Fatalf("got %v", v)
	}
	s.Kill()
	if _, err := s.Do("PING"); err == nil {
		t.Fatal("a killed server answers")
	}
	addr := s.Addr()
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("address %s, was %s", s.Addr(), addr)
	}
	if v := get(t, s, "k"); v != nil {
		t.Errorf("after a restart: %v, want nothing", v)
	}
}

func TestPersistSurvivesKill(t *testing.T) {
	s := Start(t, Persist())
	s.Must("SET", "k", "v")
	s.Restart()
	if v := get(t, s, "k"); v != "v" {
		t.Errorf("after a restart: %v", v)
	}
}

func TestPauseHoldsAnswersBack(t *testing.T) {
	s := Start(t)
	s.Pause()
	if v, err := call(s.Addr(), "", 50*time.Millisecond, "PING"); err == nil {
		t.Errorf("a paused server answers %v", v)
	} else if ne := net.Error(nil); !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("got %v, want a timeout", err)
	}
	s.Resume()
	if v := s.Must("PING"); v != "PONG" {
		t.Errorf("got %v", v)
	}
}

func TestFailoverLosesTheLastWrites(t *testing.T) {
	s := Start(t, Password("secret word"))
	if !strings.HasPrefix(s.URL(), "redis://:secret%20word@127.0.0.1:") {
		t.Errorf("URL %s", s.URL())
	}
	s.Must("SET", "old", "1")
	r := s.Replica(t)
	if v := get(t, r, "old"); v != "1" {
		t.Fatalf("replica has %v", v)
	}
	if _, err := r.Do("SET", "x", "y"); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("write to a replica: %v", err)
	}
	s.Must("SET", "replicated", "1")
	r.InSync()
	r.Detach()
	s.Must("SET", "lost", "1")
	s.Kill()
	r.Must("SET", "new", "1")
	for key, want := range map[string]any{"old": "1", "replicated": "1", "lost": nil, "new": "1"} {
		if v := get(t, r, key); v != want {
			t.Errorf("%s = %v, want %v", key, v, want)
		}
	}
	s.Restart()
	s.Demote(r)
	if v := get(t, s, "new"); v != "1" {
		t.Errorf("demoted server has %v", v)
	}
}

func TestRollback(t *testing.T) {
	s := Start(t)
	s.Must("SET", "k", "1")
	snapshot := s.Snapshot()
	s.Must("SET", "k", "2")
	s.Rollback(snapshot)
	if v := get(t, s, "k"); v != "1" {
		t.Errorf("rolled back to %v", v)
	}
	s.Restart()
	if v := get(t, s, "k"); v != nil {
		t.Errorf("restarted with %v", v)
	}
}

func TestFlush(t *testing.T) {
	s := Start(t)
	s.Must("SET", "k", "1")
	sha, _ := s.Must("SCRIPT", "LOAD", "return 7").(string)
	s.Flush()
	if v := get(t, s, "k"); v != nil {
		t.Errorf("flushed: %v", v)
	}
	if v := s.Must("EVALSHA", sha, "0"); v != int64(7) {
		t.Errorf("script: %v", v)
	}
	s.FlushScripts()
	if _, err := s.Do("EVALSHA", sha, "0"); err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		t.Errorf("flushed script: %v", err)
	}
	if v, ok := s.Must("CONFIG", "GET", "maxmemory").([]any); !ok || len(v) != 2 || v[0] != "maxmemory" {
		t.Errorf("CONFIG GET: %v", v)
	}
}
