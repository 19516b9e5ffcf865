package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/api"
)

func TestCursorText(t *testing.T) {
	for text, want := range map[string]cursor{
		"0:17,0x6,4":                {0, []int64{17, 0, 0, 0, 0, 0, 0, 4}},
		"3:120":                     {3, []int64{120}},
		"0:0x2,9223372036854775807": {0, []int64{0, 0, 1<<63 - 1}},
	} {
		if got := string(want.append(nil)); got != text {
			t.Errorf("%v is written %s, want %s", want, got, text)
		}
		got, err := parseCursor(text)
		if err != nil || got.first != want.first || !slices.Equal(got.offsets, want.offsets) {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
}

func TestCursorRefusals(t *testing.T) {
	for _, text := range []string{
		"", ":", "0", "0:", "0:,", "0:1,", "0:,1", "a:1", "-1:0", "00:1", "0:01", "0:-1", "0:1x", "0:1x0", "0:1x1", "0:1x02", "0:x2", "0: 1", "0:1 ", "0:1e3",
		"0:9223372036854775808", "0:99999999999999999999", "10000:1", "0:1x10001", "9999:1,1", "0:1x9223372036854775807", "0:1x5000,2x5001", "0:1:2", "0:1\n",
	} {
		if c, err := parseCursor(text); api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("%q is read as %v, %v", text, c, err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{"0:17,0x6,4", "3:120", "0:0x10000", "9999:1", "0:1x2,1", "", "0:1x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			return
		}
		if len(c.offsets) == 0 || int(c.first)+len(c.offsets) > api.MaxPartitions {
			t.Fatalf("%q has %d partitions from %d", s, len(c.offsets), c.first)
		}
		text := string(c.append(nil))
		again, err := parseCursor(text)
		if err != nil || again.first != c.first || !slices.Equal(again.offsets, c.offsets) {
			t.Fatalf("%q is written %q and read as %v, %v", s, text, again, err)
		}
		if strings.ContainsAny(text, "\r\n\x00 ") {
			t.Fatalf("%q cannot be an id", text)
		}
	})
}
