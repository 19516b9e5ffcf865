package wire

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
)

// Clamped says what was taken instead of what a request asked for. Zero members were taken as they are.
type Clamped struct {
	Max        int
	Wait       time.Duration
	Visibility time.Duration
	MaxBytes   int64
}

// Any says whether something was clamped.
func (c *Clamped) Any() bool { return *c != Clamped{} }

// String lists what was clamped as name=value, for a header: "max=1000, wait=30s".
func (c *Clamped) String() string {
	var parts []string
	if c.Max > 0 {
		parts = append(parts, "max="+strconv.Itoa(c.Max))
	}
	if c.Wait > 0 {
		parts = append(parts, "wait="+FormatDuration(c.Wait))
	}
	if c.Visibility > 0 {
		parts = append(parts, "visibility="+FormatDuration(c.Visibility))
	}
	if c.MaxBytes > 0 {
		parts = append(parts, "maxBytes="+strconv.FormatInt(c.MaxBytes, 10))
	}
	return strings.Join(parts, ", ")
}

// Lease is a decoded request for leases. Its Name is for the caller to set.
type Lease struct {
	leases.LeaseRequest
	Clamped Clamped
}

// NewLease gives the request that names nothing, for max records.
func NewLease(max int) *Lease { return &Lease{LeaseRequest: leases.LeaseRequest{Max: max}} }

// SetMax takes the most records to lease. field is the pointer or the name of the parameter in errors.
func (l *Lease) SetMax(field string, n int64) error {
	if n < 1 {
		return invalid(field, "must be 1 or above; %d at most are leased", api.MaxLeaseRecords)
	}
	if l.Max = int(min(n, api.MaxLeaseRecords)); n > api.MaxLeaseRecords {
		l.Clamped.Max = l.Max
	}
	return nil
}

// SetWait takes how long to wait for a record.
func (l *Lease) SetWait(d time.Duration) {
	if l.Wait = min(d, api.MaxWait); d > api.MaxWait {
		l.Clamped.Wait = l.Wait
	}
}

// SetVisibility takes how long the leases are to last.
func (l *Lease) SetVisibility(d time.Duration) { l.Visibility = l.Clamped.visibility(d) }

// visibility clamps the duration of leases.
func (c *Clamped) visibility(d time.Duration) time.Duration {
	v := min(max(d, api.MinVisibility), api.MaxVisibility)
	if v != d {
		c.Visibility = v
	}
	return v
}

// SetMaxBytes takes the most bytes of keys, values and headers.
func (l *Lease) SetMaxBytes(field string, n int64) error {
	if n < 1 {
		return invalid(field, "must be 1 or above; one record is leased in any case")
	}
	if l.MaxBytes = min(n, api.MaxReadBytes); n > api.MaxReadBytes {
		l.Clamped.MaxBytes = l.MaxBytes
	}
	return nil
}

// SetRequestID takes the identifier under which a repeat gets the same leases.
func (l *Lease) SetRequestID(field, id string) error {
	ok := len(id) > 0 && len(id) <= api.MaxRequestIDBytes
	for i := 0; i < len(id); i++ {
		ok = ok && id[i] > 0x20 && id[i] < 0x7f
	}
	if !ok {
		return invalid(field, "must be 1 to %d printable ASCII characters without spaces", api.MaxRequestIDBytes)
	}
	l.RequestID = id
	return nil
}

// DecodeLease decodes the body of POST .../lease. An empty JSON body asks for the defaults. Codes: INVALID_REQUEST.
func DecodeLease(ct ContentType, body []byte) (*Lease, error) {
	l := NewLease(api.DefaultLeaseRecords)
	if ct == Protobuf {
		return l, l.decodeProto(body)
	}
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return l, nil
	}
	return l, l.decodeJSON(body)
}

