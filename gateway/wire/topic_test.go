package wire

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

func TestDecodeTopicConfig(t *testing.T) {
	present := api.TopicConfig{
		Partitions: 4, RetentionTime: time.Hour, RetentionBytes: 5, Cleanup: api.CleanupCompact, MinCompactionLag: time.Second,
		TombstoneRetention: time.Minute, Residency: "eu", MaxRecordBytes: 10, DedupeWindow: time.Minute, SchemaSubject: "s", SchemaMode: "off",
	}
	with := func(c api.TopicConfig, set func(*api.TopicConfig)) api.TopicConfig { set(&c); return c }
	for _, c := range []struct {
		in      string
		current *api.TopicConfig
		want    api.TopicConfig
	}{
		{``, nil, api.DefaultTopicConfig()},
		{` {} `, nil, api.DefaultTopicConfig()},
		{`{}`, &present, present},
		{"\n", &present, present},
		{`{"retention":{}}`, &present, present},
		{`{"retention":{"time":null}}`, &present, with(present, func(c *api.TopicConfig) { c.RetentionTime = 0 })},
		{`{"retention":{"bytes":null}}`, &present, with(present, func(c *api.TopicConfig) { c.RetentionBytes = 0 })},
		{`{"residency":null,"schema":null}`, &present, with(present, func(c *api.TopicConfig) { c.Residency, c.SchemaSubject = "", "" })},
		{`{"schema":{"subject":null}}`, &present, with(present, func(c *api.TopicConfig) { c.SchemaSubject = "" })},
		{`{"partitions":4}`, &present, present},
		{`{"partitions":5,"acknowledgeKeyRemap":true}`, &present, with(present, func(c *api.TopicConfig) { c.Partitions = 5 })},
		{`{"partitions":10000,"retention":{"time":"3d","bytes":9223372036854775807},"cleanup":"compact,delete","minCompactionLag":"0s",
		   "tombstoneRetention":"2h","residency":"eu-west-1","mirror":false,"maxRecordBytes":1048576,"dedupeWindow":"24h",
		   "schema":{"subject":"orders-value","mode":"off"},"acknowledgeKeyRemap":false}`, nil,
			api.TopicConfig{Partitions: 10000, RetentionTime: 72 * time.Hour, RetentionBytes: 9223372036854775807, Cleanup: api.CleanupCompactDelete,
				TombstoneRetention: 2 * time.Hour, Residency: "eu-west-1", MaxRecordBytes: 1 << 20, DedupeWindow: 24 * time.Hour,
				SchemaSubject: "orders-value", SchemaMode: "off"}},
	} {
		got, ack, err := DecodeTopicConfig([]byte(c.in), c.current)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.in, diff)
		}
		if ack != strings.Contains(c.in, `Remap":true`) {
			t.Errorf("%s: acknowledged %v", c.in, ack)
		}
	}
}

