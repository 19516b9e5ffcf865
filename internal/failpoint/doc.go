// Package failpoint names the places in the write path at which a crash test may stop the process or hold a goroutine, and the
// fences that a deliberately broken build may remove.
//
// In an ordinary build every function here is an empty, inlined no-op and nothing can be switched on. A binary or test built with
// `-tags failpoints` reads FOREBAY_FAILPOINTS, a comma-separated list of
//
//	name=kill@N    end the process with SIGKILL at the Nth hit
//	name=off       Enabled(name) answers true: the named fence is removed
//
// Names are listed here, and only here.
package failpoint

// Places at which the process may be killed, in the order in which a published record passes them.
const (
	AfterBuffer = "ingest.after-buffer" // records are in the buffer, nothing is uploaded
	BeforePut   = "ingest.before-put"   // the segment is sealed and encoded
	AfterPut    = "ingest.after-put"    // the object is durable, no commit names it
	AfterCommit = "ingest.after-commit" // committed at a quorum, not acknowledged
	BeforeAck   = "ingest.before-ack"   // the result is known, the answer is not written
)

// Places in compaction, in the order in which a job and then the collector pass them.
const (
	CompactorBeforePut     = "compactor.before-put"     // an object is built, nothing is uploaded
	CompactorAfterPut      = "compactor.after-put"      // the object is durable, no Replace names it
	CompactorBeforeReplace = "compactor.before-replace" // all objects of the groups at hand are durable
	CompactorAfterReplace  = "compactor.after-replace"  // the Replaces are committed, what they replaced is garbage
	CollectorAfterBoundary = "compactor.after-boundary" // the GC boundary is raised, nothing is deleted
	CollectorBeforeDelete  = "compactor.before-delete"  // the keys are chosen and checked
	CollectorAfterDelete   = "compactor.after-delete"   // the store has answered
)

// Fences that a broken build removes, to prove that the checkers notice.
const (
	NoLinearizableRead = "metadata.no-linearizable-read" // Sync returns at once
	NoCommitDedup      = "metadata.no-commit-dedup"      // apply forgets which segments it has applied, retries use a new key
	NoGCBoundary       = "metadata.no-gc-boundary"       // apply accepts commits older than the boundary
	NoGroupFence       = "metadata.no-group-fence"       // apply accepts old epochs of requests that are only fenced: what a group's zombies write
	NoNonceCheck       = "leases/no-nonce-check"         // an ack settles its record whoever holds the lease now
	NoKeyLock          = "leases/no-key-lock"            // a record of a key is handed out while an earlier one of the key is not settled
)
