package redistest

import (
	"strconv"
	"testing"
	"time"
)

// syncTimeout is how long a replica may take to have what its primary has.
const syncTimeout = 20 * time.Second

// Replica starts a replica of s, with the same password, and returns when it has everything that s has.
func (s *Server) Replica(t testing.TB, opts ...Option) *Server {
	t.Helper()
	r := start(t, s, append([]Option{Password(s.o.password)}, opts...))
	r.InSync()
	return r
}

// InSync returns when the replica has everything that its primary had at the time of the call.
func (s *Server) InSync() {
	s.t.Helper()
	if s.master == nil {
		s.t.Fatal("redistest: InSync is for replicas")
	}
	tick, late := time.NewTicker(pollEvery), time.NewTimer(syncTimeout)
	defer tick.Stop()
	defer late.Stop()
	want := int64(-1)
	for {
		if want < 0 {
			if info, err := s.master.Info("replication"); err == nil {
				want = number(info["master_repl_offset"])
			}
		}
		info, err := s.Info("replication")
		if err == nil && want >= 0 && info["master_link_status"] == "up" && number(info["slave_repl_offset"]) >= want {
			return
		}
		select {
		case <-late.C:
			s.t.Fatalf("replica not in sync within %s: %v %v", syncTimeout, info, err)
		case <-tick.C:
		}
	}
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// Detach ends replication and leaves s as it is: what its primary gets from now on is missing here. s is a primary of its own then; that
// is Promote, before the last writes.
func (s *Server) Detach() { s.t.Helper(); s.Promote() }

// Promote makes a replica a primary (REPLICAOF NO ONE).
func (s *Server) Promote() {
	s.t.Helper()
	s.Must("REPLICAOF", "NO", "ONE")
	s.master = nil
}

// Demote makes s a replica of another server while its connections stay open: writes on them fail with READONLY, and its own contents are
// replaced. It returns when s has what the other has.
func (s *Server) Demote(to *Server) {
	s.t.Helper()
	s.Must("REPLICAOF", "127.0.0.1", strconv.Itoa(to.port))
	s.master = to
	s.InSync()
}
