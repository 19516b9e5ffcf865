package journal

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/journal-format.md is normative for consumer groups as well.
func TestDocumentedGroupFormat(t *testing.T) {
	page, err := os.ReadFile("../../docs/journal-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, doc, found := strings.Cut(string(page), "\n## Consumer groups\n")
	if !found {
		t.Fatal("the page has no section of groups")
	}
	length := func(k keyKind) int { return len((&groupKey{kind: k}).encode()) }
	for _, line := range []string{
		fmt.Sprintf("`%s`", strings.Replace(GroupProducer(7), "7", "<group>", 1)),
		fmt.Sprintf("| 0 | 1 | version, %d |", keyVersion),
		fmt.Sprintf("| `%c` | generation | - | %d |", kindGeneration, length(kindGeneration)),
		fmt.Sprintf("| `%c` | offset | 8: topic; 4: partition | %d |", kindOffset, length(kindOffset)),
		fmt.Sprintf("at most %d.", maxGroupText),
		fmt.Sprintf("| byte | flags: %d = deleted;", flagDeleted),
		fmt.Sprintf("| byte | flags: %d = begins at the earliest record, %d = absent, %d = reads the topics of the member before;", flagEarliest, flagAbsent, flagSameTopics),
		fmt.Sprintf("only without flag %d:", flagSameTopics),
	} {
		if !strings.Contains(doc, line) {
			t.Errorf("docs/journal-format.md does not say of groups: %s", line)
		}
	}
}
