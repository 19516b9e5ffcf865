package wire

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
)

// Settle is a decoded ack, nack or extend. Its Name is for the caller to set.
type Settle struct {
	leases.SettleRequest
	Clamped Clamped
}

// maxReceiptBytes bounds the text of a receipt.
const maxReceiptBytes = 128

// ValidReceipt says whether s has the form of a receipt: partition:offset:nonce.
func ValidReceipt(s string) bool {
	if len(s) > maxReceiptBytes {
		return false
	}
	partition, rest, ok := strings.Cut(s, ":")
	if !ok {
		return false
	}
	offset, nonce, ok := strings.Cut(rest, ":")
	if !ok || nonce == "" || !decimal(partition, 4) || !decimal(offset, 19) {
		return false
	}
	for i := 0; i < len(nonce); i++ {
		if nonce[i] <= 0x20 || nonce[i] >= 0x7f || nonce[i] == ':' {
			return false
		}
	}
	return true
}

// decimal says whether s is a number in decimal digits, 0 or above, without leading zeros, of at most so many digits and within int64.
func decimal(s string, digits int) bool {
	if len(s) == 0 || len(s) > digits || s[0] == '0' && len(s) > 1 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return len(s) < 19 || s <= "9223372036854775807"
}

// SetDelay takes the pause of a nack. field is the pointer or the name of the parameter in errors.
func (s *Settle) SetDelay(field string, d time.Duration) error {
	if d > api.MaxNackDelay {
		return invalid(field, "must be at most %s", FormatDuration(api.MaxNackDelay))
	}
	s.Delay = &d
	return nil
}

// SetReason takes the reason of a nack, cut to api.MaxReasonBytes between two characters.
func (s *Settle) SetReason(reason string) {
	if len(reason) > api.MaxReasonBytes {
		n := api.MaxReasonBytes
		for n > 0 && !utf8.RuneStart(reason[n]) {
			n--
		}
		reason = strings.Clone(reason[:n])
	}
	s.Reason = reason
}

// SetVisibility takes how long extended leases are to last.
func (s *Settle) SetVisibility(d time.Duration) { s.Visibility = s.Clamped.visibility(d) }

// DecodeSettle decodes the body of POST .../ack, .../nack or .../extend. An empty JSON body is a request without receipts: it is for
// the caller to say whether they may stand elsewhere. Receipts are not checked for form. Codes: INVALID_REQUEST, and TOO_LARGE for more
// than api.MaxReceiptsPerRequest.
//
// Nothing shares memory with body: an outcome is passed on together with others', and may outlive its request.
func DecodeSettle(kind leases.SettleKind, ct ContentType, body []byte) (*Settle, error) {
	s := &Settle{SettleRequest: leases.SettleRequest{Kind: kind}}
	if ct == Protobuf {
		return s, s.decodeProto(body)
	}
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return s, nil
	}
	return s, s.decodeJSON(body)
}

// receipts collects strings in one allocation.
type receipts struct {
	text strings.Builder
	list []string
}

// newReceipts has room for all receipts of a body of size bytes, so that what was taken never moves.
func newReceipts(size, count int) *receipts {
	r := &receipts{list: make([]string, 0, count)}
	r.text.Grow(size)
	return r
}

func (r *receipts) add(b []byte) error {
	if len(r.list) == api.MaxReceiptsPerRequest {
		return tooLarge("/receipts", "a request has at most %d receipts", api.MaxReceiptsPerRequest)
	}
	start := r.text.Len()
	r.text.Write(b)
	r.list = append(r.list, r.text.String()[start:])
	return nil
}

