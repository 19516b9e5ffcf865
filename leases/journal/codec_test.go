package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew: only for a new version of the format")

// golden are a record of each kind, with what must be decoded from it for ever.
type golden struct {
	name  string
	key   key
	state *state
	mark  *mark
	task  *Task
}

func goldens() []golden {
	shard := key{subscription: 0x0102030405060708, partition: 0x0a0b0c0d}
	with := func(k keyKind, change func(*key)) key {
		c := shard
		c.kind = k
		if change != nil {
			change(&c)
		}
		return c
	}
	some := []Range{{301, 302}, {310, 1_000_310}}
	return []golden{
		{name: "seek", key: with(kindSeek, nil), state: &state{frontier: 77}},
		{name: "opening", key: with(kindOpening, func(k *key) { k.incarnation, k.writer = 5, math.MaxUint64 }), state: &state{frontier: 300, skipped: 12, settled: some}},
		{name: "state", key: with(kindState, func(k *key) { k.incarnation, k.writer = 1<<40, 1 }), state: &state{sequence: math.MaxInt64, frontier: 300, settled: some}},
		{name: "pointer-retry", key: with(kindPointer, func(k *key) { k.offset, k.incarnation, k.writer = 1<<53, 9, 2 }), mark: &mark{pointer: Pointer{Kind: Retry, Attempts: 3,
			FirstFailed: 1_700_000_000_001, LastFailed: 1_700_000_000_002, Due: 1_700_000_000_003, Reason: "502 Bad Gateway: ✗", KeyHash: 0xfedcba9876543210, Version: Version{Sequence: 4}}}},
		{name: "pointer-dead", key: with(kindPointer, func(k *key) { k.incarnation, k.writer = 9, 2 }), mark: &mark{pointer: Pointer{Kind: Dead, Attempts: math.MaxInt32, CopyPending: true, Copied: true, Expired: true}}},
		{name: "pointer-scheduled", key: with(kindPointer, func(k *key) { k.incarnation, k.writer = 9, 2 }), mark: &mark{pointer: Pointer{Kind: Scheduled, Due: 5}}},
		{name: "pointer-removed", key: with(kindPointer, func(k *key) { k.incarnation, k.writer = 9, 2 }), mark: &mark{removed: true, pointer: Pointer{Version: Version{Sequence: 400}}}},
		{name: "pointer-relative", key: with(kindPointer, func(k *key) { k.writer = 2 }), mark: &mark{relative: 130, pointer: Pointer{Kind: Dead}}},
		{name: "task", key: key{kind: kindTask, subscription: 7, task: "01J!cancel"}, task: &Task{ID: "01J!cancel", Subscription: 7, State: "running", All: true,
			Offsets: []Target{{Partition: 3, Offset: 1 << 33}, {}}, Rate: 1000, Total: 2, Done: 1, Created: 1_700_000_000_000, Updated: 1_700_000_000_500}},
	}
}

func (g *golden) encode(t testing.TB) (k, v []byte) {
	t.Helper()
	switch {
	case g.state != nil:
		v = g.state.encode()
	case g.mark != nil:
		v = g.mark.encode()
	default:
		var err error
		if v, err = encodeTask(g.task); err != nil {
			t.Fatal(err)
		}
	}
	return g.key.encode(), v
}

