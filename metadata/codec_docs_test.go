package metadata

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/api"
)

// docs/metadata-keys.md is normative: what it says in numbers is what the code has.
func TestDocumentedEncodings(t *testing.T) {
	raw, err := os.ReadFile("../docs/metadata-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	kinds := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+)` \\|").FindAllStringSubmatch(doc, -1) {
		kinds[m[2]] = m[1]
	}
	for _, c := range []Command{&Commit{}, &CreateTopic{}, &UpdateTopic{}, &DeleteTopic{}, &Trim{}, &Replace{}, &GCBoundary{}, &ProducerEpoch{},
		&CreateSubscription{}, &UpdateSubscription{}, &DeleteSubscription{}, &CreateGroup{}, &DeleteGroup{}} {
		name := reflect.TypeOf(c).Elem().Name()
		if got, want := kinds[name], fmt.Sprint(c.kind()); got != want {
			t.Errorf("docs/metadata-keys.md has kind %q for %s, the code has %s", got, name, want)
		}
		delete(kinds, name)
	}
	if len(kinds) > 0 {
		t.Errorf("docs/metadata-keys.md names kinds that the code does not have: %v", kinds)
	}
	for _, line := range []string{
		fmt.Sprintf("| version | byte | %d |", entryVersion),
		fmt.Sprintf("| magic | %d | `%s` |", len(snapshotMagic), snapshotMagic),
		fmt.Sprintf("| version | 1 | %d; %d and up can be read |", snapshotVersion, oldestSnapshot),
		fmt.Sprintf("| subscriptions of one topic | %d |", api.MaxSubscriptionsPerTopic),
		fmt.Sprintf("| consumer groups of one tenant | %d |", api.MaxGroupsPerTenant),
		fmt.Sprintf("| method | 1 | %d = the payload is the body, %d = it is one zstd frame of the body |", snapshotRaw, snapshotZstd),
		fmt.Sprintf("at most %d times the payload and %d bytes |", maxSnapshotRatio, maxSnapshotSlack),
		fmt.Sprintf("| a producer's window or session unused | %d days by the shard's clock (the highest time in any entry); at most %d and one a new window", producerTTL/(24*3600*1000), sweepBudget),
		fmt.Sprintf("| windows of one partition | %d |", maxProducers),
		fmt.Sprintf("| sequences in a window | %d, and %d bytes packed |", windowSequences, windowBytes),
		fmt.Sprintf("| sequences in a block of a window | %d; a block of %d bytes is closed too |", blockSequences, blockBytes),
		fmt.Sprintf("| event IDs of one partition | %d |", maxDedupeIDs),
		fmt.Sprintf("| event IDs dropped by a batch once expired | %d, and two for each of its records |", dedupeSweep),
	} {
		if !strings.Contains(doc, line) {
			t.Errorf("docs/metadata-keys.md does not say: %s", line)
		}
	}
}

// The first bytes of an entry and of a snapshot, spelled out once by hand.
func TestEncodingsByHand(t *testing.T) {
	got := fmt.Sprintf("%x", stEntry(t, &DeleteTopic{TopicID: 300}, &Trim{TopicID: 1, Partition: 2, LogStart: -3, Claim: "c", ClaimEpoch: 4}))
	if want := "01" + "02" + "04ac02" + "050102" + "05" + "0163" + "08"; got != want {
		t.Errorf("entry %s, want %s", got, want)
	}
	got = fmt.Sprintf("%x", stEntry(t, &CreateSubscription{TopicID: 300, Name: "w", Now: 2, Config: api.SubscriptionConfig{VisibilityTimeout: 1, MaxAttempts: 2,
		Backoff: api.Backoff{Initial: 3, Max: 4, Multiplier: 2, Jitter: true}, MaxInFlight: 5, MaxAckedAhead: 6, DeadLetterTopic: "d", GapPolicy: "g", Ordering: "o",
		FairShare: api.FairShare{Key: true, Header: "h"}}, Starts: []api.PartitionOffset{{Partition: 0, Offset: 200}, {Partition: 3, Offset: 1}}},
		&DeleteSubscription{ID: 300}))
	if want := "01" + "02" + "09ac02" + "0177" + "04" + "02" + "04" + "0608" + "4000000000000000" + "01" + "0a" + "0c" + "0164" + "0167" + "016f" + "01" + "0168" +
		"02" + "01c801" + "0301" + "0bac02"; got != want {
		t.Errorf("entry\n%s, want\n%s", got, want)
	}
	got = fmt.Sprintf("%x", stEntry(t, &CreateGroup{Tenant: "t", Name: "g", Now: 2}, &DeleteGroup{ID: 300}))
	if want := "01" + "02" + "0c0174" + "0167" + "04" + "0dac02"; got != want {
		t.Errorf("entry %s, want %s", got, want)
	}
	c := &Commit{Segment: SegmentRef{ID: stULID(0x010203, 4), Level: 1, Class: "k", Size: 200}, AppendTime: 1,
		Groups: []Group{{Tenant: "t"}, {Tenant: "t", Producer: &Producer{ID: "t", Epoch: 1, Sequence: 2}}},
		Batches: []BatchDelta{
			{TopicID: 5, Partition: 3, Records: 2, RawBytes: 9, Group: 1},
			{TopicID: 5, Partition: 4, Records: 1, RawBytes: 9, Group: -1, IDHashes: [][16]byte{{15: 7}}},
		}}
	c.Batches[0].Ref.Pos, c.Batches[0].Ref.Len = 32, 10
	c.Batches[1].Ref.Pos, c.Batches[1].Ref.Len = 42, 10
	got = fmt.Sprintf("%x", stEntry(t, c))
	want := "01" + "01" + "01" + "00000001020300000000000000000004" + "01" + "016b" + "c801" + "02" +
		"02" + "000174" + "00" + "01" + "01" + "01" + "02" + "04" +
		"02" + "0a" + "06" + "02" + "40" + "0a" + "09" + "08" +
		"00" + "02" + "01" + "00" + "0a" + "09" + "07" + "00000000000000000000000000000007"
	if got != want {
		t.Errorf("commit\n%s, want\n%s", got, want)
	}
	c = &Commit{AppendTime: 1, Groups: []Group{{Tenant: "t", Producer: &Producer{ID: "t", Epoch: 1, Sequence: NoSequence}}}}
	got = fmt.Sprintf("%x", stEntry(t, c))
	if want := "01" + "01" + "01" + strings.Repeat("00", 16) + "000000" + "02" + "01" + "000174" + "02" + "01" + "02" + "00"; got != want {
		t.Errorf("commit\n%s, want\n%s", got, want)
	}
	if got := fmt.Sprintf("%x", NewState(3, 16).SnapshotBody()); got != "1003"+strings.Repeat("00", 19) {
		t.Errorf("empty body %s", got)
	}
}
