// Package groups is consumer groups: members that own partitions of topics, under a generation, and commit how far they have come.
//
// # Where the state is
//
// What must survive is in the journal (package leases/journal): what the group is in its newest generation, and the committed offsets. Redis (package
// leases/store) has a copy of the generation, the sessions of the members, and how far they have polled; all that may be lost at any moment. That a group
// of a name exists is in the metadata log.
//
// # The fence
//
// A generation is the epoch of a producer of the metadata log, one a group, and everything of the group is appended to the journal under it. So the log
// itself refuses, in its order, what a generation appends that is over. Nothing else needs to be right for that: not Redis, not a clock,
// not a node's idea of who is the coordinator. There is none: any node serves any request, and makes the next generation where one is
// asked for (change.go).
//
// # The parts
//
//	assign.go     who should own what: pure
//	state.go      what events make of a group, who may own what already: pure
//	change.go     the steps of a generation
//	join.go       join, leave
//	heartbeat.go  sessions, letting go, changes of topics
//	commit.go     the door, and the append
//	describe.go   offsets, lag
//	seek.go       seek, delete
//	poll.go       reading from all that a member owns
//	sweep.go      lapsed sessions, metrics
//
// # Concurrency
//
// All methods of Coordinator are safe for concurrent use. A node makes one generation of a group at a time, and writes one batch of its offsets at a
// time; what comes meanwhile waits and is taken together.
package groups
