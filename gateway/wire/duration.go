package wire

import (
	"errors"
	"math"
	"strconv"
	"time"
)

const day = 24 * time.Hour

// errDuration says what a duration looks like. Text for FieldErrors.
var errDuration = errors.New(`must be a duration such as "500ms", "30s", "90m", "72h", "3d" or "1h30m", in whole milliseconds`)

// durationUnits in the order in which a duration may name them.
var durationUnits = [...]struct {
	name string
	size time.Duration
}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

// ParseDuration parses "500ms", "30s", "72h", "3d" and sums such as "1d12h" or "1m30.5s": numbers with a unit, larger units first, each
// unit once, no sign. The sum is a whole number of milliseconds, and at most about 292 years.
func ParseDuration(s string) (time.Duration, error) {
	var total time.Duration
	next := 0 // units before this one are used up
	if s == "" {
		return 0, errDuration
	}
	for s != "" {
		digits, frac, scale := int64(0), int64(0), int64(1)
		i := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			if digits > (math.MaxInt64-9)/10 {
				return 0, errDuration
			}
			digits = digits*10 + int64(s[i]-'0')
			i++
		}
		if i == 0 {
			return 0, errDuration
		}
		if i < len(s) && s[i] == '.' {
			start := i + 1
			for i++; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
				if scale >= 1e9 {
					return 0, errDuration
				}
				frac = frac*10 + int64(s[i]-'0')
				scale *= 10
			}
			if i == start {
				return 0, errDuration
			}
		}
		end := i
		for end < len(s) && (s[end] < '0' || s[end] > '9') {
			end++
		}
		unit := time.Duration(0)
		for ; next < len(durationUnits) && unit == 0; next++ {
			if durationUnits[next].name == s[i:end] {
				unit = durationUnits[next].size
			}
		}
		if unit == 0 || digits > int64(math.MaxInt64/unit) {
			return 0, errDuration
		}
		part := time.Duration(digits) * unit
		// frac < 1e9 and a day is below 1e14 ns, so the product of the whole milliseconds (below 1e8) and frac fits.
		fracMs := frac * int64(unit/time.Millisecond)
		if fracMs%scale != 0 {
			return 0, errDuration
		}
		fracPart := time.Duration(fracMs/scale) * time.Millisecond
		if part > math.MaxInt64-fracPart || total > math.MaxInt64-fracPart-part {
			return 0, errDuration
		}
		total += part + fracPart
		s = s[end:]
	}
	return total, nil
}

// FormatDuration is the contract's text of d: a whole number of the largest of h, m, s and ms that divides it ("72h", "90m", "500ms").
// Parts below a millisecond are dropped; zero is "0s".
func FormatDuration(d time.Duration) string { return string(AppendDuration(nil, d)) }

// AppendDuration appends FormatDuration(d).
func AppendDuration(dst []byte, d time.Duration) []byte {
	d = d.Truncate(time.Millisecond)
	if d == 0 {
		return append(dst, "0s"...)
	}
	for _, u := range durationUnits[1:] {
		if d%u.size == 0 {
			return append(strconv.AppendInt(dst, int64(d/u.size), 10), u.name...)
		}
	}
	return dst // not reached: d is a multiple of a millisecond
}
