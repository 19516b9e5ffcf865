package faults

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/forebaymq/forebay/objectstore"
)

// Kind is what a rule does to a call, besides delaying it.
type Kind string

// The kinds. Their text is that of `error=` in a rule.
const (
	None         Kind = ""
	Unavailable  Kind = "unavailable" // ErrUnavailable, before any effect. Also written 500
	Throttled    Kind = "throttled"   // ErrThrottled, before any effect. Also written 503 or 429
	Conflict     Kind = "409"         // writes: ErrConflict, before any effect
	Precondition Kind = "412"         // put: ErrExists, put_match: ErrPreconditionFailed, without looking
	NotFound     Kind = "404"         // reads, stat, put_match: ErrNotFound, without looking
	Truncated    Kind = "truncated"   // reads: ErrTruncated, as a driver reports an answer cut short
	Lost         Kind = "lost"        // writes, delete: done, but the answer is lost: OutcomeUnknownError
	Unknown      Kind = "unknown"     // writes, delete: OutcomeUnknownError without an effect
	Late         Kind = "late"        // put, put_match: OutcomeUnknownError at once, the effect comes after Rule.LateBy
)

func reads() []objectstore.Op {
	return []objectstore.Op{objectstore.OpGet, objectstore.OpGetRange, objectstore.OpGetTail}
}

// allowedOps says which operations a kind can befall.
func allowedOps(k Kind) []objectstore.Op {
	switch k {
	case Conflict, Precondition, Late:
		return []objectstore.Op{objectstore.OpPut, objectstore.OpPutMatch}
	case Lost, Unknown:
		return []objectstore.Op{objectstore.OpPut, objectstore.OpPutMatch, objectstore.OpDelete}
	case NotFound:
		return append(reads(), objectstore.OpStat, objectstore.OpPutMatch)
	case Truncated:
		return reads()
	case None, Unavailable, Throttled:
		return objectstore.Ops()
	}
	return nil
}

// Rule is one fault.
type Rule struct {
	// Ops are the operations it matches. Empty: all.
	Ops []objectstore.Op
	// Prefix is what the key starts with. For List it is the prefix listed; a Delete matches if one of its keys does, and only those
	// keys fail.
	Prefix string

	// Skip leaves the first matching calls alone.
	Skip int
	// Every acts on each nth of the calls that follow (3: the third, the sixth, ...). 0 and 1: each.
	Every int
	// Probability acts on a call that is due by Skip and Every with this chance, in (0,1]. 0: always.
	Probability float64
	// Count ends the rule after it has acted so often. 0: never.
	Count int

	// Latency delays the call: a write before its effect, a read after it.
	Latency Latency
	// Error is the failure. None: no failure.
	Error Kind
	// LateBy is when the effect of a Late write comes, counted from its answer.
	LateBy time.Duration
	// Truncate cuts what is read to Keep of its length and reports success: what a broken proxy does.
	Truncate bool
	// Keep is in [0,1).
	Keep float64
}

// Validate reports every fault of a rule.
func (r Rule) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	ops := r.Ops
	if len(ops) == 0 {
		ops = objectstore.Ops()
	}
	for _, op := range ops {
		if !slices.Contains(objectstore.Ops(), op) {
			bad("Ops: unknown operation %q", op)
			continue
		}
		if allowed := allowedOps(r.Error); !slices.Contains(allowed, op) && allowed != nil {
			bad("Error: %s cannot befall %s, only %v", r.Error, op, allowed)
		}
		if r.Truncate && !slices.Contains(reads(), op) {
			bad("Truncate: cannot befall %s, only reads", op)
		}
	}
	if allowedOps(r.Error) == nil {
		bad("Error: unknown kind %q", r.Error)
	}
	if r.Skip < 0 || r.Every < 0 || r.Count < 0 {
		bad("Skip, Every, Count: %d, %d, %d, want none below 0", r.Skip, r.Every, r.Count)
	}
	if !(r.Probability >= 0 && r.Probability <= 1) {
		bad("Probability: %v, want 0 to 1", r.Probability)
	}
	if !(r.Keep >= 0 && r.Keep < 1) || r.Keep != 0 && !r.Truncate {
		bad("Keep: %v, want from 0 to below 1, with Truncate", r.Keep)
	}
	if r.Truncate && r.Error != None {
		bad("Truncate and Error: want one of them")
	}
	if (r.LateBy > 0) != (r.Error == Late) {
		bad("LateBy: %v, want a positive duration with Late, and none without", r.LateBy)
	}
	if err := r.Latency.Validate(); err != nil {
		errs = append(errs, err)
	}
	if r.Error == None && !r.Truncate && r.Latency == (Latency{}) {
		bad("the rule does nothing: want Latency, Error or Truncate")
	}
	return errors.Join(errs...)
}

// matches says whether a call is the rule's business.
func (r Rule) matches(op objectstore.Op, keys []string) bool {
	if len(r.Ops) > 0 && !slices.Contains(r.Ops, op) {
		return false
	}
	return r.Prefix == "" || slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, r.Prefix) })
}

// Latency is a distribution of delays: Base, plus a lognormal draw (if P50 is set), plus PerMiB for each MiB of body.
type Latency struct {
	Base     time.Duration
	P50, P99 time.Duration // of the lognormal part
	PerMiB   time.Duration
}

// Validate reports what is wrong.
func (l Latency) Validate() error {
	if l.Base < 0 || l.PerMiB < 0 || l.P50 < 0 || l.P99 < l.P50 || (l.P50 == 0) != (l.P99 == 0) {
		return fmt.Errorf("Latency: %+v, want no negative part, and 0 < P50 <= P99 or neither", l)
	}
	return nil
}

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

// maxDelay bounds a draw, so that the far tail of a wide distribution does not overflow.
const maxDelay = time.Hour

// Sample draws a delay for a body of size bytes.
func (l Latency) Sample(r *rand.Rand, size int64) time.Duration {
	d := float64(l.Base) + float64(l.PerMiB)*float64(size)/(1<<20)
	if l.P50 > 0 {
		d += float64(l.P50) * math.Exp(math.Log(float64(l.P99)/float64(l.P50))/z99*r.NormFloat64())
	}
	return time.Duration(min(d, float64(maxDelay)))
}

// S3Like gives rules with the delays of a typical S3 bucket in the same region: PUT of 4 MiB p50 80 ms and p99 300 ms; GET of 1 MiB p50
// 30 ms and p99 120 ms; lists, deletes and stats like a small GET.
func S3Like() []Rule {
	return []Rule{
		{Ops: []objectstore.Op{objectstore.OpPut, objectstore.OpPutMatch},
			Latency: Latency{P50: 50 * time.Millisecond, P99: 270 * time.Millisecond, PerMiB: 7500 * time.Microsecond}},
		{Ops: reads(), Latency: Latency{P50: 25 * time.Millisecond, P99: 115 * time.Millisecond, PerMiB: 5 * time.Millisecond}},
		{Ops: []objectstore.Op{objectstore.OpDelete, objectstore.OpList, objectstore.OpStat},
			Latency: Latency{P50: 25 * time.Millisecond, P99: 115 * time.Millisecond}},
	}
}