func (l *Lease) decodeJSON(body []byte) error {
	r := newJSONReader(body)
	if err := r.begin('{', "a JSON object"); err != nil {
		return err
	}
	for r.more() {
		name, err := r.name()
		if err != nil {
			return err
		}
		switch string(name) {
		case "max":
			var n int64
			if n, err = r.integer(); err == nil {
				err = l.SetMax("/max", n)
			}
		case "wait":
			var d time.Duration
			if d, err = r.duration(); err == nil {
				l.SetWait(d)
			}
		case "visibility":
			var d time.Duration
			if d, err = r.duration(); err == nil {
				l.SetVisibility(d)
			}
		case "requestId":
			var id []byte
			if id, err = r.text(); err == nil {
				err = l.SetRequestID("/requestId", string(id))
			}
		case "maxBytes":
			var n int64
			if n, err = r.integer(); err == nil {
				err = l.SetMaxBytes("/maxBytes", n)
			}
		default:
			err = invalid(r.pointer(), "there is no such member; there are max, wait, visibility, requestId and maxBytes")
		}
		if err != nil {
			return err
		}
	}
	if err := r.end(); err != nil {
		return err
	}
	return r.finish()
}

// Field numbers of api/forebay/v1/queue.proto.
const (
	leaseMax        = 1 // of LeaseRequest and Clamped alike
	leaseWait       = 2
	leaseVisibility = 3
	leaseRequestID  = 4 // of LeaseRequest
	leaseMaxBytes   = 5 // of LeaseRequest
	clampedMaxBytes = 4

	leasedReceipt = 1
	leasedAttempt = 2
	leasedExpires = 3
	leasedRecord  = 4

	leaseMessages = 1 // of LeaseResponse; the results of SettleResponse have the same number
	answerClamped = 2 // of both

	settleReceipts   = 1
	settleDelay      = 2 // of NackRequest
	settleReason     = 3 // of NackRequest
	settleVisibility = 2 // of ExtendRequest

	resultCode    = 1
	resultExpires = 2
)

func (l *Lease) decodeProto(body []byte) error {
	return eachField(body, "", func(num protowire.Number, f field) error {
		switch {
		case num == leaseMax && f.typ == protowire.VarintType:
			return l.SetMax("/max", int64(int32(f.number)))
		case num == leaseWait && f.typ == protowire.VarintType:
			d, err := millis("/wait_ms", f.number)
			l.SetWait(d)
			return err
		case num == leaseVisibility && f.typ == protowire.VarintType:
			d, err := millis("/visibility_ms", f.number)
			l.SetVisibility(d)
			return err
		case num == leaseRequestID && f.typ == protowire.BytesType:
			if len(f.bytes) == 0 {
				l.RequestID = ""
				return nil
			}
			return l.SetRequestID("/request_id", string(f.bytes))
		case num == leaseMaxBytes && f.typ == protowire.VarintType:
			return l.SetMaxBytes("/max_bytes", int64(f.number))
		}
		return unknownField("", num)
	})
}

// maxMillis is what a time.Duration holds.
const maxMillis = uint64(1<<63-1) / uint64(time.Millisecond)

// millis reads milliseconds of an int64 field. What a Duration cannot hold is the longest one: it is clamped or refused as that.
func millis(place string, n uint64) (time.Duration, error) {
	if int64(n) < 0 {
		return 0, invalid(place, "must be 0 or above")
	}
	return time.Duration(min(n, maxMillis)) * time.Millisecond, nil
}

// duration reads a string that holds a duration.
func (r jsonReader) duration() (time.Duration, error) {
	text, err := r.text()
	if err != nil {
		return 0, err
	}
	d, err := ParseDuration(string(text))
	if err != nil {
		return 0, invalid(r.pointer(), "%v", err)
	}
	return d, nil
}

