package wire

import (
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

func queueMessages(count int) []leases.Message {
	out := make([]leases.Message, count)
	for i := range out {
		out[i] = leases.Message{
			Receipt: fmt.Sprintf("3:%d:01K8Z6B8M3W3H0F7V6S1Q2R4T5", i), Partition: 3, Attempt: int32(i%3 + 1), ExpiresAt: 1772600797008,
			Record: segment.Record{Offset: int64(i), AppendTime: 1772600767008, ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText,
				Key: fmt.Appendf(nil, "user-%d", i), Value: []byte(strings.Repeat("x", 1024))},
		}
	}
	return out
}

func TestAppendLeaseIsTheProto(t *testing.T) {
	messages := queueMessages(3)
	messages[1].Record = segment.Record{Offset: 1 << 40, AppendTime: 5, ProducerTime: 1, DeliverAt: -1, Key: []byte{0xff}, KeyBinary: true, Headers: []segment.Header{{Name: "a"}}, ID: "i"}
	messages[2].Attempt, messages[2].ExpiresAt, messages[2].Partition = 0, 0, 0
	for _, c := range []Clamped{{}, {Max: 1000}, {Max: 1000, Wait: api.MaxWait, Visibility: api.MaxVisibility, MaxBytes: api.MaxReadBytes}} {
		var got forebayv1.LeaseResponse
		b := AppendLease(nil, Protobuf, messages, &c)
		if err := proto.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&got)
		if err != nil || len(again) != len(b) {
			t.Errorf("%d bytes, the reference has %d, %v", len(b), len(again), err)
		}
		for i, m := range got.Messages {
			var rec forebayv1.Record
			if err := proto.Unmarshal(AppendRecordProto(nil, &messages[i].Record, messages[i].Partition), &rec); err != nil {
				t.Fatal(err)
			}
			want := &forebayv1.Lease{Receipt: messages[i].Receipt, Attempt: messages[i].Attempt, LeaseExpiresAtMs: messages[i].ExpiresAt, Record: &rec}
			if diff := cmp.Diff(want, m, protocmp.Transform()); diff != "" {
				t.Errorf("message %d: %s", i, diff)
			}
		}
		if (got.Clamped != nil) != c.Any() || got.Clamped.GetMax() != int32(c.Max) || got.Clamped.GetWaitMs() != c.Wait.Milliseconds() ||
			got.Clamped.GetVisibilityMs() != c.Visibility.Milliseconds() || got.Clamped.GetMaxBytes() != c.MaxBytes {
			t.Errorf("%+v became %v", c, got.Clamped)
		}
		if text := AppendLease(nil, JSON, messages, &c); !stdjson.Valid(text) || strings.Contains(string(text), "clamped") != c.Any() {
			t.Errorf("%s", text)
		}
	}
}

func TestAppendSettledIsTheProto(t *testing.T) {
	results := []leases.SettleResult{{Receipt: "a"}, {Receipt: "b", Code: api.CodeLeaseLost}, {Receipt: "c", ExpiresAt: 17}}
	var got forebayv1.SettleResponse
	if err := proto.Unmarshal(AppendSettled(nil, Protobuf, results, &Clamped{Visibility: time.Second}), &got); err != nil {
		t.Fatal(err)
	}
	want := &forebayv1.SettleResponse{Results: []*forebayv1.SettleResult{{}, {Code: "LEASE_LOST"}, {LeaseExpiresAtMs: 17}}, Clamped: &forebayv1.Clamped{VisibilityMs: proto.Int64(1000)}}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	const text = `{"results":[{"receipt":"a","code":"OK"},{"receipt":"b","code":"LEASE_LOST"},{"receipt":"c","code":"OK","leaseExpiresAt":"1970-01-01T00:00:00.017Z"}],"clamped":{"visibility":"1s"}}`
	if b := AppendSettled(nil, JSON, results, &Clamped{Visibility: time.Second}); string(b) != text {
		t.Errorf("%s", b)
	}
}

