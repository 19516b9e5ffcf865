package wire

import (
	"math"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

func TestParseInt(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "7": 7, "-1": -1, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
	} {
		if got, err := ParseInt("offset", in); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "-", "+1", "-0", "00", "01", "-01", "1e3", "1.5", "1.0", " 1", "1 ", "0x1", "1_0", "\"5\"", "٣",
		"9223372036854775808", "-9223372036854775809", "99999999999999999999"} {
		_, err := ParseInt("offset", in)
		if err == nil {
			t.Errorf("%q: accepted", in)
		} else if code, at := faultOf(t, err); code != api.CodeInvalidRequest || at != "offset" {
			t.Errorf("%q: %v", in, err)
		}
	}
	if n, err := ParseIntIn("limit", "1000", 1, 1000); n != 1000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, in := range []string{"0", "1001", "x"} {
		if _, err := ParseIntIn("limit", in, 1, 1000); api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("limit %q: %v", in, err)
		}
	}
	for in, code := range map[string]api.Code{"0": "", "9999": "", "10000": api.CodeUnknownPartition,
		"9223372036854775807": api.CodeUnknownPartition, "-1": api.CodeInvalidRequest, "a": api.CodeInvalidRequest, "": api.CodeInvalidRequest} {
		if _, err := ParsePartition(in); api.CodeOf(err) != code {
			t.Errorf("partition %q: %v", in, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0s": 0, "0ms": 0, "500ms": 500 * time.Millisecond, "30s": 30 * time.Second, "72h": 72 * time.Hour, "3d": 72 * time.Hour,
		"90m": 90 * time.Minute, "1d2h3m4s5ms": 26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond, "1h30m": 90 * time.Minute,
		"1.5h": 90 * time.Minute, "1m30.5s": 90500 * time.Millisecond, "0.001s": time.Millisecond, "0.5d": 12 * time.Hour,
		"0005s": 5 * time.Second, "106751d": 106751 * day, "9223372036854ms": 9223372036854 * time.Millisecond,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "5", "0", "s", "-1s", "+1s", "1", "1 s", " 1s", "1s ", "1S", "1s1s", "1s1m", "1ms1s", "1.s", ".5s", "1.5", "1..5s",
		"1us", "1µs", "1ns", "1w", "1y", "1e3s", "0.0001s", "0.5ms", "1,5s", "106752d", "106751d24h", "9223372036855ms", "99999999999999999999s",
		"9223372036854775807d", "0.1234567890s", "1h-1m", "infinity"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q: accepted as %v", in, got)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", time.Microsecond: "0s", time.Millisecond: "1ms", 1500 * time.Millisecond: "1500ms", time.Second: "1s", 90 * time.Second: "90s",
		time.Minute: "1m", 90 * time.Minute: "90m", time.Hour: "1h", 72 * time.Hour: "72h", 7 * day: "168h",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
		if back, err := ParseDuration(FormatDuration(d)); err != nil || back != d.Truncate(time.Millisecond) {
			t.Errorf("%v: back as %v, %v", d, back, err)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, ms := range []int64{minTime, minTime + 1, -1, 0, 1, 951782400000, 951868799999, 1709164800000, 1772600767008, 4102444800000, maxTime} {
		text := FormatTime(ms)
		if want := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00"); text != want {
			t.Errorf("%d: %s, want %s", ms, text, want)
		}
		if back, err := ParseTime("timestamp", text); err != nil || back != ms {
			t.Errorf("%s: back as %d, %v", text, back, err)
		}
	}
	for ms := int64(-86400000 * 800); ms < 86400000*800; ms += 7654321 {
		if got, want := FormatTime(ms), time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00"); got != want {
			t.Fatalf("%d: %s, want %s", ms, got, want)
		}
	}
	if FormatTime(math.MaxInt64) != "9999-12-31T23:59:59.999Z" || FormatTime(math.MinInt64) != "0001-01-01T00:00:00.000Z" {
		t.Error("times out of range")
	}
	for _, in := range []string{"", "now", "1772600767008", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z", "2026-02-30T00:00:00Z",
		"2026-01-02T24:00:00Z", "2026-01-02T03:04:60Z", "2026-01-02T03:04:05+25:00", "2026-1-2T03:04:05Z", "10000-01-01T00:00:00Z",
		"2026-01-02T03:04:05,5Z", "9999-12-31T23:59:59.999-23:00"} {
		if ms, err := ParseTime("timestamp", in); api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("%q: %d, %v", in, ms, err)
		}
	}
}