func (s *Settle) decodeJSON(body []byte) error {
	r := newJSONReader(body)
	if err := r.begin('{', "a JSON object"); err != nil {
		return err
	}
	for r.more() {
		name, err := r.name()
		if err != nil {
			return err
		}
		switch {
		case string(name) == "receipts":
			err = s.receiptsJSON(r, len(body))
		case string(name) == "delay" && s.Kind == leases.Nack:
			var d time.Duration
			if d, err = r.duration(); err == nil {
				err = s.SetDelay("/delay", d)
			}
		case string(name) == "reason" && s.Kind == leases.Nack:
			var text []byte
			if text, err = r.text(); err == nil {
				s.SetReason(string(text))
			}
		case string(name) == "visibility" && s.Kind == leases.Extend:
			var d time.Duration
			if d, err = r.duration(); err == nil {
				s.SetVisibility(d)
			}
		default:
			err = invalid(r.pointer(), "there is no such member")
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

func (s *Settle) receiptsJSON(r jsonReader, size int) error {
	if err := r.begin('[', "an array of receipts"); err != nil {
		return err
	}
	list := newReceipts(size, min(size/40+1, 1024))
	for r.more() {
		text, err := r.text()
		if err != nil {
			return err
		}
		if err := list.add(text); err != nil {
			return err
		}
	}
	if err := r.end(); err != nil {
		return err
	}
	if len(list.list) == 0 {
		return invalid("/receipts", "must have at least one receipt")
	}
	s.Receipts = list.list
	return nil
}

func (s *Settle) decodeProto(body []byte) error {
	n, err := countField(body, settleReceipts, "")
	if err != nil {
		return err
	}
	list := newReceipts(len(body), min(n, api.MaxReceiptsPerRequest))
	err = eachField(body, "", func(num protowire.Number, f field) error {
		switch {
		case num == settleReceipts && f.typ == protowire.BytesType:
			if !utf8.Valid(f.bytes) {
				return invalid("/receipts/"+strconv.Itoa(len(list.list)), "must be valid UTF-8")
			}
			return list.add(f.bytes)
		case num == settleDelay && f.typ == protowire.VarintType && s.Kind == leases.Nack:
			d, err := millis("/delay_ms", f.number)
			if err != nil {
				return err
			}
			return s.SetDelay("/delay_ms", d)
		case num == settleReason && f.typ == protowire.BytesType && s.Kind == leases.Nack:
			if !utf8.Valid(f.bytes) {
				return invalid("/reason", "must be valid UTF-8")
			}
			s.SetReason(string(f.bytes))
			return nil
		case num == settleVisibility && f.typ == protowire.VarintType && s.Kind == leases.Extend:
			d, err := millis("/visibility_ms", f.number)
			s.SetVisibility(d)
			return err
		}
		return unknownField("", num)
	})
	s.Receipts = list.list
	return err
}

// AppendSettled appends the answer to an ack, nack or extend in the encoding ct: one result a receipt, in the order of the request.
func AppendSettled(dst []byte, ct ContentType, results []leases.SettleResult, c *Clamped) []byte {
	if ct == Protobuf {
		return appendSettledProto(dst, results, c)
	}
	var t lastTime
	dst = append(dst, `{"results":[`...)
	for i := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendResultJSON(dst, &results[i], &t)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	dst = c.appendJSON(dst)
	return append(dst, '}')
}

// AppendSettledOne appends the answer to the extension of one lease as a JSON object.
func AppendSettledOne(dst []byte, r *leases.SettleResult, c *Clamped) []byte {
	var t lastTime
	dst = appendResultJSON(dst, r, &t)
	dst = c.appendJSON(dst)
	return append(dst, '}')
}

// appendResultJSON appends one result without its last brace.
func appendResultJSON(dst []byte, r *leases.SettleResult, t *lastTime) []byte {
	dst = append(dst, `{"receipt":`...)
	dst = appendString(dst, r.Receipt)
	dst = append(dst, `,"code":"`...)
	if r.Code == "" {
		dst = append(dst, "OK"...)
	} else {
		dst = append(dst, r.Code...)
	}
	dst = append(dst, '"')
	if r.ExpiresAt != 0 {
		dst = append(dst, `,"leaseExpiresAt":"`...)
		dst = append(t.append(dst, r.ExpiresAt), '"')
	}
	return dst
}

func appendSettledProto(dst []byte, results []leases.SettleResult, c *Clamped) []byte {
	for i := range results {
		r := &results[i]
		size := sizeInt64Proto(r.ExpiresAt)
		if r.Code != "" {
			size += tagSize + protowire.SizeBytes(len(r.Code))
		}
		dst = protowire.AppendTag(dst, leaseMessages, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(size))
		if r.Code != "" {
			dst = protowire.AppendTag(dst, resultCode, protowire.BytesType)
			dst = protowire.AppendString(dst, string(r.Code))
		}
		dst = appendInt64Proto(dst, resultExpires, r.ExpiresAt)
	}
	return c.appendProto(dst)
}