func TestValidReceipt(t *testing.T) {
	for s, want := range map[string]bool{
		"0:0:n": true, "9999:9223372036854775807:01K8-_.~!x": true, "12:345:n1": true,
		"": false, ":": false, "::": false, "0:0:": false, "0::n": false, ":0:n": false, "0:0": false, "00:0:n": false, "0:00:n": false, "0:9223372036854775808:n": false,
		"0:92233720368547758070:n": false, "10000:0:n": false, "-1:0:n": false, "0:-1:n": false, "+1:0:n": false, "0:0:a:b": false, "0:0:a b": false, "0:0:é": false, "0:0:\x00": false,
		" 0:0:n": false, "0:0:" + strings.Repeat("n", 125): false,
	} {
		if ValidReceipt(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}

func TestSubscriptionSettingsRoundTrip(t *testing.T) {
	cfg := api.SubscriptionConfig{
		VisibilityTimeout: time.Hour, MaxAttempts: 7, Backoff: api.Backoff{Initial: 1500 * time.Millisecond, Max: time.Hour, Multiplier: 1.25}, MaxInFlight: 3, MaxAckedAhead: 9,
		DeadLetterTopic: "dead", GapPolicy: api.GapSkip, Ordering: api.OrderingNone, FairShare: api.FairShare{Header: "te\"nant"},
	}
	for _, want := range []api.SubscriptionConfig{cfg, api.DefaultSubscriptionConfig()} {
		shown := AppendSubscriptionJSON(nil, subscriptionOf(want), nil)
		var members map[string]stdjson.RawMessage
		if err := stdjson.Unmarshal(shown, &members); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"name", "topic", "subscriptionID", "created"} {
			if _, ok := members[name]; !ok {
				t.Errorf("%s is missing: %s", name, shown)
			}
			delete(members, name)
		}
		body, err := stdjson.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		// What is shown can be sent, and changes nothing.
		for _, current := range []*api.SubscriptionConfig{&want, &cfg, nil} {
			s, err := DecodeSubscription(body)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if got, err := s.Apply(current); err != nil || got != want {
				t.Errorf("%s: %+v, %v", body, got, err)
			}
		}
	}
}

func TestFailedSettingsChangeNothing(t *testing.T) {
	s, err := DecodeSubscription([]byte(`{"maxAttempts":3}`))
	if err != nil {
		t.Fatal(err)
	}
	have := api.DefaultSubscriptionConfig()
	for range 2 { // metadata may ask again
		if got, err := s.Apply(&have); err != nil || got.MaxAttempts != 3 || have.MaxAttempts != 5 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func FuzzLease(f *testing.F) {
	bentSeeds(f, []byte(`{"max":10,"wait":"10s","visibility":"60s","requestId":"r-1","maxBytes":100}`),
		marshal(f, &forebayv1.LeaseRequest{Max: proto.Int32(5000), WaitMs: proto.Int64(1 << 60), VisibilityMs: proto.Int64(0), RequestId: "r", MaxBytes: proto.Int64(1 << 40)}))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, ct := range []ContentType{JSON, Protobuf} {
			l, err := DecodeLease(ct, body)
			if err != nil {
				faultCode(t, err)
				continue
			}
			if l.Max < 1 || l.Max > api.MaxLeaseRecords || l.Wait < 0 || l.Wait > api.MaxWait || l.MaxBytes < 0 || l.MaxBytes > api.MaxReadBytes ||
				l.Visibility != 0 && (l.Visibility < api.MinVisibility || l.Visibility > api.MaxVisibility) || len(l.RequestID) > api.MaxRequestIDBytes {
				t.Fatalf("out of bounds: %+v", l)
			}
			if ct == Protobuf {
				var ref forebayv1.LeaseRequest
				if err := proto.Unmarshal(body, &ref); err != nil || ref.RequestId != l.RequestID {
					t.Fatalf("the reference says %v, %v", &ref, err)
				}
			} else if len(strings.Trim(string(body), " \t\r\n")) > 0 && !stdjson.Valid(body) {
				t.Fatal("accepted what is not JSON")
			}
		}
	})
}

func FuzzSettle(f *testing.F) {
	bentSeeds(f, []byte(`{"receipts":["3:42:01K8Z6","x","\u0030:1:\ud83d\ude00"],"delay":"90s","reason":"no stock"}`), []byte(`{"receipts":["0:1:n"],"visibility":"5m"}`),
		marshal(f, &forebayv1.NackRequest{Receipts: []string{"0:1:n", "é"}, DelayMs: proto.Int64(5), Reason: "r"}),
		marshal(f, &forebayv1.ExtendRequest{Receipts: []string{"0:1:n"}, VisibilityMs: proto.Int64(5)}))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, kind := range []leases.SettleKind{leases.Ack, leases.Nack, leases.Extend} {
			for _, ct := range []ContentType{JSON, Protobuf} {
				before := slices.Clone(body)
				s, err := DecodeSettle(kind, ct, before)
				if err != nil {
					faultCode(t, err)
					continue
				}
				receipts := slices.Clone(s.Receipts)
				for i := range receipts {
					receipts[i] = strings.Clone(receipts[i])
				}
				clear(before) // nothing may refer to the body
				if !slices.Equal(receipts, s.Receipts) {
					t.Fatal("receipts share memory with the body")
				}
				if ct == Protobuf {
					var ref forebayv1.NackRequest
					if err := proto.Unmarshal(body, &ref); err != nil || !slices.Equal(ref.Receipts, s.Receipts) {
						t.Fatalf("the reference says %v, %v; decoded %q", &ref, err, s.Receipts)
					}
					continue
				}
				if len(s.Receipts) > 0 {
					var ref struct{ Receipts []string }
					if err := stdjson.Unmarshal(body, &ref); err != nil || !slices.Equal(ref.Receipts, s.Receipts) {
						t.Fatalf("the reference says %q, %v; decoded %q", ref.Receipts, err, s.Receipts)
					}
				}
			}
		}
	})
}

