package work

import (
	"strings"
	"unicode/utf8"

	"github.com/forebaymq/forebay/api"
)

// reasonText makes an error's text fit for a nack: valid UTF-8 of bounded length, and never empty.
func reasonText(err error) string {
	s := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if s == "" {
		return "failed"
	}
	if len(s) <= api.MaxReasonBytes {
		return s
	}
	n := api.MaxReasonBytes
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
