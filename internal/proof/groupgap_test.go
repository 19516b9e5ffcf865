package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestGroupGap: a group that is slower than retention ends in a gap that is named by the interface, by the command line and by a metric. Until somebody decides,
// nothing is passed over: polls and reads are refused, while heartbeats and commits elsewhere go on. A seek decides.
func TestGroupGap(t *testing.T) {
	t.Parallel() // it waits for retention most of the time
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	addrs := ports(t, 2)
	tokenFile := filepath.Join(dir, "token")
	server := start(t, "dev", addrs[1], []string{"FOREBAY_RETENTION_EVERY=100ms"},
		"dev", "--data", filepath.Join(dir, "data"), "--listen", addrs[0], "--ops-listen", addrs[1], "--token-file", tokenFile)
	if err := server.ready(ctx); err != nil {
		t.Fatal(err)
	}
	node := newRest("http://"+addrs[0], token(t, tokenFile))
	const topic, group = "orders", "/v1/groups/billing"
	put := func(config map[string]any) {
		t.Helper()
		if err := node.call(ctx, "PUT", "/v1/topics/"+topic, config, nil); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(n int) {
		t.Helper()
		for p := range 2 {
			if _, _, err := node.publish(ctx, topic, p, make([]string, n), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	describe := func() (s groupState) {
		t.Helper()
		if err := node.call(ctx, "GET", group, nil, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	// command runs the product's own command.
	command := func(args ...string) (string, error) {
		p := start(t, args[0], "", []string{"FOREBAY_SERVER=http://" + addrs[0], "FOREBAY_TOKEN_FILE=" + tokenFile}, args...)
		<-p.exited
		return p.log.tail(), p.err
	}
	put(map[string]any{"partitions": 2, "retention": map[string]any{"time": nil}})
	publish(100)
	l := newGroupLoad("billing", topic, 1, nil, node.token, node.base)
	l.session, l.heads = time.Minute, make([]int64, 2)
	m, _ := l.member(t, rand.New(rand.NewPCG(1, 1)), "slow")
	m.join(ctx, nil)
	commit := func(partition int, offset int64) error {
		return m.ask(ctx, "offsets", map[string]any{"generation": m.generation, "offsets": []groupPlace{{topic, partition, offset}}}, nil)
	}
	if err := errors.Join(commit(0, 50), commit(1, 100)); err != nil {
		t.Fatal(err)
	}

	// Retention overtakes the group on partition 0, and only there.
	put(map[string]any{"retention": map[string]any{"time": "1s"}})
	if err := within(ctx, func() error {
		for _, p := range describe().Partitions {
			if p.LogStart != 100 {
				return fmt.Errorf("partition %d begins at %d", p.Partition, p.LogStart)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	put(map[string]any{"retention": map[string]any{"time": nil}})
	publish(20)

	// The interface names what is lost.
	for _, p := range describe().Partitions {
		if p.Partition == 0 && (p.Gap == nil || p.Gap.From != 50 || p.Gap.To != 100 || p.Lag != 20 || *p.Committed != 50) {
			t.Errorf("partition 0 is described as %+v, gap %v", p, p.Gap)
		}
		if p.Partition == 1 && (p.Gap != nil || p.Lag != 20 || *p.Committed != 100) {
			t.Errorf("partition 1 is described as %+v, gap %v", p, p.Gap)
		}
	}
	// What it has not overtaken is still to be had, once, with the gap beside it.
	var beside struct {
		Partitions []struct {
			Partition int32             `json:"partition"`
			Records   []json.RawMessage `json:"records"`
		} `json:"partitions"`
		Gaps []problemGap `json:"gaps"`
	}
	if err := m.ask(ctx, "poll", map[string]any{"generation": m.generation}, &beside); err != nil || len(beside.Partitions) != 1 ||
		beside.Partitions[0].Partition != 1 || len(beside.Partitions[0].Records) != 20 || !reflect.DeepEqual(beside.Gaps, []problemGap{{topic, 0, 50, 100}}) {
		t.Errorf("a poll beside the gap answers %+v, %v", beside, err)
	}
	for range 2 { // it stays so
		err := m.ask(ctx, "poll", map[string]any{"generation": m.generation}, nil)
		var p *problem
		if !errors.As(err, &p) || p.Status != 409 || p.Code != "RETENTION_GAP" || !reflect.DeepEqual(p.Gaps, []problemGap{{topic, 0, 50, 100}}) {
			t.Errorf("a poll answers %v, gaps %+v", err, p)
		}
	}
	err := node.call(ctx, "GET", "/v1/topics/"+topic+"/partitions/0/records?offset=50", nil, nil)
	var p *problem
	if !errors.As(err, &p) || p.Status != 416 || p.Code != "OFFSET_OUT_OF_RANGE" || p.LogStart != 100 || p.Head != 120 {
		t.Errorf("a read of what is lost answers %v", err)
	}

	// The group lives on meanwhile.
	if generation := m.generation; !m.heartbeat(ctx, nil) || m.generation != generation || len(m.at) != 2 {
		t.Errorf("a heartbeat in the gap: generation %d, then %d, owned %v", generation, m.generation, m.at)
	}
	if err := commit(1, 110); err != nil {
		t.Errorf("a commit of another partition: %v", err)
	}

	// So does the command line, and a metric says that there is something to decide.
	const lost = "LOST: retention has deleted 50 offsets of orders partition 0 before group billing read it: 50 to 99"
	if out, err := command("groups", "describe", "billing"); err != nil || !strings.Contains(out, lost) || !strings.Contains(out, "forebay groups seek billing --topic orders --offset 0:100") {
		t.Errorf("groups describe: %v\n%s", err, out)
	}
	if err := within(ctx, func() error {
		gaps, records := metric(t, ctx, addrs[1], "forebay_groups_gap_partitions"), metric(t, ctx, addrs[1], "forebay_groups_gap_records")
		if gaps != 1 || records != 50 {
			return fmt.Errorf("the metrics count %v partitions and %v records", gaps, records)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if n := metric(t, ctx, addrs[1], "forebay_groups_polls_total"); n < 2 {
		t.Errorf("%v polls are counted", n)
	}

	// Deciding: not with live members, but for a dry run, which says what it would skip and what not.
	seek := func(to string, dry bool) (sought []map[string]any, err error) {
		var out struct {
			Partitions []map[string]any `json:"partitions"`
		}
		err = node.call(ctx, "POST", group+"/seek", map[string]any{"topic": topic, "to": to, "dryRun": dry}, &out)
		return out.Partitions, err
	}
	wantSought := func(got []map[string]any, err error, want string) {
		t.Helper()
		b, _ := json.Marshal(got)
		if string(b) != want || err != nil {
			t.Errorf("sought %s, %v; want %s", b, err, want)
		}
	}
	if _, err := seek("earliest", false); code(err) != "CONFLICT" {
		t.Errorf("a seek with a live member: %v", err)
	}
	got, err := seek("latest", true)
	wantSought(got, err, `[{"from":50,"lost":50,"partition":0,"repeats":0,"skipped":20,"to":120,"topic":"orders"},{"from":110,"lost":0,"partition":1,"repeats":0,"skipped":10,"to":120,"topic":"orders"}]`)
	if out, err := command("groups", "seek", "billing", "--topic", topic, "--offset", "0:100", "--dry-run"); err != nil || !strings.Contains(out, "0 records skipped") {
		t.Errorf("groups seek --dry-run: %v\n%s", err, out)
	}
	m.leave(ctx)
	// Whoever just begins to consume is stopped as well, and told why.
	if out, err := command("consume", "--group", "billing", "--topic", topic); err == nil || !strings.Contains(out, lost) {
		t.Errorf("consume in a gap ends with %v\n%s", err, out)
	}
	if s := describe(); *s.Partitions[0].Committed != 50 || s.Partitions[0].Gap == nil {
		t.Errorf("somebody has decided: %+v", s.Partitions[0])
	}
	if out, err := command("groups", "seek", "billing", "--topic", topic, "--offset", "0:100"); err != nil {
		t.Fatalf("groups seek: %v\n%s", err, out)
	}
	if s := describe(); *s.Partitions[0].Committed != 100 || s.Partitions[0].Gap != nil || s.Partitions[0].Lag != 20 {
		t.Errorf("after the seek: %+v", s.Partitions[0])
	}

	// And reading goes on at the first record that is left.
	m.id = ""
	m.join(ctx, nil)
	var out struct {
		Partitions []struct {
			Partition int
			Records   []struct{ Offset int64 }
		}
	}
	if err := m.ask(ctx, "poll", map[string]any{"generation": m.generation}, &out); err != nil {
		t.Fatal(err)
	}
	first := map[int]int64{}
	for _, p := range out.Partitions {
		first[p.Partition] = p.Records[0].Offset
	}
	if first[0] != 100 {
		t.Errorf("reading goes on at %v", first)
	}
	if err := within(ctx, func() error {
		if n := metric(t, ctx, addrs[1], "forebay_groups_gap_records"); n != 0 {
			return fmt.Errorf("the metric still counts %v records", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
