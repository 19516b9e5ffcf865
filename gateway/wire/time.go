package wire

import (
	"time"
)

// Times on the wire lie within the years 1 to 9999, which is what RFC 3339 can write.
const (
	minTime int64 = -62135596800000 // 0001-01-01T00:00:00.000Z in Unix ms
	maxTime int64 = 253402300799999 // 9999-12-31T23:59:59.999Z
)

const timeText = `must be an RFC 3339 time such as "2026-01-02T03:04:05.678Z"`

// parseTime parses an RFC 3339 time with any offset into Unix milliseconds. Digits below the millisecond are dropped.
func parseTime(s []byte) (int64, bool) {
	var t time.Time
	if err := t.UnmarshalText(s); err != nil { // stricter than time.Parse
		return 0, false
	}
	ms := t.UnixMilli()
	return ms, ms >= minTime && ms <= maxTime
}

// ParseTime parses a query parameter that holds an RFC 3339 time with any offset, into Unix milliseconds (finer digits are dropped).
// field names the parameter in the error, an INVALID_REQUEST.
func ParseTime(field, s string) (int64, error) {
	ms, ok := parseTime([]byte(s))
	if !ok {
		return 0, invalid(field, timeText)
	}
	return ms, nil
}

// FormatTime is the contract's text of a time in Unix milliseconds: RFC 3339 in UTC with three decimals.
func FormatTime(ms int64) string { return string(AppendTime(nil, ms)) }

// AppendTime appends FormatTime(ms). A time outside the years 1 to 9999 is shown as the nearest one inside.
func AppendTime(dst []byte, ms int64) []byte {
	ms = min(max(ms, minTime), maxTime)
	return time.UnixMilli(ms).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
}
