package etcd

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/forebaymq/forebay/metadata"
)

// keyTable reads the patterns of docs/metadata-keys.md's table of keys, as regular expressions by pattern.
func keyTable(t *testing.T) map[string]*regexp.Regexp {
	t.Helper()
	doc, err := os.ReadFile("../../docs/metadata-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(doc), "\n## Keys\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok || !strings.Contains(section, "`"+DefaultPrefix+"`") {
		t.Fatalf("docs/metadata-keys.md has no section Keys that names the prefix %s", DefaultPrefix)
	}
	table := map[string]*regexp.Regexp{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1) {
		re := regexp.MustCompile(`<[^>]+>`).ReplaceAllStringFunc(regexp.QuoteMeta(row[1]), func(field string) string {
			switch {
			case strings.Contains(field, "%04x"):
				return `[0-9a-f]{4}`
			case strings.Contains(field, "%016x"):
				return `[0-9a-f]{16}`
			default:
				return `[A-Za-z0-9._-]+`
			}
		})
		table[row[1]] = regexp.MustCompile("^" + regexp.QuoteMeta(DefaultPrefix) + re + "$")
	}
	return table
}

// Everything that a fabric writes in its life is in the table, and everything in the table is written.
func TestKeysAgainstTheDocument(t *testing.T) {
	table := keyTable(t)
	if len(table) != 5 {
		t.Fatalf("the table has %d rows: %v", len(table), table)
	}
	s := startServer(t, ServerConfig{})
	d := s.Driver(t.Context(), DriverOptions{})
	defer func() { _ = d.Close() }()
	if _, err := d.Init(t.Context(), metadata.Fabric{Format: 1, Shards: 16}); err != nil {
		t.Fatal(err)
	}
	claim, held, err := d.Claim(t.Context(), "housekeeper", "n1", time.Minute)
	if err != nil || !held {
		t.Fatal(held, err)
	}
	var rev int64
	for seq := range uint64(3) {
		e := []metadata.LogEntry{{Shard: 0, Stream: "n1-01J", Seq: seq, Value: []byte{1}}, {Shard: 15, Stream: "n1-01J", Seq: seq, Value: []byte{1}}}
		if rev, err = d.Append(t.Context(), e, nil); err != nil {
			t.Fatal(err)
		}
	}
	p := metadata.SnapshotPointer{Shard: 15, Revision: rev, Object: "snap/0015/x"}
	if err := d.PutSnapshot(t.Context(), p, []metadata.LogEntry{{Shard: 15, Stream: "n1-01J", Seq: 1}}, metadata.Guard{Claim: "housekeeper", Epoch: claim.Epoch}); err != nil {
		t.Fatal(err)
	}
	all, err := d.c.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	for _, kv := range all.Kvs {
		matches := 0
		for pattern, re := range table {
			if re.Match(kv.Key) {
				used[pattern]++
				matches++
			}
		}
		if matches != 1 {
			t.Errorf("key %s matches %d rows of the table", kv.Key, matches)
		}
	}
	for pattern := range table {
		if used[pattern] == 0 {
			t.Errorf("nothing wrote %s", pattern)
		}
	}
	want := []string{"claim/housekeeper", "fabric", "head/0000", "head/000f", "log/0000/n1-01J/0000000000000000", "log/0000/n1-01J/0000000000000001",
		"log/0000/n1-01J/0000000000000002", "log/000f/n1-01J/0000000000000002", "snap/000f"}
	var got []string
	for _, kv := range all.Kvs {
		got = append(got, strings.TrimPrefix(string(kv.Key), DefaultPrefix))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("keys:\n got %v\nwant %v", got, want)
	}
}

func TestParseKeys(t *testing.T) {
	k := keys{DefaultPrefix}
	for _, shard := range []int{0, 1, 255, 65535} {
		for _, seq := range []uint64{0, 1, 1<<63 + 5} {
			s, stream, q, err := k.parseEntry(k.entry(shard, "node.a-01JABC", seq))
			if err != nil || s != shard || stream != "node.a-01JABC" || q != seq {
				t.Errorf("entry %d/%d: %d/%s/%d, %v", shard, seq, s, stream, q, err)
			}
		}
		if s, err := k.parseSnap(k.snap(shard)); err != nil || s != shard {
			t.Errorf("pointer %d: %d, %v", shard, s, err)
		}
	}
	for _, bad := range []string{
		"", DefaultPrefix, DefaultPrefix + "log/", DefaultPrefix + "log/0000/a", DefaultPrefix + "log/0000/a/1", DefaultPrefix + "log/000g/a/0000000000000001",
		DefaultPrefix + "log/0000//0000000000000001", DefaultPrefix + "log/0000/a/00000000000000zz", DefaultPrefix + "log/0000/a/b/0000000000000001",
		DefaultPrefix + "log/000F/a/0000000000000001", DefaultPrefix + "log/+0F1/a/0000000000000001", "/other/log/0000/a/0000000000000001",
	} {
		if _, _, _, err := k.parseEntry(bad); err == nil {
			t.Errorf("entry key %q was accepted", bad)
		}
	}
	for _, bad := range []string{"", DefaultPrefix + "snap/", DefaultPrefix + "snap/1", DefaultPrefix + "snap/000F", "snap/0000"} {
		if _, err := k.parseSnap(bad); err == nil {
			t.Errorf("pointer key %q was accepted", bad)
		}
	}
}

func TestDecodePointerRefusesDamage(t *testing.T) {
	good, err := encodePointer(metadata.SnapshotPointer{Shard: 3, Revision: 9, Object: "o", Hash: [32]byte{7}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := decodePointer(3, []byte(good))
	if err != nil || p != (metadata.SnapshotPointer{Shard: 3, Revision: 9, Object: "o", Hash: [32]byte{7}}) {
		t.Errorf("round trip: %+v, %v", p, err)
	}
	for _, bad := range []string{"", "{}", "null", good[:len(good)-1], strings.Replace(good, `"o"`, `""`, 1), strings.Replace(good, "9", "-9", 1), `{"revision":1,"object":"o","hash":"AAAA"}`} {
		if _, err := decodePointer(3, []byte(bad)); err == nil {
			t.Errorf("pointer %q was accepted", bad)
		}
	}
}