// AppendLease appends the answer to a lease in the encoding ct. Nothing is allocated but what dst needs to grow.
func AppendLease(dst []byte, ct ContentType, messages []leases.Message, c *Clamped) []byte {
	if ct == Protobuf {
		return appendLeaseProto(dst, messages, c)
	}
	var expires, appended lastTime
	dst = append(dst, `{"messages":[`...)
	for i := range messages {
		m := &messages[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"receipt":`...)
		dst = appendString(dst, m.Receipt)
		dst = append(dst, `,"attempt":`...)
		dst = strconv.AppendInt(dst, int64(m.Attempt), 10)
		dst = append(dst, `,"leaseExpiresAt":"`...)
		dst = expires.append(dst, m.ExpiresAt)
		dst = append(dst, `",`...)
		dst = appendRecord(dst, &m.Record, m.Partition, &appended)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	dst = c.appendJSON(dst)
	return append(dst, '}')
}

// appendJSON appends the member "clamped" with a comma before it, or nothing.
func (c *Clamped) appendJSON(dst []byte) []byte {
	if !c.Any() {
		return dst
	}
	dst = append(dst, `,"clamped":`...)
	open := byte('{')
	name := func(s string) {
		dst = append(append(append(dst, open, '"'), s...), `":`...)
		open = ','
	}
	if c.Max > 0 {
		name("max")
		dst = strconv.AppendInt(dst, int64(c.Max), 10)
	}
	if c.Wait > 0 {
		name("wait")
		dst = appendDurationJSON(dst, c.Wait)
	}
	if c.Visibility > 0 {
		name("visibility")
		dst = appendDurationJSON(dst, c.Visibility)
	}
	if c.MaxBytes > 0 {
		name("maxBytes")
		dst = strconv.AppendInt(dst, c.MaxBytes, 10)
	}
	return append(dst, '}')
}

func appendLeaseProto(dst []byte, messages []leases.Message, c *Clamped) []byte {
	for i := range messages {
		m := &messages[i]
		record := recordSizeProto(&m.Record, m.Partition)
		size := tagSize + protowire.SizeBytes(len(m.Receipt)) + sizeInt64Proto(int64(m.Attempt)) + sizeInt64Proto(m.ExpiresAt) +
			tagSize + protowire.SizeBytes(record)
		dst = protowire.AppendTag(dst, leaseMessages, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(size))
		dst = protowire.AppendTag(dst, leasedReceipt, protowire.BytesType)
		dst = protowire.AppendString(dst, m.Receipt)
		dst = appendInt64Proto(dst, leasedAttempt, int64(m.Attempt))
		dst = appendInt64Proto(dst, leasedExpires, m.ExpiresAt)
		dst = protowire.AppendTag(dst, leasedRecord, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(record))
		dst = appendRecordProto(dst, &m.Record, m.Partition)
	}
	return c.appendProto(dst)
}

func (c *Clamped) appendProto(dst []byte) []byte {
	if !c.Any() {
		return dst
	}
	wait, visibility := c.Wait.Milliseconds(), c.Visibility.Milliseconds()
	size := sizeInt64Proto(int64(c.Max)) + sizeInt64Proto(wait) + sizeInt64Proto(visibility) + sizeInt64Proto(c.MaxBytes)
	dst = protowire.AppendTag(dst, answerClamped, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = appendInt64Proto(dst, leaseMax, int64(c.Max))
	dst = appendInt64Proto(dst, leaseWait, wait)
	dst = appendInt64Proto(dst, leaseVisibility, visibility)
	return appendInt64Proto(dst, clampedMaxBytes, c.MaxBytes)
}

// AppendPeek appends the answer to a peek.
func AppendPeek(dst []byte, records []leases.PeekedRecord) []byte {
	var t lastTime
	dst = append(dst, `{"messages":[`...)
	for i := range records {
		p := &records[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"attempt":`...)
		dst = strconv.AppendInt(dst, int64(p.Attempt), 10)
		dst = append(dst, `,"dueAt":`...)
		dst = appendOptionalTime(dst, p.DueAt)
		dst = append(dst, ',')
		dst = appendRecord(dst, &p.Record, p.Partition, &t)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// appendOptionalTime appends a time in Unix milliseconds, or null for 0.
func appendOptionalTime(dst []byte, ms int64) []byte {
	if ms == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	return append(AppendTime(dst, ms), '"')
}
