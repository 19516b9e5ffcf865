package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/forebaymq/forebay/segment"
)

// Every single flipped bit and every truncation of an object is noticed.
func TestEveryBitFlipIsNoticed(t *testing.T) {
	for _, g := range goldens() {
		object := readGolden(t, g.name)
		for i := range object {
			for bit := range 8 {
				bad := bytes.Clone(object)
				bad[i] ^= 1 << bit
				err := segment.Verify(bad)
				if !errors.Is(err, segment.ErrCorrupt) && !errors.Is(err, segment.ErrUnsupportedVersion) {
					t.Fatalf("%s: bit %d of byte %d: %v", g.name, bit, i, err)
				}
			}
			if err := segment.Verify(object[:i]); !errors.Is(err, segment.ErrCorrupt) {
				t.Fatalf("%s cut to %d bytes: %v", g.name, i, err)
			}
		}
	}
}

func TestUnknownVersions(t *testing.T) {
	object := readGolden(t, "v1-dense")
	x, err := segment.OpenIndex(object, int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	first := x.Batches[0].Ref
	for structure, at := range map[string]int{"header": 7, "batch": int(first.Pos) + 8, "footer": len(object) - 1} {
		bad := bytes.Clone(object)
		bad[at] = 200
		err := segment.Verify(bad)
		var v *segment.VersionError
		if !errors.As(err, &v) || v.Structure != structure || v.Version != 200 || !errors.Is(err, segment.ErrUnsupportedVersion) || errors.Is(err, segment.ErrCorrupt) {
			t.Errorf("%s: %v", structure, err)
		}
	}
}

// Faults that a checksum does not show: what a header may claim is bounded before anything is allocated for it.
func TestLyingHeaders(t *testing.T) {
	object, refs := build(t, segment.WriterOptions{Level: 1}, sparse(1, 0, jsonRecords(1, 600)...), dense(1, 0, jsonRecords(100, 600)...))
	sparseBatch, zstdBatch := stored(object, refs[0]), stored(object, refs[1])
	u16 := func(at int, v uint16) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint16(b[at:], v) }
	}
	u32 := func(at int, v uint32) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[at:], v) }
	}
	u64 := func(at int, v uint64) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[at:], v) }
	}
	for name, c := range map[string]struct {
		batch  []byte
		change func(b []byte)
	}{
		"unknown codec":            {zstdBatch, func(b []byte) { b[9] = 7 }},
		"zstd called raw":          {zstdBatch, func(b []byte) { b[9] = 0 }},
		"unknown flag":             {zstdBatch, u16(10, 4)},
		"payload too large":        {zstdBatch, u32(16, segment.MaxPayloadBytes+1)},
		"payload of 4 GiB":         {zstdBatch, u32(16, math.MaxUint32)},
		"payload longer":           {zstdBatch, u32(16, 1<<20)},
		"payload beyond the ratio": {sparseBatch, u32(16, segment.MaxPayloadBytes)},
		"payload shorter":          {zstdBatch, u32(16, 1000)},
		"no record":                {zstdBatch, u32(20, 0)},
		"too many records":         {zstdBatch, u32(20, 1<<31)},
		"more records":             {zstdBatch, u32(20, 101)},
		"fewer records":            {zstdBatch, u32(20, 99)},
		"partition":                {zstdBatch, u32(32, 1<<31)},
		"producer without flag":    {zstdBatch, u16(36, 3)},
		"producer beyond the end":  {zstdBatch, func(b []byte) { u16(36, 1000)(b); u16(10, segment.FlagProducer)(b) }},
		"producer too long":        {zstdBatch, func(b []byte) { u16(36, math.MaxUint16)(b); u16(10, segment.FlagProducer)(b) }},
		"flag without producer":    {zstdBatch, u16(10, segment.FlagProducer)},
		"reserved":                 {zstdBatch, u16(38, 1)},
		"epoch":                    {zstdBatch, u64(40, 1)},
		"sequence":                 {zstdBatch, u64(48, 1)},
		"dense with offset":        {zstdBatch, u64(56, 1)},
		"dense with time":          {zstdBatch, u64(64, 1)},
		"negative offset":          {sparseBatch, u64(56, 1<<63)},
		"absent time":              {sparseBatch, u64(64, 1<<63)},
		"dense called sparse":      {zstdBatch, u16(10, segment.FlagSparse)},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(c.batch)
			c.change(bad)
			stored := binary.LittleEndian.Uint32(bad[12:])
			segment.MendBatch(bad)
			binary.LittleEndian.PutUint32(bad[12:], stored)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b, err := segment.DecodeBatch(bad)
			if err == nil {
				err = b.Scan(func(int, *segment.Record) bool { return true })
			}
			runtime.ReadMemStats(&after)
			if !errors.Is(err, segment.ErrCorrupt) {
				t.Errorf("error is %v", err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

func TestBadColumns(t *testing.T) {
	r := record("k", "v")
	encoding := segment.AppendRecord(nil, &r)
	big := binary.AppendUvarint(nil, math.MaxInt64)
	for name, columns := range map[string][]byte{
		"equal offset":      {0, 1},
		"offset wraps":      append(bytes.Clone(big), 1),
		"offset of 64 bits": append(binary.AppendUvarint(nil, math.MaxUint64), 1),
		"time wraps":        append([]byte{1}, big...),
		"time of 64 bits":   append([]byte{1}, binary.AppendUvarint(nil, math.MaxUint64)...),
		"long varint":       {0x81, 0, 1},
		"no columns":        {},
	} {
		t.Run(name, func(t *testing.T) {
			want := sparse(1, 0, r, r)
			want.Offsets, want.AppendTimes = []int64{5, 6}, []int64{7, 8}
			object, refs := build(t, segment.WriterOptions{Level: 1}, want)
			batch := bytes.Clone(stored(object, refs[0])[:segment.BatchHeaderSize])
			payload := append(bytes.Clone(columns), bytes.Repeat(encoding, 2)...)
			binary.LittleEndian.PutUint32(batch[16:], uint32(len(payload)))
			batch = segment.MendBatch(append(batch, payload...))
			b, err := segment.DecodeBatch(batch)
			if err == nil {
				err = b.Scan(func(int, *segment.Record) bool { return true })
			}
			if !errors.Is(err, segment.ErrCorrupt) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestBadRecords(t *testing.T) {
	for name, body := range map[string][]byte{
		"no flags":            {},
		"unknown flag":        binary.AppendUvarint(nil, 1<<9),
		"long flags":          {0x84, 0x00, 'v'},
		"cut flags":           {0x80},
		"no producer time":    {0x40},
		"absent time":         append([]byte{0x40}, binary.AppendUvarint(nil, math.MaxUint64)...),
		"no key length":       {0x01},
		"key beyond the end":  {0x01, 5, 'k'},
		"huge key":            append([]byte{0x01}, binary.AppendUvarint(nil, math.MaxUint64)...),
		"empty ID":            {0x80, 0x02, 0},
		"ID beyond the end":   {0x80, 0x02, 3, 'a'},
		"no headers":          {0x20, 0},
		"too many headers":    append([]byte{0x20}, binary.AppendUvarint(nil, math.MaxUint64)...),
		"header beyond end":   {0x20, 1, 1, 1, 'a'},
		"header name beyond":  {0x20, 1, 200, 1, 0, 'a'},
		"huge header":         append(append([]byte{0x20, 1}, binary.AppendUvarint(nil, math.MaxUint64)...), binary.AppendUvarint(nil, math.MaxUint64)...),
		"bytes after the end": {0x00, 'x'},
	} {
		data := append(binary.AppendUvarint(nil, uint64(len(body))), body...)
		var r segment.Record
		if segment.DecodeRecord(data, &r) {
			t.Errorf("%s: decoded to %+v", name, r)
		}
	}
}

func TestUvarint(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 16383, 16384, 1<<32 - 1, 1 << 63, math.MaxUint64} {
		b := binary.AppendUvarint(nil, v)
		if got, n := segment.Uvarint(b); got != v || n != len(b) || n != segment.UvarintSize(v) {
			t.Errorf("%d: got %d of %d bytes", v, got, n)
		}
		if _, n := segment.Uvarint(b[:len(b)-1]); n != 0 {
			t.Errorf("%d cut: read %d bytes", v, n)
		}
	}
	for _, b := range [][]byte{{0x80, 0}, {0xff, 0x80, 0}, bytes.Repeat([]byte{0xff}, 10), {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}} {
		if v, n := segment.Uvarint(b); n != 0 {
			t.Errorf("%x reads as %d", b, v)
		}
	}
	// RFC 3720, appendix B.4: 32 bytes of zeros.
	if c := segment.Castagnoli(make([]byte, 32)); c != 0x8a9136aa {
		t.Errorf("CRC-32C is %08x", c)
	}
}

func TestErrorsAreClear(t *testing.T) {
	object := readGolden(t, "v1-dense")
	bad := bytes.Clone(object)
	bad[len(bad)-10] ^= 1
	_, err := segment.OpenIndex(bad, int64(len(bad)))
	var c *segment.CorruptError
	if !errors.As(err, &c) || c.Offset != int64(len(bad)-12) || c.Structure != "checksum" {
		t.Errorf("%+v", err)
	}
	if _, err := segment.OpenIndex(object, int64(len(object)-1)); err == nil || errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("a tail longer than the object: %v", err)
	}
	if segment.CodecZstd.String() != "zstd" || segment.Codec(9).String() != "codec 9" || segment.Kind(9).String() != "kind 9" || segment.KindJSON.String() != "json" {
		t.Error("names of codecs or kinds")
	}
}

// Checksums that are right do not make up for an index, a header and batches that disagree.
func TestDisagreementIsNoticed(t *testing.T) {
	object := readGolden(t, "v1-sparse")
	x, err := segment.OpenIndex(object, int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	last := x.Batches[len(x.Batches)-1].Ref
	entry := int(last.Pos) + int(last.Len) // the index follows the last batch
	for name, at := range map[string]int{
		"topic": entry, "partition": entry + 8, "records": entry + 12, "position": entry + 16, "length": entry + 24, "raw": entry + 28,
		"flags": entry + 32, "reserved": entry + 34, "first offset": entry + 36, "last offset": entry + 44, "first time": entry + 52, "last time": entry + 60,
		"negative offset": entry + 43, "footer ID": len(object) - 64, "footer created": len(object) - 48, "footer level": len(object) - 16,
		"footer reserved": len(object) - 20, "batches": len(object) - 24, "header level": 8, "header reserved": 9, "header ID": 16,
	} {
		bad := bytes.Clone(object)
		bad[at] ^= 0x81
		if err := segment.Verify(segment.MendObject(bad)); !errors.Is(err, segment.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	for want, err := range map[string]error{
		"corrupt segment l0/x.seg: batch at byte 5: bad":                          &segment.CorruptError{Object: "l0/x.seg", Offset: 5, Structure: "batch", Reason: "bad"},
		"unsupported segment version 9 in the footer: this build reads version 1": &segment.VersionError{Structure: "footer", Version: 9},
		"tail too short to open the segment: 100 bytes are needed":                &segment.ShortTailError{Need: 100},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
