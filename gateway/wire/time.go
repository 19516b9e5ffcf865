package wire

import (
	"bytes"
	"time"
)

// Times on the wire lie within the years 1 to 9999, which is what RFC 3339 can write.
const (
	minTime int64 = -62135596800000 // 0001-01-01T00:00:00.000Z in Unix ms
	maxTime int64 = 253402300799999 // 9999-12-31T23:59:59.999Z
)

const timeForm = `must be an RFC 3339 time such as "2026-01-02T03:04:05.678Z"`

// parseTime parses an RFC 3339 time with any offset into Unix milliseconds. Digits below the millisecond are dropped.
func parseTime(s []byte) (int64, bool) {
	var t time.Time
	// UnmarshalText is stricter than time.Parse, but takes ISO 8601's decimal comma, which RFC 3339 does not.
	if err := t.UnmarshalText(s); err != nil || bytes.IndexByte(s, ',') >= 0 {
		return 0, false
	}
	ms := t.UnixMilli()
	return ms, ms >= minTime && ms <= maxTime
}

// timeAtOrAfter parses an RFC 3339 time to the millisecond at or after it: a record of the part that parseTime drops would be before the
// time asked for.
func timeAtOrAfter(s string) (int64, bool) {
	ms, ok := parseTime([]byte(s))
	if t, err := time.Parse(time.RFC3339Nano, s); ok && err == nil && t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms, ok
}

// ParseTime parses a query parameter that holds the RFC 3339 time, with any offset, from which on records are meant, into Unix
// milliseconds at or after it. field names the parameter in the error, an INVALID_REQUEST.
func ParseTime(field, s string) (int64, error) {
	ms, ok := timeAtOrAfter(s)
	if !ok {
		return 0, invalid(field, timeForm)
	}
	return ms, nil
}

// FormatTime is the contract's text of a time in Unix milliseconds: RFC 3339 in UTC with three decimals.
func FormatTime(ms int64) string { return string(AppendTime(nil, ms)) }

// AppendTime appends FormatTime(ms), which is always timeLength bytes. A time outside the years 1 to 9999 is shown as the nearest one inside.
func AppendTime(dst []byte, ms int64) []byte {
	text := timeText(ms)
	return append(dst, text[:]...)
}

const timeLength = len("2006-01-02T15:04:05.000Z")

// timeText formats by hand: time.AppendFormat takes several times as long, and is called for every record of an answer.
func timeText(ms int64) (text [timeLength]byte) {
	t := time.UnixMilli(min(max(ms, minTime), maxTime)).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	text = [timeLength]byte{4: '-', 7: '-', 10: 'T', 13: ':', 16: ':', 19: '.', 23: 'Z'}
	digits(text[0:4], year)
	digits(text[5:7], int(month))
	digits(text[8:10], day)
	digits(text[11:13], hour)
	digits(text[14:16], minute)
	digits(text[17:19], second)
	digits(text[20:23], t.Nanosecond()/1e6)
	return text
}

func digits(dst []byte, n int) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}
