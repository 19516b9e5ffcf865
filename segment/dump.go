package segment

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
)

// DumpOptions say how Dump writes.
type DumpOptions struct {
	JSON    bool // one JSON object a line instead of text
	Records bool // records as well, not only batches
	Values  bool // values of records as well, not only their lengths
}

// Dump verifies an object and writes what is in it, for people (text) or programs (JSON lines with a "type" of "segment", "batch" or
// "record"). What was read before a fault is written; the fault is returned, with its offset in the object.
func Dump(w io.Writer, object []byte, opts DumpOptions) error {
	d := &dumper{w: w, opts: opts}
	x, err := OpenIndex(object, int64(len(object)))
	if err != nil {
		return err
	}
	records := 0
	for _, b := range x.Batches {
		records += b.Records
	}
	if err := d.segment(x, len(object), records); err != nil {
		return err
	}
	return walk(object, func(i int, info BatchInfo, b *DecodedBatch) error {
		if err := d.batch(i, info, b.Header()); err != nil || !opts.Records {
			return err
		}
		var failed error
		err := b.Scan(func(j int, r *Record) bool {
			failed = d.record(i, j, b.Header().Sparse, r)
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		return err
	})
}

type dumper struct {
	w    io.Writer
	opts DumpOptions
}

type dumpSegment struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Version int    `json:"version"`
	Level   uint8  `json:"level"`
	Created string `json:"created"`
	Bytes   int    `json:"bytes"`
	Batches int    `json:"batches"`
	Records int    `json:"records"`
}

type dumpBatch struct {
	Type        string        `json:"type"`
	Batch       int           `json:"batch"`
	TopicID     uint64        `json:"topicId"`
	Partition   int32         `json:"partition"`
	Records     int           `json:"records"`
	Pos         uint64        `json:"pos"`
	Bytes       uint32        `json:"bytes"`
	RawBytes    uint32        `json:"rawBytes"`
	Codec       string        `json:"codec"`
	FirstOffset *int64        `json:"firstOffset,omitempty"`
	LastOffset  *int64        `json:"lastOffset,omitempty"`
	FirstTime   string        `json:"firstTime,omitempty"`
	LastTime    string        `json:"lastTime,omitempty"`
	Producer    *dumpProducer `json:"producer,omitempty"`
}

type dumpProducer struct {
	ID       string `json:"id"`
	Epoch    int64  `json:"epoch"`
	Sequence int64  `json:"sequence"`
}

type dumpRecord struct {
	Type         string      `json:"type"`
	Batch        int         `json:"batch"`
	Record       int         `json:"record"`
	Offset       *int64      `json:"offset,omitempty"`
	Time         string      `json:"time,omitempty"`
	ProducerTime string      `json:"producerTime,omitempty"`
	DeliverAt    string      `json:"deliverAt,omitempty"`
	Kind         string      `json:"kind"`
	Key          *string     `json:"key,omitempty"`
	KeyBase64    *string     `json:"keyBase64,omitempty"`
	ID           string      `json:"id,omitempty"`
	Headers      [][2]string `json:"headers,omitempty"`
	Tombstone    bool        `json:"tombstone,omitempty"`
	ValueBytes   int         `json:"valueBytes"`
	Value        *string     `json:"value,omitempty"`
	ValueBase64  *string     `json:"valueBase64,omitempty"`
}

func (k Kind) String() string {
	switch k {
	case KindNone:
		return "none"
	case KindData:
		return "data"
	case KindText:
		return "text"
	case KindJSON:
		return "json"
	}
	return "kind " + strconv.Itoa(int(k))
}

// stamp writes a time as RFC 3339, and one that a calendar cannot show as the number it is.
func stamp(ms int64) string {
	if ms == NoTime {
		return ""
	}
	t := time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(ms, 10)
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

func (d *dumper) json(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("dump segment: %w", err)
	}
	_, err = d.w.Write(append(line, '\n'))
	return err
}

func (d *dumper) segment(x *Index, size, records int) error {
	id := ulid.ULID(x.ID).String()
	if d.opts.JSON {
		return d.json(dumpSegment{"segment", id, Version, x.Level, stamp(x.Created), size, len(x.Batches), records})
	}
	_, err := fmt.Fprintf(d.w, "segment %s  version %d  level %d  created %s  %d bytes  %d batches  %d records\n",
		id, Version, x.Level, stamp(x.Created), size, len(x.Batches), records)
	return err
}

func (d *dumper) batch(i int, x BatchInfo, h BatchHeader) error {
	if d.opts.JSON {
		b := dumpBatch{Type: "batch", Batch: i, TopicID: x.TopicID, Partition: x.Partition, Records: x.Records, Pos: x.Ref.Pos, Bytes: x.Ref.Len,
			RawBytes: x.RawBytes, Codec: h.Codec.String()}
		if x.Sparse {
			b.FirstOffset, b.LastOffset, b.FirstTime, b.LastTime = &x.FirstOffset, &x.LastOffset, stamp(x.FirstTime), stamp(x.LastTime)
		}
		if h.ProducerID != "" {
			b.Producer = &dumpProducer{h.ProducerID, h.ProducerEpoch, h.Sequence}
		}
		return d.json(b)
	}
	line := fmt.Sprintf("  batch %d  topic %d  partition %d  %d records  at %d  %d bytes  %s of %d", i, x.TopicID, x.Partition, x.Records, x.Ref.Pos,
		x.Ref.Len, h.Codec, x.RawBytes)
	if x.Sparse {
		line += fmt.Sprintf("  offsets %d to %d  times %s to %s", x.FirstOffset, x.LastOffset, stamp(x.FirstTime), stamp(x.LastTime))
	}
	if h.ProducerID != "" {
		line += fmt.Sprintf("  producer %q epoch %d sequence %d", h.ProducerID, h.ProducerEpoch, h.Sequence)
	}
	_, err := fmt.Fprintln(d.w, line)
	return err
}

// shown gives b as text, or else as base64.
func shown(b []byte, binary bool) (plain, base *string) {
	if b == nil {
		return nil, nil
	}
	if !binary && utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

func (d *dumper) record(batch, i int, sparse bool, r *Record) error {
	if d.opts.JSON {
		out := dumpRecord{Type: "record", Batch: batch, Record: i, ProducerTime: stamp(r.ProducerTime), DeliverAt: stamp(r.DeliverAt),
			Kind: r.Kind.String(), ID: r.ID, Tombstone: r.Value == nil, ValueBytes: len(r.Value)}
		if sparse {
			out.Offset, out.Time = &r.Offset, stamp(r.AppendTime)
		}
		out.Key, out.KeyBase64 = shown(r.Key, r.KeyBinary)
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, [2]string{h.Name, h.Value})
		}
		if d.opts.Values {
			out.Value, out.ValueBase64 = shown(r.Value, r.Kind == KindData)
		}
		return d.json(out)
	}
	line := fmt.Sprintf("    record %d", i)
	if sparse {
		line += fmt.Sprintf("  offset %d  time %s", r.Offset, stamp(r.AppendTime))
	}
	if r.ProducerTime != NoTime {
		line += "  produced " + stamp(r.ProducerTime)
	}
	if r.DeliverAt != NoTime {
		line += "  deliver at " + stamp(r.DeliverAt)
	}
	if r.Key != nil {
		line += "  key " + quoted(r.Key)
	}
	if r.ID != "" {
		line += "  id " + strconv.Quote(r.ID)
	}
	for _, h := range r.Headers {
		line += fmt.Sprintf("  header %q=%q", h.Name, h.Value)
	}
	switch {
	case r.Value == nil:
		line += "  tombstone"
	case d.opts.Values:
		line += fmt.Sprintf("  %s %s", r.Kind, quoted(r.Value))
	default:
		line += fmt.Sprintf("  %s of %d bytes", r.Kind, len(r.Value))
	}
	_, err := fmt.Fprintln(d.w, line)
	return err
}

// quoted shows bytes on one line: as a quoted string, or as hexadecimal digits where they are not UTF-8.
func quoted(b []byte) string {
	if utf8.Valid(b) {
		return strconv.Quote(string(b))
	}
	return "0x" + hex.EncodeToString(b)
}
