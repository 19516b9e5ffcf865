package proof

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func op(call, ret int64, in Op, out Seen) porcupine.Operation {
	return porcupine.Operation{Input: in, Output: out, Call: call, Return: ret}
}

func TestModelTellsRightFromWrong(t *testing.T) {
	app := func(call, ret int64, s string, off int64) porcupine.Operation {
		return op(call, ret, Op{Append: s}, Seen{Offset: off, Known: true})
	}
	read := func(call, ret int64, texts ...string) porcupine.Operation {
		return op(call, ret, Op{}, Seen{Texts: texts, Head: int64(len(texts))})
	}
	cases := []struct {
		name string
		h    []porcupine.Operation
		ok   bool
	}{
		{"in order", []porcupine.Operation{app(0, 1, "a", 0), read(2, 3, "a"), app(4, 5, "b", 1), read(6, 7, "a", "b")}, true},
		{"concurrent appends in either order", []porcupine.Operation{app(0, 9, "a", 1), app(0, 9, "b", 0), read(10, 11, "b", "a")}, true},
		{"stale read", []porcupine.Operation{app(0, 1, "a", 0), read(2, 3)}, false},
		{"read concurrent with the append may miss it", []porcupine.Operation{app(0, 5, "a", 0), read(1, 2)}, true},
		{"one offset twice", []porcupine.Operation{app(0, 1, "a", 0), app(2, 3, "b", 0)}, false},
		{"order turned round", []porcupine.Operation{app(0, 1, "a", 0), app(2, 3, "b", 1), read(4, 5, "b", "a")}, false},
		{"seen, then gone", []porcupine.Operation{app(0, 9, "a", 0), read(1, 2, "a"), read(3, 4)}, false},
		{"partitions are apart", []porcupine.Operation{app(0, 1, "a", 0), op(2, 3, Op{Partition: 1}, Seen{})}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(Model(), c.h); got != c.ok {
				t.Errorf("linearizable = %v, want %v", got, c.ok)
			}
		})
	}
}

func TestHistoryChecksAcknowledgedAndIndefinite(t *testing.T) {
	const limit = 10 * time.Second
	h := NewHistory()
	c := h.Now()
	h.Done(0, c, Op{Append: "a"}, Seen{Offset: 0, Known: true})
	h.Indefinite(1, h.Now(), Op{Append: "b"})
	h.Indefinite(1, h.Now(), Op{Append: "c"})
	if v := h.Check(map[int][]string{0: {"a", "c"}}, limit); !v.OK {
		t.Errorf("an indefinite append that is there and one that is not are both right: %v %v", v.Result, v.Problems)
	}
	for name, final := range map[string]map[int][]string{
		"lost":         {0: {"c"}},
		"moved":        {0: {"c", "a"}},
		"stored twice": {0: {"a", "b", "b"}},
	} {
		if v := h.Check(final, limit); v.OK || len(v.Problems) == 0 {
			t.Errorf("%s: not noticed", name)
		}
	}
}
