package bench

import (
	"fmt"
	"io"
)

// GroupsReport is what Groups measured.
type GroupsReport struct {
	Topic          string           `json:"topic"`
	Groups         int              `json:"groups"`
	Members        int              `json:"members"` // of all groups together
	Partitions     int              `json:"partitions"`
	SessionSeconds float64          `json:"sessionSeconds"`
	WantedCommits  float64          `json:"wantedCommitsPerSecond,omitempty"`
	Before         NodeMemory       `json:"memoryBefore"`
	Joined         NodeMemory       `json:"memoryJoined"` // every member has joined
	After          NodeMemory       `json:"memoryAfter"`  // after the phases
	Join           *Assembly        `json:"join"`
	Recovery       *Assembly        `json:"recovery,omitempty"` // after Redis was emptied
	Phases         []*GroupPhase    `json:"phases"`
	Verified       Offsets          `json:"verified"`
	Leave          *Dissolution     `json:"leave,omitempty"`
	Errors         map[string]int64 `json:"errors"`
}

// Assembly is how long it took until every group was stable: each partition is owned, and by whom it is to be.
type Assembly struct {
	Answered float64 `json:"answeredSeconds"` // until every member had an answer to its join
	Half     float64 `json:"halfStableSeconds"`
	Stable   float64 `json:"stableSeconds"` // all groups
	Joins    Latency `json:"joinMillis"`
	Cost     Cost    `json:"cost"`
}

// GroupPhase is one kind of load, beside heartbeats.
type GroupPhase struct {
	Name             string         `json:"name"`
	Seconds          float64        `json:"seconds"`
	HeartbeatsPerSec float64        `json:"heartbeatsPerSecond"`
	Heartbeats       Latency        `json:"heartbeatMillis"` // from when each was due
	Commits          *Commits       `json:"commits,omitempty"`
	Publish          *PublishReport `json:"publish,omitempty"`
	Cost             Cost           `json:"cost"`
}

// Commits are those of one phase.
type Commits struct {
	Loop   string           `json:"loop"` // "open" or "closed"
	Count  int64            `json:"count"`
	PerSec float64          `json:"perSecond"`
	Millis Latency          `json:"millis"`
	Errors map[string]int64 `json:"errors"`
}

// Offsets says whether the server has the offsets that it has acknowledged. It has, when Faults is empty.
type Offsets struct {
	Groups     int      `json:"groups"`     // asked for
	Partitions int      `json:"partitions"` // of those on which something was committed
	Commits    int64    `json:"commits"`    // acknowledged
	Read       Latency  `json:"readMillis"` // GET offsets, one after another
	List       Latency  `json:"listMillis"` // GET groups, a page of 1,000
	Faults     []string `json:"faults"`
}

// Dissolution is the end: every member leaves, every group is deleted.
type Dissolution struct {
	Seconds float64 `json:"seconds"`
	Leaves  Latency `json:"leaveMillis"`
	Deletes Latency `json:"deleteMillis"`
}

// Print writes the report for people.
func (r *GroupsReport) Print(w io.Writer) {
	fmt.Fprintf(w, "groups       %d groups, %d members, %d partitions of %s each, sessions of %.0f s\n", r.Groups, r.Members, r.Partitions, r.Topic, r.SessionSeconds)
	fmt.Fprintf(w, "memory       before      %s\n", r.Before)
	fmt.Fprintf(w, "             joined      %s\n", r.Joined)
	fmt.Fprintf(w, "             at the end  %s\n", r.After)
	if n := int64(r.Groups); n > 0 && r.Joined.Heap > r.Before.Heap {
		fmt.Fprintf(w, "             a group     heap %d B (connections of the clients among it), Redis %d B\n", (r.Joined.Heap-r.Before.Heap)/n, max(0, r.Joined.Redis-r.Before.Redis)/n)
	}
	r.Join.print(w, "joins")
	for _, p := range r.Phases {
		fmt.Fprintf(w, "%s\n", p.Name)
		if p.Heartbeats.Count > 0 {
			fmt.Fprintf(w, "  heartbeats %.0f/s  %s\n", p.HeartbeatsPerSec, p.Heartbeats)
		}
		if c := p.Commits; c != nil {
			fmt.Fprintf(w, "  commits    %.0f/s (%s loop)  %s\n", c.PerSec, c.Loop, c.Millis)
			if p.Cost.Appends > 0 {
				fmt.Fprintf(w, "             %.0f appends/s, %.1f commits an append\n", p.Cost.Appends, p.Cost.Committed/p.Cost.Appends)
			}
		}
		if b := p.Publish; b != nil {
			fmt.Fprintf(w, "  publishes  %.0f records/s  %.1f MB/s (%s loop)  %s\n", b.RecordsPerSec, b.MBPerSec, b.Loop, b.Ack)
		}
		fmt.Fprintf(w, "  cost       %s\n", p.Cost)
	}
	r.Recovery.print(w, "Redis lost")
	v := r.Verified
	fmt.Fprintf(w, "verified     %d commits, %d partitions of %d groups; GET offsets p50 %.1f  p99 %.1f ms; a page of the list %.1f ms\n",
		v.Commits, v.Partitions, v.Groups, v.Read.P50, v.Read.P99, v.List.P50)
	if len(v.Faults) == 0 {
		fmt.Fprintln(w, "             the server has the offsets that it has acknowledged")
	}
	for _, f := range v.Faults {
		fmt.Fprintf(w, "FAULT        %s\n", f)
	}
	if l := r.Leave; l != nil {
		fmt.Fprintf(w, "leaves       all gone in %.1f s; leave p50 %.1f  p99 %.1f, delete p50 %.1f  p99 %.1f ms\n", l.Seconds, l.Leaves.P50, l.Leaves.P99, l.Deletes.P50, l.Deletes.P99)
	}
	printErrors(w, r.Errors)
}

func (a *Assembly) print(w io.Writer, name string) {
	if a == nil {
		return
	}
	fmt.Fprintf(w, "%-12s answered in %.1f s, half of the groups stable in %.1f s, all in %.1f s\n", name, a.Answered, a.Half, a.Stable)
	if a.Joins.Count > 0 {
		fmt.Fprintf(w, "  join       %s\n", a.Joins)
	}
	fmt.Fprintf(w, "  cost       %.0f generations/s; %s\n", a.Cost.Generations, a.Cost)
}
