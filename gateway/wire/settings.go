package wire

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// settings reads the body of a PUT whose absent members keep their value: one JSON object, with objects in it one level deep. It
// collects every fault of the values, so that one answer names them all; what is not JSON ends it.
type settings struct {
	jsonReader
	faults faults
}

// memberFunc takes one member: its pointer, its name, and its value as text.
type memberFunc func(at, name string, value jsontext.Value)

// decode hands the members of body to member, and those of the objects at the pointers of inner to their own functions. A body of white
// space has no members. The error is the first fault of the syntax, or all faults of the values.
func (d *settings) decode(body []byte, member memberFunc, inner map[string]memberFunc) error {
	if len(bytes.TrimLeft(body, " \t\r\n")) > 0 {
		d.jsonReader = newJSONReader(body)
		if err := d.begin('{', "a JSON object"); err != nil {
			return err
		}
		if err := d.members("", member, inner); err != nil {
			return err
		}
		if err := d.finish(); err != nil {
			return err
		}
	}
	return d.faults.err()
}

// members reads the members of an object whose '{' has been read, to its '}'.
func (d *settings) members(pointer string, member memberFunc, inner map[string]memberFunc) error {
	for d.more() {
		name, err := d.name()
		if err != nil {
			return err
		}
		at, text := appendPointer(pointer, string(name)), string(name)
		if nested := inner[at]; nested != nil && d.dec.PeekKind() == '{' {
			if _, err := d.dec.ReadToken(); err != nil {
				return jsonFault(err)
			}
			if err := d.members(at, nested, nil); err != nil {
				return err
			}
			continue
		}
		value, err := d.value()
		if err != nil {
			return err
		}
		member(at, text, value)
	}
	return d.end()
}

func (d *settings) integer(at string, v jsontext.Value, low, high int64, set func(int64)) {
	n, ok := integer(v)
	if !ok || n < low || n > high {
		d.faults.add(at, "must be an integer between %d and %d", low, high)
		return
	}
	set(n)
}

func (d *settings) duration(at string, v jsontext.Value, low, high time.Duration, set func(time.Duration)) {
	s, ok := stringValue(v)
	t, err := ParseDuration(s)
	switch {
	case !ok || err != nil:
		d.faults.add(at, "%v", errDuration)
	case low > 0 && (t < low || t > high):
		d.faults.add(at, "must be between %s and %s", FormatDuration(low), FormatDuration(high))
	case t > high:
		d.faults.add(at, "must be at most %s", FormatDuration(high))
	default:
		set(t)
	}
}

func stringValue(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err == nil
}

func boolean(v jsontext.Value) (value, ok bool) {
	return v.Kind() == 't', v.Kind() == 't' || v.Kind() == 'f'
}
