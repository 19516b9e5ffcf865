package segment_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/segment"
)

// golden describes the objects of testdata: what each holds is written here, and the bytes must mean that for ever.
type golden struct {
	name    string
	level   uint8
	batches []goldenBatch
}

type goldenBatch struct {
	topic     uint64
	partition int32
	sparse    bool
	producer  string
	records   []segment.Record
}

func goldens() []golden {
	wide := variety()
	for i := range wide {
		wide[i].Offset, wide[i].AppendTime = int64(i)*1000, testCreated+int64(i/2)
	}
	spans := []segment.Record{record("a", "1"), record("b", "2"), record("c", "3"), record("d", "4"), record("e", "5")}
	for i, o := range []int64{0, 1, 1 << 31, 1 << 32, math.MaxInt64} {
		spans[i].Offset, spans[i].AppendTime = o, testCreated+o/1024
	}
	var events []segment.Record
	for i := range 50 {
		events = append(events, record("user-"+string(rune('a'+i%7)), `{"event":"view","page":"/products/`+strings.Repeat("x", i%9)+`"}`))
	}
	return []golden{
		{name: "v1-dense", level: 0, batches: []goldenBatch{
			{topic: 1, partition: 0, records: variety()},
			{topic: 1, partition: 1, producer: "svc-1", records: events[:3]},
			{topic: math.MaxUint64, partition: math.MaxInt32, records: events},
		}},
		{name: "v1-sparse", level: 1, batches: []goldenBatch{
			{topic: 9, partition: 4, sparse: true, records: wide},
			{topic: 9, partition: 5, sparse: true, records: spans},
		}},
	}
}

func (g *golden) build(t testing.TB) []byte {
	var batches []*segment.Batch
	for _, b := range g.batches {
		make := dense
		if b.sparse {
			make = sparse
		}
		batch := make(b.topic, b.partition, b.records...)
		if b.producer != "" {
			batch.ProducerID, batch.ProducerEpoch, batch.Sequence = b.producer, 3, 42
		}
		batches = append(batches, batch)
	}
	object, _ := build(t, segment.WriterOptions{Level: g.level}, batches...)
	return object
}

func goldenFile(name string) string { return filepath.Join("testdata", name+".seg") }

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(goldenFile(name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The golden objects are readable, whatever the writer does today. `go test -run Golden -rewrite` writes them anew: only a new version of
// the format may need that, under a new name.
func TestGoldenFiles(t *testing.T) {
	for _, g := range goldens() {
		t.Run(g.name, func(t *testing.T) {
			if *rewrite {
				if err := os.WriteFile(goldenFile(g.name), g.build(t), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			object := readGolden(t, g.name)
			if err := segment.Verify(object); err != nil {
				t.Fatalf("verify: %v", err)
			}
			x, err := segment.OpenIndex(object, int64(len(object)))
			if err != nil {
				t.Fatal(err)
			}
			if x.ID != testID || x.Created != testCreated || x.Level != g.level || len(x.Batches) != len(g.batches) {
				t.Fatalf("index: %+v", x)
			}
			for i, b := range g.batches {
				info := x.Batches[i]
				if info.TopicID != b.topic || info.Partition != b.partition || info.Sparse != b.sparse || info.Records != len(b.records) {
					t.Errorf("batch %d: %+v", i, info)
				}
				requireEqual(t, read(t, stored(object, info.Ref)), b.records)
				d, err := segment.DecodeBatch(stored(object, info.Ref))
				if err != nil {
					t.Fatal(err)
				}
				if h := d.Header(); h.ProducerID != b.producer || b.producer != "" && (h.ProducerEpoch != 3 || h.Sequence != 42) {
					t.Errorf("batch %d: %+v", i, h)
				}
			}
		})
	}
}

// What is written today is what the golden objects are, byte for byte: compression apart, which may improve.
func TestWriterMatchesGoldenFiles(t *testing.T) {
	for _, g := range goldens() {
		object, again := readGolden(t, g.name), g.build(t)
		if !bytes.Equal(object[:segment.HeaderSize], again[:segment.HeaderSize]) {
			t.Errorf("%s: the header differs", g.name)
		}
		x, err := segment.OpenIndex(again, int64(len(again)))
		if err != nil {
			t.Fatal(err)
		}
		old, err := segment.OpenIndex(object, int64(len(object)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Batches {
			a, b := stored(object, old.Batches[i].Ref), stored(again, x.Batches[i].Ref)
			d, err := segment.DecodeBatch(a)
			if err != nil {
				t.Fatal(err)
			}
			if d.Header().Codec == segment.CodecRaw && !bytes.Equal(a, b) {
				t.Errorf("%s: batch %d differs", g.name, i)
			}
		}
	}
}

func TestDumpGolden(t *testing.T) {
	for _, g := range goldens() {
		for _, o := range []struct {
			suffix string
			opts   segment.DumpOptions
		}{{".txt", segment.DumpOptions{Records: true, Values: true}}, {".jsonl", segment.DumpOptions{JSON: true, Records: true, Values: true}},
			{".brief.txt", segment.DumpOptions{Records: true}}, {".batches.jsonl", segment.DumpOptions{JSON: true}}} {
			var out bytes.Buffer
			if err := segment.Dump(&out, readGolden(t, g.name), o.opts); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", g.name+o.suffix)
			if *rewrite {
				if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), want) {
				t.Errorf("%s%s differs (-rewrite writes it anew):\n%s", g.name, o.suffix, out.String())
			}
		}
	}
}

type failingWriter struct{ left int }

var errFull = errors.New("disk full")

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestDumpFaults(t *testing.T) {
	object := readGolden(t, "v1-dense")
	for _, json := range []bool{false, true} {
		opts := segment.DumpOptions{JSON: json, Records: true}
		for n := range 5 {
			if err := segment.Dump(&failingWriter{left: n}, object, opts); !errors.Is(err, errFull) {
				t.Errorf("a writer that fails after %d lines: %v", n, err)
			}
		}
		var out bytes.Buffer
		bad := bytes.Clone(object)
		x, err := segment.OpenIndex(bad, int64(len(bad)))
		if err != nil {
			t.Fatal(err)
		}
		bad[x.Batches[1].Ref.Pos+70] ^= 1
		err = segment.Dump(&out, bad, opts)
		var c *segment.CorruptError
		if !errors.As(err, &c) || c.Offset != int64(x.Batches[1].Ref.Pos)+4 || c.Structure != "checksum" {
			t.Errorf("a corrupt batch: %v", err)
		}
		if lines := bytes.Count(out.Bytes(), []byte("\n")); lines != 2+len(variety()) {
			t.Errorf("%d lines before the fault", lines)
		}
	}
}
