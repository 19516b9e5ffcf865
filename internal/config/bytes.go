package config

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
)

// Bytes is a size on the command line: "8MiB", "512kB", "1048576".
type Bytes int64

// UnmarshalText reads a size with or without a unit, decimal (kB, MB) or binary (KiB, MiB).
func (b *Bytes) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("%q is not a size: want a number with B, kB, MB, GB, KiB, MiB or GiB", text)
	}
	*b = Bytes(n)
	return nil
}

// String writes the size exactly, with the largest binary unit that divides it.
func (b Bytes) String() string {
	n, unit := int64(b), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, u
	}
	return fmt.Sprintf("%d%s", n, unit)
}

// MarshalText is String.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
