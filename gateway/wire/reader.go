package wire

import (
	"bytes"
	"encoding/base64"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonReader walks one JSON text token by token. The decoder beneath it holds the text against the grammar, refuses duplicate names and
// invalid UTF-8 (lone surrogates too), bounds the nesting, and knows the pointer to where it stands. It reads a bytes.Buffer in place,
// so what readValue returns shares memory with the body.
type jsonReader struct {
	dec *jsontext.Decoder
}

func newJSONReader(body []byte) jsonReader {
	return jsonReader{dec: jsontext.NewDecoder(bytes.NewBuffer(body))}
}

// pointer is the place of the value read last.
func (r jsonReader) pointer() string { return string(r.dec.StackPointer()) }

// begin reads the delimiter '{' or '['. The value that stands there instead is the fault of pointer.
func (r jsonReader) begin(delim jsontext.Kind, what string) error {
	tok, err := r.dec.ReadToken()
	if err != nil {
		if err == io.EOF {
			return invalid("", "the body is empty; it must be a JSON object")
		}
		return jsonFault(err)
	}
	if tok.Kind() != delim {
		return invalid(r.pointer(), "must be %s", what)
	}
	return nil
}

// more says whether another member or element follows before the end of the present object or array. On a syntax error it answers true,
// and the next read reports the error.
func (r jsonReader) more() bool {
	k := r.dec.PeekKind()
	return k != '}' && k != ']'
}

// end reads the closing delimiter.
func (r jsonReader) end() error {
	if _, err := r.dec.ReadToken(); err != nil {
		return jsonFault(err)
	}
	return nil
}

// finish refuses anything but white space after the text.
func (r jsonReader) finish() error {
	_, err := r.dec.ReadToken()
	switch {
	case err == io.EOF:
		return nil
	case err != nil:
		return jsonFault(err)
	default:
		return invalid("", "bytes follow the JSON object")
	}
}

// name reads the name of the next member, unescaped. It may share memory with the body.
func (r jsonReader) name() ([]byte, error) {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return nil, jsonFault(err)
	}
	return r.unquote(raw)
}

// value reads the next value as its exact text.
func (r jsonReader) value() (jsontext.Value, error) {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return nil, jsonFault(err)
	}
	return raw, nil
}

// text reads a string, unescaped. It may share memory with the body, and is never nil.
func (r jsonReader) text() ([]byte, error) {
	raw, err := r.value()
	if err != nil {
		return nil, err
	}
	if raw[0] != '"' {
		return nil, invalid(r.pointer(), "must be a string")
	}
	return r.unquote(raw)
}

func (r jsonReader) unquote(raw jsontext.Value) ([]byte, error) {
	inner := raw[1 : len(raw)-1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	text, err := jsontext.AppendUnquote(make([]byte, 0, len(inner)), raw)
	if err != nil {
		return nil, invalid(r.pointer(), "the string is not valid: %v", err)
	}
	return text, nil
}

// base64 reads a string of base64 (standard alphabet, padded, no white space, no stray bits) as bytes. It is never nil.
func (r jsonReader) base64() ([]byte, error) {
	text, err := r.text()
	if err != nil {
		return nil, err
	}
	data, ok := decodeBase64(text)
	if !ok {
		return nil, invalid(r.pointer(), "must be base64 in the standard alphabet with padding and nothing else")
	}
	return data, nil
}

func decodeBase64(text []byte) ([]byte, bool) {
	// The standard decoder skips line ends; this contract has none.
	if len(text)%4 != 0 || bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 {
		return nil, false
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	return data[:n], err == nil
}

// integer reads an integer in the sense of the contract (see func integer).
func (r jsonReader) integer() (int64, error) {
	raw, err := r.value()
	if err != nil {
		return 0, err
	}
	n, ok := integer(raw)
	if !ok {
		return 0, invalid(r.pointer(), "must be an integer in decimal digits, without fraction or exponent, within 64 bits")
	}
	return n, nil
}