func FuzzQueueSettings(f *testing.F) {
	bentSeeds(f,
		[]byte(`{"visibilityTimeout":"30s","maxAttempts":5,"backoff":{"initial":"2s","max":"5m","multiplier":2,"jitter":true},"maxInFlight":1,"start":"2026-01-02T03:04:05Z","deadLetter":{"topic":"t"},"fairShare":{"by":"header","header":"x"},"push":null}`),
		[]byte(`{"offsets":{"0":42,"17":0}}`), []byte(`{"to":"earliest"}`), []byte(`{"offsets":[{"partition":3,"offset":42}],"ratePerSecond":5}`), []byte(`{"all":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if s, err := DecodeSubscription(body); err != nil {
			faultCode(t, err)
		} else if cfg, err := s.Apply(nil); err == nil {
			if cfg.MaxAttempts < 1 || cfg.MaxInFlight < 1 || cfg.MaxAckedAhead < 1 || cfg.VisibilityTimeout < api.MinVisibility || cfg.VisibilityTimeout > api.MaxVisibility ||
				cfg.Backoff.Initial < 0 || cfg.Backoff.Initial > cfg.Backoff.Max || cfg.Backoff.Max > api.MaxBackoff || !(cfg.Backoff.Multiplier >= 1) ||
				cfg.FairShare.Key && cfg.FairShare.Header != "" || cfg.DeadLetterTopic != "" && !api.ValidName(cfg.DeadLetterTopic) {
				t.Fatalf("out of bounds: %+v", cfg)
			}
		}
		if to, err := DecodeSeek(body); err != nil {
			faultCode(t, err)
		} else {
			set := 0
			for _, is := range []bool{to.Earliest, to.Latest, to.Time != nil, to.Offsets != nil} {
				if is {
					set++
				}
			}
			if set != 1 {
				t.Fatalf("%d targets: %+v", set, to)
			}
			for p, o := range to.Offsets {
				if p < 0 || p >= api.MaxPartitions || o < 0 {
					t.Fatalf("%+v", to)
				}
			}
		}
		if sel, rate, err := DecodeSelection(body, true); err != nil {
			faultCode(t, err)
		} else if sel.All == (len(sel.Offsets) > 0) || rate < 1 || rate > api.MaxRedriveRate {
			t.Fatalf("%+v, %d", sel, rate)
		}
	})
}

func subscriptionOf(cfg api.SubscriptionConfig) *metadata.Subscription {
	return &metadata.Subscription{ID: 1 << 63, Tenant: "t", Topic: "orders", Name: "work", Config: cfg, Created: 1772600767008}
}