func TestDecodeTopicConfigRefused(t *testing.T) {
	present := api.DefaultTopicConfig()
	const inv = api.CodeInvalidRequest
	for _, c := range []struct {
		in       string
		code     api.Code
		pointers []string
	}{
		{`null`, inv, []string{""}},
		{`[]`, inv, []string{""}},
		{`{} {}`, inv, []string{""}},
		{`{"partitions":7}`, api.CodePartitionsCannotShrink, []string{"/partitions"}},
		{`{"partitions":7,"acknowledgeKeyRemap":true}`, api.CodePartitionsCannotShrink, []string{"/partitions"}},
		{`{"partitions":9}`, api.CodeConflict, []string{"/acknowledgeKeyRemap"}},
		{`{"partitions":9,"acknowledgeKeyRemap":false}`, api.CodeConflict, []string{"/acknowledgeKeyRemap"}},
		{`{"partitions":0}`, inv, []string{"/partitions"}},
		{`{"partitions":10001}`, inv, []string{"/partitions"}},
		{`{"partitions":9e0}`, inv, []string{"/partitions"}},
		{`{"partitions":"9"}`, inv, []string{"/partitions"}},
		{`{"partitions":8,"partitions":8}`, inv, []string{"/partitions"}},
		{`{"retention":"72h"}`, inv, []string{"/retention"}},
		{`{"retention":null}`, inv, []string{"/retention"}},
		{`{"retention":{"time":"0s"}}`, inv, []string{"/retention/time"}},
		{`{"retention":{"time":"36501d"}}`, inv, []string{"/retention/time"}},
		{`{"retention":{"time":5}}`, inv, []string{"/retention/time"}},
		{`{"retention":{"bytes":0}}`, inv, []string{"/retention/bytes"}},
		{`{"retention":{"bytes":1e9}}`, inv, []string{"/retention/bytes"}},
		{`{"retention":{"size":1}}`, inv, []string{"/retention/size"}},
		{`{"retention":{"time":"1h","time":"1h"}}`, inv, []string{"/retention/time"}},
		{`{"cleanup":"none"}`, inv, []string{"/cleanup"}},
		{`{"cleanup":"delete,compact"}`, inv, []string{"/cleanup"}},
		{`{"cleanup":null}`, inv, []string{"/cleanup"}},
		{`{"minCompactionLag":null}`, inv, []string{"/minCompactionLag"}},
		{`{"tombstoneRetention":"-1s"}`, inv, []string{"/tombstoneRetention"}},
		{`{"residency":""}`, inv, []string{"/residency"}},
		{`{"residency":"eu/west"}`, inv, []string{"/residency"}},
		{`{"mirror":true}`, inv, []string{"/mirror"}},
		{`{"mirror":"no"}`, inv, []string{"/mirror"}},
		{`{"maxRecordBytes":0}`, inv, []string{"/maxRecordBytes"}},
		{`{"maxRecordBytes":1048577}`, inv, []string{"/maxRecordBytes"}},
		{`{"dedupeWindow":"25h"}`, inv, []string{"/dedupeWindow"}},
		{`{"schema":{"mode":"enforce"}}`, inv, []string{"/schema/mode"}},
		{`{"schema":{"mode":"on"}}`, inv, []string{"/schema/mode"}},
		{`{"schema":{"subject":""}}`, inv, []string{"/schema/subject"}},
		{`{"schema":{"x":{"y":1}}}`, inv, []string{"/schema/x"}},
		{`{"schema":"s"}`, inv, []string{"/schema"}},
		{`{"acknowledgeKeyRemap":1}`, inv, []string{"/acknowledgeKeyRemap"}},
		{`{"x":{"y":{}},"Partitions":8}`, inv, []string{"/x", "/Partitions"}},
		{`{"partitions":0,"cleanup":"x","retention":{"bytes":-1,"time":"x"},"a/b":1}`, inv,
			[]string{"/partitions", "/cleanup", "/retention/bytes", "/retention/time", "/a~1b"}},
		{"{\"residency\":\"\xff\"}", inv, []string{"/residency"}},
		{`{"residency":"\ud800"}`, inv, []string{"/residency"}},
	} {
		_, _, err := DecodeTopicConfig([]byte(c.in), &present)
		var e *api.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		var at []string
		for _, f := range e.Fields {
			at = append(at, f.Pointer)
			if f.Detail == "" {
				t.Errorf("%s: nothing is said about %s", c.in, f.Pointer)
			}
		}
		if diff := cmp.Diff(c.pointers, at); e.Code != c.code || diff != "" {
			t.Errorf("%s: %s %v: %s", c.in, e.Code, err, diff)
		}
	}
}

// An answer does not grow with a hostile body.
func TestTopicFaultsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, `,"%d%s":1`, i, strings.Repeat("x", 2000))
	}
	_, _, err := DecodeTopicConfig([]byte("{"+b.String()[1:]+"}"), nil)
	if _, body := AppendProblem(nil, err, "r"); api.CodeOf(err) != api.CodeInvalidRequest || len(body) > 64<<10 {
		t.Errorf("%d bytes of answer", len(body))
	}
}

func TestAppendTopicJSON(t *testing.T) {
	topic := &metadata.Topic{ID: 1<<64 - 1, Tenant: "secret", Name: "orders", Created: 1772600767008, Config: api.DefaultTopicConfig()}
	got := string(AppendTopicJSON(nil, topic, []metadata.PartitionInfo{{}, {LogStart: 1, Head: 2, Bytes: 3, LastAppend: 4}}))
	want := `{"name":"orders","topicID":"18446744073709551615","created":"2026-03-04T05:06:07.008Z","partitions":8,` +
		`"retention":{"time":"72h","bytes":null},"cleanup":"delete","minCompactionLag":"0s","tombstoneRetention":"24h","residency":null,` +
		`"mirror":false,"maxRecordBytes":1048576,"dedupeWindow":"0s","schema":{"subject":null,"mode":"off"},` +
		`"partitionInfo":[{"partition":0,"logStart":0,"head":0,"bytes":0},{"partition":1,"logStart":1,"head":2,"bytes":3}]}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if list := string(AppendTopicJSON(nil, topic, nil)); strings.Contains(list, "partitionInfo") || !stdjson.Valid([]byte(list)) {
		t.Error(list)
	}
}

// What a topic shows is what PUT takes: the configuration survives the way out and in.
func TestTopicConfigRoundTrip(t *testing.T) {
	for _, cfg := range []api.TopicConfig{
		api.DefaultTopicConfig(),
		{Partitions: 3, RetentionTime: 90 * time.Minute, RetentionBytes: 7, Cleanup: api.CleanupCompactDelete, MinCompactionLag: 1500 * time.Millisecond,
			TombstoneRetention: time.Hour, Residency: "eu", MaxRecordBytes: 9, DedupeWindow: time.Minute, SchemaSubject: "s", SchemaMode: "off"},
		{Partitions: 1, Cleanup: api.CleanupCompact, MaxRecordBytes: 1, SchemaMode: "off"},
	} {
		var shown map[string]stdjson.RawMessage
		if err := stdjson.Unmarshal(AppendTopicJSON(nil, &metadata.Topic{Config: cfg}, nil), &shown); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"name", "topicID", "created"} {
			delete(shown, name)
		}
		body, err := stdjson.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := DecodeTopicConfig(body, nil)
		if diff := cmp.Diff(cfg, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
}
