package wire

import (
	"math"
	"strconv"

	"github.com/forebaymq/forebay/api"
)

// integer parses a decimal integer: "-"? ("0" | [1-9][0-9]*), within int64, and not "-0". JSON's own number grammar is wider: 1e3, 1.5
// and -0 are numbers, but not integers as this contract writes them.
func integer(s []byte) (int64, bool) {
	digits := s
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
		if len(digits) > 0 && digits[0] == '0' {
			return 0, false
		}
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(string(s), 10, 64)
	return n, err == nil
}

// ParseInt parses a query parameter that holds an integer. field names the parameter in the error, an INVALID_REQUEST.
func ParseInt(field, s string) (int64, error) {
	n, ok := integer([]byte(s))
	if !ok {
		return 0, invalid(field, "must be an integer in decimal digits between %d and %d", int64(math.MinInt64), int64(math.MaxInt64))
	}
	return n, nil
}

// ParseIntIn is ParseInt with bounds, both included.
func ParseIntIn(field, s string, low, high int64) (int64, error) {
	n, ok := integer([]byte(s))
	if !ok || n < low || n > high {
		return 0, invalid(field, "must be an integer in decimal digits between %d and %d", low, high)
	}
	return n, nil
}

// ParsePartition parses the partition of a path. What cannot be a partition of any topic is UNKNOWN_PARTITION only where it is a number;
// other text is INVALID_REQUEST.
func ParsePartition(s string) (int32, error) {
	n, ok := integer([]byte(s))
	if !ok || n < 0 {
		return 0, invalid("partition", "must be an integer in decimal digits, 0 or above")
	}
	if n >= api.MaxPartitions {
		return 0, api.Errorf(api.CodeUnknownPartition, "partition %d does not exist: a topic has at most %d", n, api.MaxPartitions)
	}
	return int32(n), nil
}
