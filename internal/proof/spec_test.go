package proof

import (
	"fmt"
	"hash/fnv"

	"github.com/anishathalye/porcupine"
)

// Op is what a client asked of one partition.
type Op struct {
	Partition int
	Append    string // the record's unique text; "" = a read
}

// Seen is what the client was answered.
type Seen struct {
	Offset int64    // append: the acknowledged offset, or where the final read found it; -1: acknowledged without a usable offset
	Known  bool     // append: acknowledged (the offset is part of the promise)
	From   int64    // read: offset of the first record in Texts
	Texts  []string // read: every record from From to Head
	Head   int64    // read
}

// log is one state of a partition: an immutable list, newest record first.
type log struct {
	prev *log
	text string
	n    int64  // records, so also the head
	hash uint64 // over all texts in order
}

var empty = &log{}

func (l *log) push(text string) *log {
	h := fnv.New64a()
	fmt.Fprintf(h, "%x\x00%s", l.hash, text)
	return &log{prev: l, text: text, n: l.n + 1, hash: h.Sum64()}
}

// Model is the sequential specification of a partition: an append takes the next offset; a read shows everything before it. Histories are
// split by partition, since partitions promise nothing to one another.
func Model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			by := map[int][]porcupine.Operation{}
			most := -1
			for _, o := range history {
				p := o.Input.(Op).Partition
				by[p] = append(by[p], o)
				most = max(most, p)
			}
			var parts [][]porcupine.Operation
			for p := 0; p <= most; p++ {
				if len(by[p]) > 0 {
					parts = append(parts, by[p])
				}
			}
			return parts
		},
		Init: func() any { return empty },
		Step: func(state, input, output any) (bool, any) {
			l, in, out := state.(*log), input.(Op), output.(Seen)
			if in.Append != "" {
				if out.Offset != l.n {
					return false, state
				}
				return true, l.push(in.Append)
			}
			if out.Head != l.n || out.From+int64(len(out.Texts)) != l.n {
				return false, state
			}
			for at, i := l, len(out.Texts)-1; i >= 0; at, i = at.prev, i-1 {
				if at.text != out.Texts[i] {
					return false, state
				}
			}
			return true, state
		},
		Equal: func(a, b any) bool { x, y := a.(*log), b.(*log); return x.n == y.n && x.hash == y.hash },
		Hash:  func(s any) uint64 { return s.(*log).hash },
		DescribeOperation: func(input, output any) string {
			in, out := input.(Op), output.(Seen)
			if in.Append != "" {
				return fmt.Sprintf("append(%s) -> %d", in.Append, out.Offset)
			}
			return fmt.Sprintf("read(%d..) -> %d records, head %d", out.From, len(out.Texts), out.Head)
		},
		DescribeState: func(s any) string { return fmt.Sprintf("head %d", s.(*log).n) },
	}
}
