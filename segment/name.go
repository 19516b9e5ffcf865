package segment

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"
)

// Name names a segment. Key is the one place that makes object names of segments, and ParseKey its exact inverse.
type Name struct {
	ID    [16]byte // ULID
	Level uint8
	Class string // retention class of level 1 and higher ("ttl=7d", "keep"), "" at level 0
}

const (
	nameSuffix = ".seg"
	level0     = "l0"
	maxClass   = 64
)

// Check says why n has no key, or nil. A class is 1 to 64 of a-z 0-9 = . _ -, not beginning with a dot, and not a name that
// lifecycle rules must never cover ("l0", "snap").
func (n Name) Check() error {
	if n.Level == 0 {
		if n.Class != "" {
			return fmt.Errorf("segment name: level 0 has no class, but it is %q", n.Class)
		}
		return nil
	}
	if n.Class == "" || len(n.Class) > maxClass || n.Class == level0 || n.Class == "snap" || n.Class[0] == '.' {
		return fmt.Errorf("segment name: level %d cannot have class %q", n.Level, n.Class)
	}
	for _, c := range []byte(n.Class) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '=' || c == '.' || c == '_' || c == '-') {
			return fmt.Errorf("segment name: class %q has a byte other than a-z 0-9 = . _ -", n.Class)
		}
	}
	return nil
}

// Key is the object key: "l0/<2 hex>/<ULID>.seg", or "<class>/l<level>/<2 hex>/<ULID>.seg" from level 1 on. The two hex digits are a
// hash of the ULID: ULIDs share their first characters for a long time, and stores spread load by key prefix. n must pass Check.
func (n Name) Key() string {
	var b strings.Builder
	b.Grow(len(n.Class) + 48)
	if n.Level > 0 {
		b.WriteString(n.Class)
		b.WriteByte('/')
	}
	b.WriteByte('l')
	b.WriteString(strconv.Itoa(int(n.Level)))
	b.WriteByte('/')
	const hex = "0123456789abcdef"
	s := spread(n.ID)
	b.WriteByte(hex[s>>4])
	b.WriteByte(hex[s&15])
	b.WriteByte('/')
	b.WriteString(ulid.ULID(n.ID).String())
	b.WriteString(nameSuffix)
	return b.String()
}

// spread folds FNV-1a of the ULID to one byte.
func spread(id [16]byte) byte {
	h := fnv.New32a()
	h.Write(id[:]) // never fails
	s := h.Sum32()
	return byte(s ^ s>>8 ^ s>>16 ^ s>>24)
}

// ParseKey reads a key that Key made, and refuses every other string.
func ParseKey(key string) (Name, error) {
	fail := func(why string) (Name, error) { return Name{}, fmt.Errorf("segment key %q: %s", key, why) }
	parts := strings.Split(key, "/")
	var n Name
	if len(parts) == 4 {
		n.Class = parts[0]
		parts = parts[1:]
	}
	if len(parts) != 3 {
		return fail("want l0/<2 hex>/<ULID>.seg or <class>/l<level>/<2 hex>/<ULID>.seg")
	}
	number, ok := strings.CutPrefix(parts[0], "l")
	level, err := strconv.ParseUint(number, 10, 8)
	if !ok || err != nil {
		return fail("no level")
	}
	n.Level = uint8(level)
	text, ok := strings.CutSuffix(parts[2], nameSuffix)
	if !ok {
		return fail("does not end with " + nameSuffix)
	}
	id, err := ulid.ParseStrict(text)
	if err != nil {
		return fail(err.Error())
	}
	n.ID = id
	if err := n.Check(); err != nil {
		return fail(err.Error())
	}
	if n.Key() != key {
		return fail("is not in canonical form")
	}
	return n, nil
}
