package store

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

// documented reads the keys of one section of docs/lease-keys.md.
func documented(t *testing.T, section string) []string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/lease-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(doc), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	if !ok {
		t.Fatalf("docs/lease-keys.md has no section %s", section)
	}
	var keys []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(text, -1) {
		keys = append(keys, row[1])
	}
	return keys
}

func TestKeysAgainstTheDocument(t *testing.T) {
	t.Parallel()
	subscription := documented(t, "Keys of a subscription")
	want := []string{keyShards, keyBlocks + ":<p>", keyExpiries, keySettled + ":<p>", keyPointers + ":<p>", keyOwed + ":<p>", keyOwedHeads, keyScheduled + ":<p>",
		keyDetached + ":<p>", keyDead, keyCopies, keyChanged + ":<p>", keyDirty, keyLocks + ":<p>", keyHashes + ":<p>", keyWaiting + ":<p>", keyFairCounts,
		keyFairTurns, keyFairWaiting + ":<p>:<key hash>", keyRemembered + ":<request>", keyHints + ":<name>"}
	if strings.Join(subscription, " ") != strings.Join(want, " ") {
		t.Fatalf("documented %q, want %q", subscription, want)
	}
	if group := strings.Join(documented(t, "Keys of a group"), " "); group != groupDue+" "+groupDirty+" "+groupSubs {
		t.Fatal(group)
	}

	// Everything that a queue's life leaves in Redis is documented, and everything documented is written.
	r := miniRig(t)
	ctx := context.Background()
	patterns := map[string]*regexp.Regexp{}
	for _, k := range documented(t, "Keys of a group") {
		patterns[k] = regexp.MustCompile(`^fb:\{test\.\d+\}:` + k + `$`)
	}
	for _, k := range subscription {
		re := strings.NewReplacer("<p>", `\d+`, "<key hash>", `[0-9a-z]+`, "<request>", `[A-Za-z0-9_-]+`, "<name>", `[A-Za-z0-9_-]+`).Replace(k)
		patterns[k] = regexp.MustCompile(`^fb:\{test\.\d+\}:\d+:` + re + `$`)
	}
	used := map[string]int{}
	look := func() {
		for _, key := range r.mini.Keys() {
			n := 0
			for k, re := range patterns {
				if re.MatchString(key) {
					n++
					used[k]++
				}
			}
			if n != 1 {
				t.Fatalf("%s is documented %d times", key, n)
			}
		}
	}
	for i, kind := range []string{"plain", "ordered", "fair"} {
		q := queue(80)
		q.ID += metadata.SubscriptionID(i)
		q.Ordered, q.Fair, q.CopyDead, q.MaxAttempts = kind == "ordered", kind == "fair", true, 2
		r.open(q, 0)
		work(t, r, q)
		look()
		if kind == "fair" {
			r.admit(q, 0, 8, 1, 1)
		}
		if err := r.s.Remember(ctx, q, "a request: ü", nil, time.Minute); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.s.Lock(ctx, q, "redrive/1", "me", time.Minute); !ok || err != nil {
			t.Fatal(err)
		}
		ds := r.deadLetters(q)
		if len(ds) != 1 {
			t.Fatal(ds)
		}
		if _, _, _, err := r.s.Redrive(ctx, q, Selection{All: true, Before: r.redisNow()}, 9, ""); err != nil {
			t.Fatal(err)
		}
		look()
	}
	for k := range patterns {
		if used[k] == 0 {
			t.Errorf("%s is documented and never written", k)
		}
	}
}

// The fields of values are as many as documented.
func TestValuesAgainstTheDocument(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/lease-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| (shard|subscription|pointer) \| (.*) \|$`).FindAllStringSubmatch(string(doc), -1) {
		plain := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(row[2], "")
		fields[row[1]] = len(strings.Split(plain, ","))
	}
	r := miniRig(t)
	q := queue(85)
	r.open(q, 0)
	work(t, r, q)
	h := r.raw.HGetAll(t.Context(), r.s.prefix(q.ID)+keyShards).Val()
	p := r.raw.HGetAll(t.Context(), r.s.prefix(q.ID)+keyPointers+":0").Val()
	for kind, value := range map[string]string{"shard": h["0"], "subscription": h[fieldMeta], "pointer": p[pad(1)]} {
		if n := len(strings.Fields(value)); n != fields[kind] || n == 0 {
			t.Errorf("%s has %d fields, documented are %d: %q", kind, n, fields[kind], value)
		}
	}
	for _, block := range r.raw.HGetAll(t.Context(), r.s.prefix(q.ID)+keyBlocks+":0").Val() {
		if !regexp.MustCompile(`^\d+(\|\d+,\d+,\d+,[LMAN]+)+$`).MatchString(block) {
			t.Errorf("block %q", block)
		}
	}
}

// The constants and the scripts name the same fields.
func TestScriptsNameTheKeys(t *testing.T) {
	t.Parallel()
	e := newEdition("x", 1)
	for s := range scripts {
		if e.text[s] == "" || len(e.sha[s]) != 40 {
			t.Fatal(s)
		}
	}
	all := strings.Join(e.text[:], "")
	for _, k := range []string{keyBlocks + ":", keySettled + ":", keyPointers + ":", keyOwed + ":", keyScheduled + ":", keyDetached + ":", keyChanged + ":",
		keyLocks + ":", keyHashes + ":", keyWaiting + ":", keyFairWaiting + ":", keyExpiries, keyOwedHeads, keyDead, keyCopies, keyDirty, keyFairCounts, keyFairTurns} {
		if !strings.Contains(all, "B .. '"+k+"'") {
			t.Errorf("no script uses %s", k)
		}
	}
	if !strings.Contains(all, "'"+fieldStaged+"' .. p") || strings.Contains(newEdition("x\ny", 1).text[0], "\ny") {
		t.Error("staged field, or the instance's line")
	}
	if a, b := newEdition("x", 1), newEdition("x", 2); a.sha == b.sha {
		t.Error("two lives share names")
	}
}
