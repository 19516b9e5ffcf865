package wire

import (
	"bytes"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DecodeStrict decodes a JSON body into into, a pointer to a struct with `json` tags. The body must be one JSON object: unknown and
// duplicate members, invalid UTF-8, trailing bytes, null at the top and members of another type are INVALID_REQUEST with a pointer to
// the place. int, int32 and int64 members must be written as integers: not 1e3, 1.5, -0 or "5". Names are case-sensitive. Members of type
// Duration and Time have their texts checked. Absent members leave what into holds, and null sets a pointer member to nil.
func DecodeStrict(body []byte, into any) error {
	start := bytes.TrimLeft(body, " \t\r\n")
	if len(start) == 0 {
		return invalid("", "the body is empty; it must be a JSON object")
	}
	if start[0] != '{' {
		return invalid("", "the body must be a JSON object")
	}
	err := json.Unmarshal(body, into,
		json.RejectUnknownMembers(true),
		json.WithUnmarshalers(json.JoinUnmarshalers(
			json.UnmarshalFromFunc(func(dec *jsontext.Decoder, p *int64) error {
				n, err := decodeInteger(dec, 64)
				*p = n
				return err
			}),
			json.UnmarshalFromFunc(func(dec *jsontext.Decoder, p *int32) error {
				n, err := decodeInteger(dec, 32)
				*p = int32(n)
				return err
			}),
			json.UnmarshalFromFunc(func(dec *jsontext.Decoder, p *int) error {
				n, err := decodeInteger(dec, 64)
				*p = int(n)
				return err
			}),
		)))
	if err != nil {
		return jsonFault(err)
	}
	return nil
}

var (
	errInteger32 = errors.New("must be an integer in decimal digits, without fraction or exponent, within 32 bits")
	errInteger64 = errors.New("must be an integer in decimal digits, without fraction or exponent, within 64 bits")
)

func decodeInteger(dec *jsontext.Decoder, bits int) (int64, error) {
	raw, err := dec.ReadValue()
	if err != nil {
		return 0, err
	}
	n, ok := integer(raw)
	switch {
	case bits == 32 && (!ok || n != int64(int32(n))):
		return 0, errInteger32
	case !ok:
		return 0, errInteger64
	}
	return n, nil
}

// Duration is a member of a JSON body that holds a duration ("30s", see ParseDuration).
type Duration time.Duration

// UnmarshalJSONFrom reads the text of a duration.
func (d *Duration) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	text, err := decodeText(dec)
	if err != nil {
		return err
	}
	v, err := ParseDuration(text)
	*d = Duration(v)
	return err
}

// MarshalJSONTo writes FormatDuration.
func (d Duration) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteToken(jsontext.String(FormatDuration(time.Duration(d))))
}

// Time is a member of a JSON body that holds a time in RFC 3339, in Unix milliseconds.
type Time int64

var errTime = errors.New(timeForm)

// UnmarshalJSONFrom reads the text of a time.
func (t *Time) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	text, err := decodeText(dec)
	if err != nil {
		return err
	}
	ms, ok := parseTime([]byte(text))
	if !ok {
		return errTime
	}
	*t = Time(ms)
	return nil
}

// MarshalJSONTo writes FormatTime.
func (t Time) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteToken(jsontext.String(FormatTime(int64(t))))
}

var errText = errors.New("must be a string")

func decodeText(dec *jsontext.Decoder) (string, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return "", err
	}
	if tok.Kind() != '"' {
		return "", errText
	}
	return tok.String(), nil
}
