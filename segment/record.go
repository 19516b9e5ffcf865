package segment

import (
	"encoding/binary"
	"unsafe"
)

// A record is encoded as the length of its body, and the body:
//
//	varint  body length in bytes
//	varint  flags
//	zigzag  producer time, Unix ms         if recordProducerTime
//	zigzag  deliver-at time, Unix ms       if recordDeliverAt
//	varint  key length, key bytes          if recordKey
//	varint  ID length, ID bytes            if recordID
//	varint  header count (>= 1), and of each: name length, value length, name, value   if recordHeaders
//	bytes   value: the rest of the body    if recordValue, else the body ends here

// recordFlags gives the flags of r. A Kind that the format does not know is stored as KindData.
func recordFlags(r *Record) uint64 {
	kind := r.Kind
	if kind > KindJSON {
		kind = KindData
	}
	f := uint64(kind) << recordKindShift
	if r.Key != nil {
		f |= recordKey
	}
	if r.KeyBinary {
		f |= recordKeyBinary
	}
	if r.Value != nil {
		f |= recordValue
	}
	if len(r.Headers) > 0 {
		f |= recordHeaders
	}
	if r.ProducerTime != NoTime {
		f |= recordProducerTime
	}
	if r.DeliverAt != NoTime {
		f |= recordDeliverAt
	}
	if r.ID != "" {
		f |= recordID
	}
	return f
}

func bodySize(r *Record, flags uint64) int {
	n := uvarintSize(flags) + len(r.Value)
	if flags&recordProducerTime != 0 {
		n += uvarintSize(zigzag(r.ProducerTime))
	}
	if flags&recordDeliverAt != 0 {
		n += uvarintSize(zigzag(r.DeliverAt))
	}
	if flags&recordKey != 0 {
		n += uvarintSize(uint64(len(r.Key))) + len(r.Key)
	}
	if flags&recordID != 0 {
		n += uvarintSize(uint64(len(r.ID))) + len(r.ID)
	}
	if flags&recordHeaders != 0 {
		n += uvarintSize(uint64(len(r.Headers)))
		for i := range r.Headers {
			h := &r.Headers[i]
			n += uvarintSize(uint64(len(h.Name))) + uvarintSize(uint64(len(h.Value))) + len(h.Name) + len(h.Value)
		}
	}
	return n
}

// RecordSize is the exact number of bytes that AppendRecord adds for r.
func RecordSize(r *Record) int {
	n := bodySize(r, recordFlags(r))
	return uvarintSize(uint64(n)) + n
}

// AppendRecord appends the encoding of r to dst. Offset and AppendTime are not in it: the encoding does not depend on where the
// record will stand, so that a batch is a concatenation of encodings. It keeps no reference to r.
func AppendRecord(dst []byte, r *Record) []byte {
	flags := recordFlags(r)
	dst = binary.AppendUvarint(dst, uint64(bodySize(r, flags)))
	dst = binary.AppendUvarint(dst, flags)
	if flags&recordProducerTime != 0 {
		dst = binary.AppendUvarint(dst, zigzag(r.ProducerTime))
	}
	if flags&recordDeliverAt != 0 {
		dst = binary.AppendUvarint(dst, zigzag(r.DeliverAt))
	}
	if flags&recordKey != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Key)))
		dst = append(dst, r.Key...)
	}
	if flags&recordID != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.ID)))
		dst = append(dst, r.ID...)
	}
	if flags&recordHeaders != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Headers)))
		for i := range r.Headers {
			h := &r.Headers[i]
			dst = binary.AppendUvarint(dst, uint64(len(h.Name)))
			dst = binary.AppendUvarint(dst, uint64(len(h.Value)))
			dst = append(dst, h.Name...)
			dst = append(dst, h.Value...)
		}
	}
	return append(dst, r.Value...)
}

// countRecords walks the length prefixes of concatenated encodings. ok is false when b does not end with a record's last byte.
func countRecords(b []byte) (records int, ok bool) {
	for len(b) > 0 {
		body, n := uvarint(b)
		if n == 0 || body == 0 || body > uint64(len(b)-n) {
			return records, false
		}
		b = b[n+int(body):]
		records++
	}
	return records, true
}

// headerArena hands out slices of headers, so that a batch of records with headers does not cost an allocation a record.
type headerArena struct{ free []Header }

func (a *headerArena) take(n int) []Header {
	if len(a.free) < n {
		a.free = make([]Header, max(n, 64))
	}
	h := a.free[:n:n]
	a.free = a.free[n:]
	return h
}

// decodeBody reads one record's body into r, all fields but Offset and AppendTime. Key, Value, Headers and ID share memory with body.
// The result is the position in body and the reason of a fault, or "".
func decodeBody(body []byte, r *Record, arena *headerArena) (int, string) {
	flags, p := uvarint(body)
	if p == 0 {
		return 0, "flags end early"
	}
	if flags > recordKnownFlags {
		return 0, "unknown flags"
	}
	r.Kind = Kind(flags >> recordKindShift & recordKindMask)
	r.KeyBinary = flags&recordKeyBinary != 0
	r.ProducerTime, r.DeliverAt, r.Key, r.Headers, r.ID, r.Value = NoTime, NoTime, nil, nil, "", nil
	if flags&recordProducerTime != 0 {
		t, n := varint(body[p:])
		if n == 0 || t == NoTime {
			return p, "bad producer time"
		}
		r.ProducerTime = t
		p += n
	}
	if flags&recordDeliverAt != 0 {
		t, n := varint(body[p:])
		if n == 0 || t == NoTime {
			return p, "bad delivery time"
		}
		r.DeliverAt = t
		p += n
	}
	if flags&recordKey != 0 {
		l, n := uvarint(body[p:])
		if n == 0 || l > uint64(len(body)-p-n) {
			return p, "bad key length"
		}
		p += n
		r.Key = body[p : p+int(l) : p+int(l)]
		p += int(l)
	}
	if flags&recordID != 0 {
		l, n := uvarint(body[p:])
		if n == 0 || l == 0 || l > uint64(len(body)-p-n) {
			return p, "bad ID length"
		}
		p += n
		r.ID = text(body[p : p+int(l)])
		p += int(l)
	}
	if flags&recordHeaders != 0 {
		q, reason := decodeHeaders(body, p, r, arena)
		if reason != "" {
			return q, reason
		}
		p = q
	}
	if flags&recordValue != 0 {
		r.Value = body[p:len(body):len(body)]
	} else if p != len(body) {
		return p, "bytes after the last field"
	}
	return p, ""
}

func decodeHeaders(body []byte, p int, r *Record, arena *headerArena) (int, string) {
	count, n := uvarint(body[p:])
	p += n
	if n == 0 || count == 0 || count > uint64(len(body)-p)/2 { // a header takes two bytes at least
		return p, "bad number of headers"
	}
	headers := arena.take(int(count))
	for i := range headers {
		ln, n := uvarint(body[p:])
		if n == 0 {
			return p, "bad header name length"
		}
		lv, m := uvarint(body[p+n:])
		rest := uint64(len(body) - p - n - m)
		if m == 0 || ln > rest || lv > rest-ln {
			return p, "bad header length"
		}
		p += n + m
		headers[i] = Header{Name: text(body[p : p+int(ln)]), Value: text(body[p+int(ln) : p+int(ln)+int(lv)])}
		p += int(ln) + int(lv)
	}
	r.Headers = headers
	return p, ""
}

// text views b as a string without copying. Decoded payloads are never written again.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
