package wire

import (
	"bytes"
	"math"
	"strconv"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
)

const selectionForm = `give one of {"offsets":[{"partition":0,"offset":42}]} and {"all":true}`

// DecodeSelection decodes the body of POST .../dead-letters/discard, and, with rated, of .../redrive, where ratePerSecond may stand as
// well. Codes: INVALID_REQUEST with a pointer to the place, TOO_LARGE for more than api.MaxRedriveOffsets.
func DecodeSelection(body []byte, rated bool) (sel leases.DeadLetterSelection, rate int, err error) {
	rate = api.DefaultRedriveRate
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return sel, rate, invalid("", "the body is empty; %s", selectionForm)
	}
	r := newJSONReader(body)
	if err := r.begin('{', "a JSON object"); err != nil {
		return sel, rate, err
	}
	for r.more() {
		name, err := r.name()
		if err != nil {
			return sel, rate, err
		}
		switch {
		case string(name) == "all":
			v, e := r.value()
			b, ok := false, false
			if e == nil {
				b, ok = boolean(v)
			}
			if err = e; err == nil && !ok {
				err = invalid("/all", "must be true or false")
			}
			sel.All = b
		case string(name) == "offsets":
			sel.Offsets, err = selectedOffsets(r)
		case string(name) == "ratePerSecond" && rated:
			var n int64
			if n, err = r.integer(); err == nil && (n < 1 || n > api.MaxRedriveRate) {
				err = invalid("/ratePerSecond", "must be between 1 and %d", api.MaxRedriveRate)
			}
			rate = int(n)
		default:
			err = invalid(r.pointer(), "there is no such member; %s", selectionForm)
		}
		if err != nil {
			return sel, rate, err
		}
	}
	if err := r.end(); err != nil {
		return sel, rate, err
	}
	if err := r.finish(); err != nil {
		return sel, rate, err
	}
	if sel.All == (sel.Offsets != nil) {
		return sel, rate, invalid("", "%s", selectionForm)
	}
	return sel, rate, nil
}

func selectedOffsets(r jsonReader) ([]leases.Target, error) {
	if err := r.begin('[', `an array such as [{"partition":0,"offset":42}]`); err != nil {
		return nil, err
	}
	var targets []leases.Target
	for r.more() {
		if len(targets) == api.MaxRedriveOffsets {
			return nil, tooLarge("/offsets", "a request names at most %d dead letters; split it, or select all", api.MaxRedriveOffsets)
		}
		t, err := target(r, "/offsets/"+strconv.Itoa(len(targets)))
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		return nil, invalid("/offsets", "must name at least one dead letter")
	}
	return targets, nil
}

func target(r jsonReader, at string) (leases.Target, error) {
	t := leases.Target{Partition: -1, Offset: -1}
	if err := r.begin('{', `an object such as {"partition":0,"offset":42}`); err != nil {
		return t, err
	}
	for r.more() {
		name, err := r.name()
		if err != nil {
			return t, err
		}
		most := int64(math.MaxInt64)
		switch string(name) {
		case "partition":
			most = api.MaxPartitions - 1
		case "offset":
		default:
			return t, invalid(r.pointer(), "there is no such member")
		}
		n, err := r.integer()
		if err != nil {
			return t, err
		}
		if n < 0 || n > most {
			return t, invalid(r.pointer(), "must be between 0 and %d", most)
		}
		if string(name) == "partition" {
			t.Partition = int32(n)
		} else {
			t.Offset = n
		}
	}
	if err := r.end(); err != nil {
		return t, err
	}
	if t.Partition < 0 || t.Offset < 0 {
		return t, invalid(at, "needs a partition and an offset")
	}
	return t, nil
}

// AppendDeadLetterJSON appends one dead letter of a list.
func AppendDeadLetterJSON(dst []byte, d *leases.DeadLetter) []byte {
	dst = append(dst, `{"partition":`...)
	dst = strconv.AppendInt(dst, int64(d.Partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, d.Offset, 10)
	dst = append(dst, `,"attempts":`...)
	dst = strconv.AppendInt(dst, int64(d.Attempts), 10)
	dst = append(dst, `,"reason":`...)
	dst = appendString(dst, d.Reason)
	dst = append(dst, `,"firstFailedAt":`...)
	dst = appendOptionalTime(dst, d.FirstFailedAt)
	dst = append(dst, `,"deadAt":`...)
	dst = appendOptionalTime(dst, d.DeadAt)
	dst = append(dst, `,"expired":`...)
	dst = strconv.AppendBool(dst, d.Expired)
	if d.Record != nil {
		dst = append(dst, `,"record":`...)
		dst = AppendRecordJSON(dst, d.Record, d.Partition)
	}
	return append(dst, '}')
}

// AppendTaskJSON appends a redrive.
func AppendTaskJSON(dst []byte, t *leases.Task) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, t.ID)
	dst = append(dst, `,"total":`...)
	dst = strconv.AppendInt(dst, t.Total, 10)
	dst = append(dst, `,"done":`...)
	dst = strconv.AppendInt(dst, t.Done, 10)
	dst = append(dst, `,"state":`...)
	dst = appendString(dst, t.State)
	dst = append(dst, `,"createdAt":`...)
	dst = appendOptionalTime(dst, t.CreatedAt)
	dst = append(dst, `,"updatedAt":`...)
	dst = appendOptionalTime(dst, t.UpdatedAt)
	return append(dst, '}')
}
