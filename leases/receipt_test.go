package leases

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/leases/store"
)

func TestParseReceipt(t *testing.T) {
	for _, c := range []struct {
		text string
		want store.Receipt
		ok   bool
	}{
		{"0:0:a", store.Receipt{Nonce: "a"}, true},
		{"7:12:01ARZ3-_z", store.Receipt{Partition: 7, Offset: 12, Nonce: "01ARZ3-_z"}, true},
		{"9999:9007199254740992:n", store.Receipt{Partition: 9999, Offset: 1 << 53, Nonce: "n"}, true},
		{"0:0:" + strings.Repeat("x", 64), store.Receipt{Nonce: strings.Repeat("x", 64)}, true},
		{text: ""}, {text: ":"}, {text: "::"}, {text: "0:0"}, {text: "0:0:"}, {text: "0::a"}, {text: ":0:a"},
		{text: "00:0:a"}, {text: "0:01:a"}, {text: "-1:0:a"}, {text: "0:-1:a"}, {text: "+1:0:a"}, {text: "0:1e3:a"}, {text: " 0:0:a"}, {text: "0:0:a "},
		{text: "10000:0:a"}, {text: "4294967296:0:a"}, {text: "0:9007199254740993:a"}, {text: "0:9223372036854775808:a"}, {text: "0:99999999999999999999:a"},
		{text: "0:0:a:b"}, {text: "0:0:ä"}, {text: "0:0:a\x00"}, {text: "0:0:" + strings.Repeat("x", 65)},
	} {
		got, ok := parseReceipt(c.text)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%q: got %+v, %v; want %+v, %v", c.text, got, ok, c.want, c.ok)
		}
	}
}

func TestReceiptText(t *testing.T) {
	var text receiptText
	ms := make([]Message, 3)
	for range 2 { // used twice
		for i := range ms {
			text.add(3, int64(99+i), "nonce")
		}
		text.assign(ms)
		for i := range ms {
			if want := fmt.Sprintf("3:%d:nonce", 99+i); ms[i].Receipt != want {
				t.Errorf("message %d: %q, want %q", i, ms[i].Receipt, want)
			}
		}
	}
}

// FuzzParseReceipt checks that a receipt which is taken has one text only.
func FuzzParseReceipt(f *testing.F) {
	for _, s := range []string{"0:0:a", "7:12:01ARZ", "0:01:a", "9999:9007199254740992:n", "::", "1:2:3:4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, ok := parseReceipt(s)
		if !ok {
			return
		}
		if again := fmt.Sprintf("%d:%d:%s", r.Partition, r.Offset, r.Nonce); again != s {
			t.Errorf("%q was taken as %q", s, again)
		}
	})
}
