package proof

import (
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// History collects what concurrent clients saw.
type History struct {
	start time.Time
	mu    struct {
		sync.Mutex
		ops        []porcupine.Operation
		indefinite []porcupine.Operation
	}
}

// NewHistory starts the clock of a history.
func NewHistory() *History { return &History{start: time.Now()} }

// Now is a timestamp for the call of an operation.
func (h *History) Now() int64 { return int64(time.Since(h.start)) }

// Done records an answered operation.
func (h *History) Done(client int, call int64, in Op, out Seen) {
	end := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.ops = append(h.mu.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
}

// Indefinite records an append that may take effect at any time from its call on, or never.
func (h *History) Indefinite(client int, call int64, in Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.indefinite = append(h.mu.indefinite, porcupine.Operation{ClientId: client, Input: in, Call: call, Return: math.MaxInt64})
}

// Counts gives the number of answered and of indefinite operations.
func (h *History) Counts() (done, indefinite int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.ops), len(h.mu.indefinite)
}

// Verdict is the outcome of a check.
type Verdict struct {
	OK       bool
	Problems []string // facts that no order of operations explains, found without the search
	Result   porcupine.CheckResult
	Info     porcupine.LinearizationInfo
}

// draw writes the history as a web page that outlives the test, and says where.
func (v Verdict) draw() string {
	f, err := os.CreateTemp("", "forebay-history-*.html")
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if err := porcupine.Visualize(Model(), v.Info, f); err != nil {
		return err.Error()
	}
	return f.Name()
}

// Check decides whether the history is linearizable. final holds, by partition, every record in offset order, read after all clients had
// ended and all nodes were well.
//
// An indefinite append is both outcomes until somebody looks: if the final read shows it, it took effect between its call and the end, at
// the offset where it stands; if not, no read of this history can have seen it and it is left out. Deciding this first keeps the
// search small and loses nothing, since the final read is itself part of the history.
func (h *History) Check(final map[int][]string, timeout time.Duration) Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	var v Verdict
	where := map[string]Seen{} // text -> its place
	whereP := map[string]int{}
	for p, texts := range final {
		for i, s := range texts {
			if first, twice := where[s]; twice {
				v.Problems = append(v.Problems, fmt.Sprintf("record %s is stored twice: partition %d offset %d and partition %d offset %d", s, whereP[s], first.Offset, p, i))
			}
			where[s], whereP[s] = Seen{Offset: int64(i)}, p
		}
	}
	ops := append([]porcupine.Operation(nil), h.mu.ops...)
	for _, o := range h.mu.ops {
		in, out := o.Input.(Op), o.Output.(Seen)
		if in.Append == "" {
			continue
		}
		if at, ok := where[in.Append]; !ok {
			v.Problems = append(v.Problems, fmt.Sprintf("acknowledged record %s (partition %d offset %d) is lost", in.Append, in.Partition, out.Offset))
		} else if whereP[in.Append] != in.Partition || at.Offset != out.Offset {
			v.Problems = append(v.Problems, fmt.Sprintf("record %s was acknowledged at partition %d offset %d and stands at %d/%d", in.Append, in.Partition, out.Offset, whereP[in.Append], at.Offset))
		}
	}
	for _, o := range h.mu.indefinite {
		in := o.Input.(Op)
		if at, ok := where[in.Append]; ok {
			o.Output = at
			ops = append(ops, o)
		}
	}
	end := int64(time.Since(h.start))
	for p, texts := range final {
		ops = append(ops, porcupine.Operation{Input: Op{Partition: p}, Output: Seen{Texts: texts, Head: int64(len(texts))}, Call: end, Return: end + 1})
	}
	for i := range ops {
		if ops[i].Return == math.MaxInt64 {
			ops[i].Return = end + 2
		}
	}
	v.Result, v.Info = porcupine.CheckOperationsVerbose(Model(), ops, timeout)
	v.OK = len(v.Problems) == 0 && v.Result == porcupine.Ok
	return v
}
