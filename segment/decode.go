package segment

// DecodedBatch is a verified and decompressed batch. It is immutable and safe for concurrent use; its records share its memory.
type DecodedBatch struct {
	header  BatchHeader
	payload []byte // decompressed
	times   int    // position of the append-time column (sparse)
	records int    // position of the first record
	last    int64  // last offset (sparse)
	lastAt  int64  // last append time (sparse)
}

// DecodeBatch verifies stored, which must be one batch from its first byte to its last (a BatchRef of the object), and decompresses it.
// A batch that was stored raw is not copied: the result then shares stored, which must not change. Errors are *CorruptError with
// offsets from the start of the batch, or *VersionError.
func DecodeBatch(stored []byte) (*DecodedBatch, error) { return DecodeBatchTo(nil, stored) }

// DecodeBatchTo is DecodeBatch with a buffer for the decompressed payload, which is used if its capacity suffices. The result and its
// records share it: it may be used again only when nobody looks at them any more.
func DecodeBatchTo(buf, stored []byte) (*DecodedBatch, error) {
	h, payload, err := parseBatchHeader(stored)
	if err != nil {
		return nil, err
	}
	switch h.Codec {
	case CodecRaw:
		if len(payload) != h.RawBytes {
			return nil, corrupt("batch", batchRaw, "raw payload of %d bytes, the header says %d", len(payload), h.RawBytes)
		}
	case CodecZstd:
		raw, reason := decompress(buf, payload, h.RawBytes)
		if reason != "" {
			return nil, corrupt("batch", len(stored)-len(payload), "decompress: %s", reason)
		}
		payload = raw
	default:
		return nil, corrupt("batch", batchCodec, "unknown %s", h.Codec)
	}
	b := &DecodedBatch{header: h, payload: payload}
	if h.Sparse {
		if err := b.scanColumns(); err != nil {
			return nil, err
		}
	}
	if (len(payload)-b.records)/minRecordSize < h.Records {
		return nil, corrupt("batch", batchRecords, "%d records in %d bytes", h.Records, len(payload)-b.records)
	}
	return b, nil
}

// scanColumns finds where the columns of a sparse batch end and checks that no offset or time in them wraps.
func (b *DecodedBatch) scanColumns() error {
	p := 0
	b.last, b.lastAt = b.header.FirstOffset, b.header.FirstTime
	for i := 1; i < b.header.Records; i++ {
		d, n := uvarint(b.payload[p:])
		next := b.last + int64(d)
		if n == 0 || d == 0 || d > 1<<63-1 || next < b.last {
			return corrupt("batch", p, "bad offset of record %d in the payload", i)
		}
		b.last = next
		p += n
	}
	b.times = p
	for i := 1; i < b.header.Records; i++ {
		d, n := uvarint(b.payload[p:])
		next := b.lastAt + int64(d)
		if n == 0 || d > 1<<63-1 || next < b.lastAt {
			return corrupt("batch", p, "bad append time of record %d in the payload", i)
		}
		b.lastAt = next
		p += n
	}
	b.records = p
	return nil
}

// Header is what the batch says about itself.
func (b *DecodedBatch) Header() BatchHeader { return b.header }

// Last gives the offset and the append time (Unix ms) of the last record of a sparse batch; of a dense one, zeros.
func (b *DecodedBatch) Last() (offset, appendTime int64) { return b.last, b.lastAt }

// Size is how many bytes of memory the payload holds.
func (b *DecodedBatch) Size() int { return len(b.payload) }

// Iter starts to read the records.
func (b *DecodedBatch) Iter() Iter {
	return Iter{b: b, pos: b.records, times: b.times, offset: b.header.FirstOffset, time: b.header.FirstTime}
}

// Scan calls fn with each record, in order, until fn returns false. i counts from 0. r is reused: what fn keeps, it copies; Key, Value,
// Headers and ID share memory with the batch and stay valid as long as they are held. In a dense batch, Offset and AppendTime are zero.
func (b *DecodedBatch) Scan(fn func(i int, r *Record) bool) error {
	it := b.Iter()
	var r Record
	for i := 0; it.Next(&r); i++ {
		if !fn(i, &r) {
			return nil
		}
	}
	return it.Err()
}

// Iter reads the records of a batch one by one. It belongs to one goroutine.
type Iter struct {
	b          *DecodedBatch
	next       int   // ordinal of the next record
	pos        int   // in the payload, of the next record
	offs       int   // in the payload, of the next offset delta
	times      int   // in the payload, of the next time delta
	offset     int64 // of the next record (sparse)
	time       int64 // of the next record (sparse)
	arena      headerArena
	err        error
	terminated bool
}

// Ordinal is the number of records passed so far: the ordinal, from 0, of the record that the next call reads.
func (it *Iter) Ordinal() int { return it.next }

// Err is what ended the iteration, or nil at the end of the batch.
func (it *Iter) Err() error { return it.err }

func (it *Iter) fail(pos int, reason string) bool {
	it.terminated = true
	it.err = corrupt("record", pos, "record %d in the payload: %s", it.next, reason)
	return false
}

// body finds the body of the next record.
func (it *Iter) body() (body []byte, ok bool) {
	if it.terminated {
		return nil, false
	}
	payload := it.b.payload
	if it.next == it.b.header.Records {
		if it.pos != len(payload) {
			return nil, it.fail(it.pos, "bytes after the last record")
		}
		it.terminated = true
		return nil, false
	}
	size, n := uvarint(payload[it.pos:])
	if n == 0 || size == 0 || size > uint64(len(payload)-it.pos-n) {
		return nil, it.fail(it.pos, "bad length")
	}
	start := it.pos + n
	return payload[start : start+int(size) : start+int(size)], true
}

// advance moves to the record after the one whose body was just found. Columns were checked when the batch was decoded.
func (it *Iter) advance(body []byte) {
	_, n := uvarint(it.b.payload[it.pos:])
	it.pos += n + len(body)
	it.next++
	if it.b.header.Sparse && it.next < it.b.header.Records {
		d, n := uvarint(it.b.payload[it.offs:])
		it.offs += n
		it.offset += int64(d)
		d, n = uvarint(it.b.payload[it.times:])
		it.times += n
		it.time += int64(d)
	}
}

// Next reads the next record into r, all fields of it. It returns false at the end or at a fault: see Err.
func (it *Iter) Next(r *Record) bool {
	body, ok := it.body()
	if !ok {
		return false
	}
	if p, reason := decodeBody(body, r, &it.arena); reason != "" {
		return it.fail(it.pos+uvarintSize(uint64(len(body)))+p, reason)
	}
	r.Offset, r.AppendTime = it.offset, it.time
	it.advance(body)
	return true
}

// Skip passes up to n records without decoding them. It returns false at the end or at a fault.
func (it *Iter) Skip(n int) bool {
	for range n {
		body, ok := it.body()
		if !ok {
			return false
		}
		it.advance(body)
	}
	return true
}

// SkipTo passes the records of a sparse batch below offset. It returns false at the end or at a fault.
func (it *Iter) SkipTo(offset int64) bool {
	for it.offset < offset {
		if !it.Skip(1) {
			return false
		}
		if it.next == it.b.header.Records {
			return false
		}
	}
	return true
}

// SkipToTime passes the records of a sparse batch whose append time is below ms. It returns false at the end or at a fault.
func (it *Iter) SkipToTime(ms int64) bool {
	for it.time < ms {
		if !it.Skip(1) {
			return false
		}
		if it.next == it.b.header.Records {
			return false
		}
	}
	return true
}
