package wire

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/api"
)

// ContentType is one of the two encodings of records.
type ContentType uint8

// The encodings.
const (
	JSON     ContentType = iota // application/json, UTF-8
	Protobuf                    // application/x-protobuf, api/forebay/v1/records.proto
)

// String is the media type as answers carry it.
func (c ContentType) String() string {
	if c == Protobuf {
		return "application/x-protobuf"
	}
	return "application/json"
}

// ParseContentType reads the Content-Type of a request: application/json (charset UTF-8 or none), application/x-protobuf or
// application/protobuf. A request without one is taken as JSON. Anything else, and two headers, are UNSUPPORTED_MEDIA_TYPE.
func ParseContentType(h http.Header) (ContentType, error) {
	values := h["Content-Type"]
	switch {
	case len(values) == 0:
		return JSON, nil
	case len(values) > 1:
		return 0, fault(api.CodeUnsupportedMediaType, "Content-Type", "the header is there %d times", len(values))
	case values[0] == "application/json":
		return JSON, nil
	case values[0] == "application/x-protobuf":
		return Protobuf, nil
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err == nil {
		switch media {
		case "application/json":
			if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
				return 0, fault(api.CodeUnsupportedMediaType, "Content-Type", "JSON is UTF-8: send charset=utf-8 or none")
			}
			return JSON, nil
		case "application/x-protobuf", "application/protobuf":
			return Protobuf, nil
		}
	}
	return 0, fault(api.CodeUnsupportedMediaType, "Content-Type", "use application/json or application/x-protobuf")
}

// NegotiateAccept picks the encoding of an answer that has both forms. Without an Accept header, and when the client likes both equally,
// it is JSON. A client that accepts neither gets UNSUPPORTED_MEDIA_TYPE.
func NegotiateAccept(h http.Header) (ContentType, error) {
	values := h["Accept"]
	if len(values) == 0 || len(values) == 1 && (values[0] == "*/*" || values[0] == "application/json") {
		return JSON, nil
	}
	if len(values) == 1 && values[0] == "application/x-protobuf" {
		return Protobuf, nil
	}
	var forJSON, forProto preference
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			media, q, ok := acceptItem(item)
			if !ok {
				continue
			}
			switch media {
			case "application/json":
				forJSON.hear(3, q)
			case "application/x-protobuf", "application/protobuf":
				forProto.hear(3, q)
			case "application/*":
				forJSON.hear(2, q)
				forProto.hear(2, q)
			case "*/*":
				forJSON.hear(1, q)
				forProto.hear(1, q)
			}
		}
	}
	switch {
	case forJSON.q <= 0 && forProto.q <= 0:
		return 0, fault(api.CodeUnsupportedMediaType, "Accept", "answers are application/json or application/x-protobuf")
	case forProto.q > forJSON.q:
		return Protobuf, nil
	default:
		return JSON, nil
	}
}

// preference is the weight of one media type: that of the most specific range that covers it.
type preference struct {
	specificity int
	q           float64
}

func (p *preference) hear(specificity int, q float64) {
	if specificity > p.specificity || specificity == p.specificity && q > p.q {
		p.specificity, p.q = specificity, q
	}
}

func acceptItem(item string) (media string, q float64, ok bool) {
	media, params, err := mime.ParseMediaType(item)
	if err != nil {
		return "", 0, false
	}
	q = 1
	if s, has := params["q"]; has {
		if q, err = strconv.ParseFloat(s, 64); err != nil || !(q >= 0 && q <= 1) {
			return "", 0, false
		}
	}
	return media, q, true
}
