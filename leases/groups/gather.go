package groups

import "time"

// When Redis has lost a group, its members come again one after another, each with its next heartbeat. Were each to make a generation by
// itself, then a group of ten would go through eleven, and every one of them would make those that are there already heartbeat again before they may
// commit. So a member that comes again waits for the others for a while; when all are there, nobody waits.

const (
	gatherLook  = 25 * time.Millisecond // how often it is looked who has come
	maxGather   = time.Second
	gatherShare = 10 // of the shortest session
)

// gather waits before a generation for members that are expected to come again. The caller makes the group's generations.
func (c *Coordinator) gather(g *group) {
	for waited := time.Duration(0); waited < g.expects(); waited += gatherLook {
		t := c.o.Clock.NewTimer(gatherLook)
		select {
		case <-t.Chan():
		case <-c.life.draining:
			t.Stop()
			return
		}
	}
}

// expects says how long the requests that wait may wait for members that are expected to come again, 0 = not at all: only members that have come
// again themselves wait.
func (g *group) expects() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.state == nil || len(g.mu.pending) == 0 {
		return 0
	}
	coming := map[string]bool{}
	for _, r := range g.mu.pending {
		if r.join == nil {
			return 0
		}
		if m := memberOf(g.mu.state, r.join.ID); m != nil && m.Absent {
			coming[m.ID] = true
		}
	}
	missing, session := 0, int64(0)
	for i := range g.mu.state.Members {
		if m := &g.mu.state.Members[i]; m.Absent && !coming[m.ID] {
			missing++
			if session == 0 || m.Session < session {
				session = m.Session
			}
		}
	}
	if len(coming) == 0 || missing == 0 {
		return 0
	}
	return min(time.Duration(session)*time.Millisecond/gatherShare, maxGather)
}