func TestGoldenRecords(t *testing.T) {
	for _, g := range goldens() {
		path := filepath.Join("testdata", "v1-"+g.name+".hex")
		k, v := g.encode(t)
		if *rewrite {
			if err := os.WriteFile(path, []byte(hex.EncodeToString(k)+"\n"+hex.EncodeToString(v)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(string(file))
		if len(lines) != 2 {
			t.Fatalf("%s: %d lines", path, len(lines))
		}
		wantKey, err := hex.DecodeString(lines[0])
		if err != nil {
			t.Fatal(err)
		}
		wantValue, err := hex.DecodeString(lines[1])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(k, wantKey) || !bytes.Equal(v, wantValue) {
			t.Errorf("%s: encoded\n%x\n%x, the file has\n%x\n%x", g.name, k, v, wantKey, wantValue)
		}
		gotKey, err := decodeKey(wantKey)
		if err != nil || gotKey != g.key {
			t.Errorf("%s: key %+v, %v, want %+v", g.name, gotKey, err, g.key)
		}
		opts := cmp.AllowUnexported(state{}, mark{})
		switch {
		case g.state != nil:
			got, err := decodeState(wantValue)
			if diff := cmp.Diff(*g.state, got, opts); err != nil || diff != "" {
				t.Errorf("%s: %v %s", g.name, err, diff)
			}
		case g.mark != nil:
			got, err := decodeMark(wantValue)
			if diff := cmp.Diff(*g.mark, got, opts); err != nil || diff != "" {
				t.Errorf("%s: %v %s", g.name, err, diff)
			}
		default:
			got, err := decodeTask(g.key.task, g.key.subscription, wantValue)
			if diff := cmp.Diff(*g.task, got); err != nil || diff != "" {
				t.Errorf("%s: %v %s", g.name, err, diff)
			}
		}
	}
}

func TestBadValues(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty":                 {},
		"version":               {2, 0, 0, 0, 0},
		"short":                 {1, 0, 0, 0},
		"long":                  {1, 0, 0, 0, 0, 0},
		"number above 2^63":     {1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0, 0, 0},
		"number of 11 bytes":    {1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0, 0, 0},
		"more ranges than room": {1, 0, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1},
		"adjacent range":        {1, 0, 0, 0, 2, 1, 1, 0, 1},
		"range at the frontier": {1, 0, 0, 0, 1, 0, 1},
		"empty range":           {1, 0, 0, 0, 1, 1, 0},
		"range beyond 2^63":     {1, 0, 0, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
	} {
		if s, err := decodeState(b); !errors.Is(err, errFormat) {
			t.Errorf("state, %s: %+v, %v", name, s, err)
		}
	}
	good := (&mark{pointer: Pointer{Kind: Dead, Reason: "x"}}).encode()
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"version":            change(0, 9),
		"unknown flag":       change(1, 64),
		"relative by 0":      change(1, flagRelative),
		"unknown kind":       change(3, 4),
		"short":              good[:len(good)-1],
		"long":               append(bytes.Clone(good), 0),
		"end with more":      {1, flagRemoved, 0, 1},
		"end with a flag":    {1, flagRemoved | flagExpired, 0},
		"reason beyond room": change(len(good)-2, 2),
		"too many attempts":  {1, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		if m, err := decodeMark(b); !errors.Is(err, errFormat) {
			t.Errorf("pointer, %s: %+v, %v", name, m, err)
		}
	}
	for name, b := range map[string][]byte{
		"version":        {0, 0, 0, 0, 0, 0, 0, 0, 0},
		"flags":          {1, 2, 0, 0, 0, 0, 0, 0, 0},
		"short":          {1, 0, 0, 0, 0, 0, 0, 0},
		"long":           {1, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"too many named": {1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 3, 0, 0},
	} {
		if v, err := decodeTask("t", 1, b); !errors.Is(err, errFormat) {
			t.Errorf("task, %s: %+v, %v", name, v, err)
		}
	}
	state := (&key{kind: kindState, incarnation: 1}).encode()
	for name, b := range map[string][]byte{
		"empty": {}, "version": append([]byte{2}, state[1:]...), "kind": append([]byte{1, 'x'}, state[2:]...), "short": state[:29], "long": append(bytes.Clone(state), 0),
		"no incarnation": (&key{kind: kindState}).encode(), "no task": (&key{kind: kindTask}).encode(), "long task": (&key{kind: kindTask, task: strings.Repeat("x", 257)}).encode(),
		"negative partition": append(append([]byte{1, 'R'}, make([]byte, 8)...), 0xff, 0xff, 0xff, 0xff),
	} {
		if k, err := decodeKey(b); !errors.Is(err, errFormat) {
			t.Errorf("key, %s: %+v, %v", name, k, err)
		}
	}
}

// FuzzDecode: whatever can be decoded is encoded to something that decodes to the same.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens() {
		k, v := g.encode(f)
		f.Add(k, v)
		for i := range v {
			f.Add(k, v[:i])
			flipped := bytes.Clone(v)
			flipped[i] ^= 1 << (i % 8)
			f.Add(k, flipped)
		}
		for i := range k {
			f.Add(k[:i], v)
			flipped := bytes.Clone(k)
			flipped[i] ^= 1 << (i % 8)
			f.Add(flipped, v)
		}
	}
	opts := cmp.AllowUnexported(state{}, mark{})
	f.Fuzz(func(t *testing.T, kb, v []byte) {
		k, err := decodeKey(kb)
		if err == nil && !bytes.Equal(k.encode(), kb) {
			t.Errorf("key %x is %+v, and that is %x", kb, k, k.encode())
		}
		if s, err := decodeState(v); err == nil {
			if err := s.check(); err != nil {
				t.Errorf("decoded what must not be: %v", err)
			}
			again, err := decodeState(s.encode())
			if diff := cmp.Diff(s, again, opts); err != nil || diff != "" {
				t.Errorf("state: %v %s", err, diff)
			}
		}
		if m, err := decodeMark(v); err == nil {
			if err := m.check(); err != nil {
				t.Errorf("decoded what must not be: %v", err)
			}
			again, err := decodeMark(m.encode())
			if diff := cmp.Diff(m, again, opts); err != nil || diff != "" {
				t.Errorf("pointer: %v %s", err, diff)
			}
		}
		if task, err := decodeTask("t", 1, v); err == nil {
			b, err := encodeTask(&task)
			if err != nil {
				t.Fatal(err)
			}
			again, err := decodeTask("t", 1, b)
			if diff := cmp.Diff(task, again); err != nil || diff != "" {
				t.Errorf("task: %v %s", err, diff)
			}
		}
		// Nothing in a journal makes a load panic.
		if err == nil {
			resolve([]raw{{string(kb), 5, v}, {string(kb), 3, v}}, k.subscription).loaded()
		}
	})
}
