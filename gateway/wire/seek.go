package wire

import (
	"bytes"
	"strconv"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
)

const seekForm = `give one of {"to":"earliest"}, {"to":"latest"}, {"timestamp":"2026-01-02T03:04:05.678Z"} and {"offsets":{"0":42}}`

// DecodeSeek decodes the body of POST .../seek. Exactly one target is set in the answer. INVALID_REQUEST with a pointer to the place.
func DecodeSeek(body []byte) (leases.SeekTarget, error) {
	var to leases.SeekTarget
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return to, invalid("", "the body is empty; %s", seekForm)
	}
	r := newJSONReader(body)
	if err := r.begin('{', "a JSON object"); err != nil {
		return to, err
	}
	var target seekTarget
	for r.more() {
		name, err := r.name()
		if err != nil {
			return to, err
		}
		known, err := target.member(r, string(name))
		if !known {
			err = invalid(r.pointer(), "there is no such member; %s", seekForm)
		}
		if err != nil {
			return to, err
		}
	}
	if err := r.end(); err != nil {
		return to, err
	}
	if err := r.finish(); err != nil {
		return to, err
	}
	if target.count != 1 {
		return to, invalid("", "%s", seekForm)
	}
	return target.SeekTarget, nil
}

// seekTarget collects the members that name the target of a seek.
type seekTarget struct {
	leases.SeekTarget
	count int // of the members
}

// member reads the value of a member, or says that there is none of that name.
func (t *seekTarget) member(r jsonReader, name string) (known bool, err error) {
	switch name {
	case "to":
		err = seekTo(r, &t.SeekTarget)
	case "timestamp":
		var text []byte
		if text, err = r.text(); err == nil {
			var ms int64
			if ms, err = ParseTime("/timestamp", string(text)); err == nil {
				t.Time = &ms
			}
		}
	case "offsets":
		t.Offsets, err = seekOffsets(r)
	default:
		return false, nil
	}
	t.count++
	return true, err
}

func seekTo(r jsonReader, to *leases.SeekTarget) error {
	text, err := r.text()
	if err != nil {
		return err
	}
	switch string(text) {
	case "earliest":
		to.Earliest = true
	case "latest":
		to.Latest = true
	default:
		return invalid("/to", `must be "earliest" or "latest"`)
	}
	return nil
}

func seekOffsets(r jsonReader) (map[int32]int64, error) {
	if err := r.begin('{', `an object from partitions to offsets such as {"0":42}`); err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for r.more() {
		name, err := r.name()
		if err != nil {
			return nil, err
		}
		partition, err := strconv.ParseInt(string(name), 10, 32)
		if err != nil || !decimal(string(name), 4) {
			return nil, invalid(r.pointer(), "must name a partition: a number from 0 to %d in decimal digits", api.MaxPartitions-1)
		}
		offset, err := r.integer()
		if err != nil {
			return nil, err
		}
		if offset < 0 {
			return nil, invalid(r.pointer(), "must be 0 or above")
		}
		offsets[int32(partition)] = offset
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if len(offsets) == 0 {
		return nil, invalid("/offsets", "must name at least one partition")
	}
	return offsets, nil
}
