package journal

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// docs/journal-format.md is normative: what it says in numbers is what the code has.
func TestDocumentedFormat(t *testing.T) {
	page, err := os.ReadFile("../../docs/journal-format.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(page)
	length := func(k keyKind) int { return len((&key{kind: k, incarnation: 1}).encode()) }
	for _, line := range []string{
		fmt.Sprintf("| name | `%s` |", Topic),
		fmt.Sprintf("| partitions | %d, for ever", DefaultPartitions),
		fmt.Sprintf("| 0 | 1 | version, %d |", keyVersion),
		fmt.Sprintf("a process has %d of", lanes),
		fmt.Sprintf("| `%c` | seek | - | %d |", kindSeek, length(kindSeek)),
		fmt.Sprintf("| `%c` | opening | 8: the incarnation carried on from, 0 = none; 8: writer | %d |", kindOpening, length(kindOpening)),
		fmt.Sprintf("| `%c` | state | 8: incarnation; 8: writer | %d |", kindState, length(kindState)),
		fmt.Sprintf("| `%c` | pointer | 8: offset of the record; 8: incarnation, or 0; 8: writer | %d |", kindPointer, length(kindPointer)),
		fmt.Sprintf("| `%c` | task | 1 to %d: its ID | %d to %d |", kindTask, maxTaskID, keyHeadBytes+1, keyHeadBytes+maxTaskID),
		fmt.Sprintf("The first byte is the version, %d.", valueVersion),
		fmt.Sprintf("| byte | flags: %d = removed, %d = copy pending, %d = copied, %d = expired, %d = relative, %d = attached;", flagRemoved, flagCopyPending, flagCopied, flagExpired, flagRelative, flagAttached),
		fmt.Sprintf("| byte | kind: %d = retry, %d = dead, %d = scheduled.", Retry, Dead, Scheduled),
		fmt.Sprintf("| n, bytes | reason, at most %d bytes |", maxReasonBytes),
		fmt.Sprintf("| byte | flags: %d = all dead letters", taskAll),
		fmt.Sprintf("| n, bytes | state, at most %d bytes |", maxStateBytes),
		fmt.Sprintf("with more than %d of", crowd),
		fmt.Sprintf("stays for %d minutes**", DefaultGrace/time.Minute),
	} {
		if !strings.Contains(doc, line) {
			t.Errorf("docs/journal-format.md does not say: %s", line)
		}
	}
	if n := strings.Count(doc, fmt.Sprintf("| byte | version, %d |", valueVersion)); n != 3 {
		t.Errorf("%d tables of values begin with the version, want 3", n)
	}
	if maxAge != time.Hour || !strings.Contains(doc, "After more than an hour") {
		t.Errorf("the page does not say how long a process goes on from what it has read: %s", maxAge)
	}
}
