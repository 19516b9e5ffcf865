package wire

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/metadata"
)

// maxFairHeader bounds the name of the header that deliveries are shared by.
const maxFairHeader = 256

// maxMultiplier bounds how fast pauses may grow: above it the second pause is the longest one anyway.
const maxMultiplier = 1000

// SubscriptionSettings are the members that the body of PUT .../subscriptions/{subscription} names.
type SubscriptionSettings struct {
	Start           leases.Start // where a new subscription begins; latest without the member
	DeadLetterTopic string       // "" = not named, or null
	set             []func(*api.SubscriptionConfig)
}

// subscriptionDecoder decodes SubscriptionSettings and collects every fault of them.
type subscriptionDecoder struct {
	settings
	out SubscriptionSettings
}

// DecodeSubscription decodes the body of PUT .../subscriptions/{subscription}. INVALID_REQUEST with every fault by member.
func DecodeSubscription(body []byte) (*SubscriptionSettings, error) {
	d := &subscriptionDecoder{out: SubscriptionSettings{Start: leases.Start{Latest: true}}}
	err := d.decode(body, d.member, map[string]memberFunc{"/backoff": d.backoff, "/deadLetter": d.deadLetter})
	if err != nil {
		return nil, err
	}
	return &d.out, nil
}

// Apply gives the configuration with these settings: absent members keep their value in current, or, for a subscription that does not
// exist yet (nil), in api.DefaultSubscriptionConfig. INVALID_REQUEST where the members of the result contradict each other.
func (s *SubscriptionSettings) Apply(current *api.SubscriptionConfig) (api.SubscriptionConfig, error) {
	cfg := api.DefaultSubscriptionConfig()
	if current != nil {
		cfg = *current
	}
	for _, set := range s.set {
		set(&cfg)
	}
	var f faults
	if cfg.Backoff.Initial > cfg.Backoff.Max {
		f.add("/backoff/initial", "is %s, above max, which is %s; send both", FormatDuration(cfg.Backoff.Initial), FormatDuration(cfg.Backoff.Max))
	}
	if cfg.Ordering == api.OrderingKey && cfg.FairShare.Enabled() {
		f.add("/fairShare", `cannot be had together with the ordering "key"; send "fairShare": null or "ordering": "none"`)
	}
	return cfg, f.err()
}

// change notes what a member does to a configuration.
func (d *subscriptionDecoder) change(set func(*api.SubscriptionConfig)) {
	d.out.set = append(d.out.set, set)
}

func (d *subscriptionDecoder) member(at, name string, v jsontext.Value) {
	switch name {
	case "visibilityTimeout":
		d.duration(at, v, api.MinVisibility, api.MaxVisibility, func(t time.Duration) {
			d.change(func(c *api.SubscriptionConfig) { c.VisibilityTimeout = t })
		})
	case "maxAttempts":
		d.count(at, v, api.MaxMaxAttempts, func(c *api.SubscriptionConfig, n int) { c.MaxAttempts = n })
	case "backoff":
		d.faults.add(at, `must be an object such as {"initial":"2s","max":"5m","multiplier":2,"jitter":true}`)
	case "maxInFlight":
		d.count(at, v, api.MaxInFlightLimit, func(c *api.SubscriptionConfig, n int) { c.MaxInFlight = n })
	case "maxAckedAhead":
		d.count(at, v, api.MaxAckedAheadLimit, func(c *api.SubscriptionConfig, n int) { c.MaxAckedAhead = n })
	case "start":
		d.start(at, v)
	case "deadLetter":
		if v.Kind() != 'n' {
			d.faults.add(at, `must be an object such as {"topic":"orders-dead"}, or null for no copies`)
			return
		}
		d.change(func(c *api.SubscriptionConfig) { c.DeadLetterTopic = "" })
	case "gapPolicy":
		s, _ := stringValue(v)
		switch p := api.GapPolicy(s); p {
		case api.GapFail, api.GapSkip:
			d.change(func(c *api.SubscriptionConfig) { c.GapPolicy = p })
		default:
			d.faults.add(at, `must be "fail" or "skip"`)
		}
	case "ordering":
		s, _ := stringValue(v)
		switch o := api.Ordering(s); o {
		case api.OrderingNone, api.OrderingKey:
			d.change(func(c *api.SubscriptionConfig) { c.Ordering = o })
		default:
			d.faults.add(at, `must be "none" or "key"`)
		}
	case "fairShare":
		d.fairShare(at, v)
	case "push":
		// Accepting it would promise deliveries that nothing makes.
		if v.Kind() != 'n' {
			d.faults.add(at, "push is not available in this release; leave it out or send null, and lease instead")
		}
	default:
		d.faults.add(at, "there is no such member")
	}
}

func (d *subscriptionDecoder) count(at string, v jsontext.Value, most int64, set func(*api.SubscriptionConfig, int)) {
	d.integer(at, v, 1, most, func(n int64) {
		d.change(func(c *api.SubscriptionConfig) { set(c, int(n)) })
	})
}

func (d *subscriptionDecoder) start(at string, v jsontext.Value) {
	s, ok := stringValue(v)
	switch s {
	case "latest":
		d.out.Start = leases.Start{Latest: true}
		return
	case "earliest":
		d.out.Start = leases.Start{Earliest: true}
		return
	}
	ms, valid := timeAtOrAfter(s)
	if !ok || !valid {
		d.faults.add(at, `must be "latest", "earliest" or an RFC 3339 time such as "2026-01-02T03:04:05.678Z"`)
		return
	}
	d.out.Start = leases.Start{Time: &ms}
}

func (d *subscriptionDecoder) backoff(at, name string, v jsontext.Value) {
	switch name {
	case "initial":
		d.duration(at, v, 0, api.MaxBackoff, func(t time.Duration) {
			d.change(func(c *api.SubscriptionConfig) { c.Backoff.Initial = t })
		})
	case "max":
		d.duration(at, v, 0, api.MaxBackoff, func(t time.Duration) {
			d.change(func(c *api.SubscriptionConfig) { c.Backoff.Max = t })
		})
	case "multiplier":
		var m float64
		if v.Kind() != '0' || json.Unmarshal(v, &m) != nil || !(m >= 1 && m <= maxMultiplier) {
			d.faults.add(at, "must be a number between 1 and %d", maxMultiplier)
			return
		}
		d.change(func(c *api.SubscriptionConfig) { c.Backoff.Multiplier = m })
	case "jitter":
		b, ok := boolean(v)
		if !ok {
			d.faults.add(at, "must be true or false")
			return
		}
		d.change(func(c *api.SubscriptionConfig) { c.Backoff.Jitter = b })
	default:
		d.faults.add(at, "there is no such member")
	}
}

func (d *subscriptionDecoder) deadLetter(at, name string, v jsontext.Value) {
	if name != "topic" {
		d.faults.add(at, "there is no such member")
		return
	}
	s, ok := stringValue(v)
	switch {
	case v.Kind() == 'n':
		s = ""
	case !ok || !api.ValidName(s):
		d.faults.add(at, "must be the name of a topic, or null for no copies")
		return
	}
	d.out.DeadLetterTopic = s
	d.change(func(c *api.SubscriptionConfig) { c.DeadLetterTopic = s })
}

// fairShare is taken as a whole: what it shares by is one choice, not a set of members to merge.
func (d *subscriptionDecoder) fairShare(at string, v jsontext.Value) {
	const form = `must be {"by":"key"}, {"by":"header","header":"<name>"}, or null for none`
	var share api.FairShare
	switch v.Kind() {
	case 'n':
	case '{':
		var in struct {
			By     string  `json:"by"`
			Header *string `json:"header"`
		}
		err := json.Unmarshal(v, &in, json.RejectUnknownMembers(true))
		switch {
		case err == nil && in.By == "key" && in.Header == nil:
			share.Key = true
		case err == nil && in.By == "header" && in.Header != nil && *in.Header != "" && len(*in.Header) <= maxFairHeader:
			share.Header = *in.Header
		default:
			d.faults.add(at, "%s; the name of a header has 1 to %d bytes", form, maxFairHeader)
			return
		}
	default:
		d.faults.add(at, form)
		return
	}
	d.change(func(c *api.SubscriptionConfig) { c.FairShare = share })
}

// AppendSubscriptionJSON appends a subscription as the contract shows it. partitions become its statistics; nil leaves them out.
func AppendSubscriptionJSON(dst []byte, s *metadata.Subscription, partitions []leases.PartitionStats) []byte {
	c := &s.Config
	dst = append(dst, `{"name":`...)
	dst = appendString(dst, s.Name)
	dst = append(dst, `,"topic":`...)
	dst = appendString(dst, s.Topic)
	dst = append(dst, `,"subscriptionID":"`...) // a string: IDs use all 64 bits
	dst = strconv.AppendUint(dst, uint64(s.ID), 10)
	dst = append(dst, `","created":"`...)
	dst = AppendTime(dst, s.Created)
	dst = append(dst, `","visibilityTimeout":`...)
	dst = appendDurationJSON(dst, c.VisibilityTimeout)
	dst = append(dst, `,"maxAttempts":`...)
	dst = strconv.AppendInt(dst, int64(c.MaxAttempts), 10)
	dst = append(dst, `,"backoff":{"initial":`...)
	dst = appendDurationJSON(dst, c.Backoff.Initial)
	dst = append(dst, `,"max":`...)
	dst = appendDurationJSON(dst, c.Backoff.Max)
	dst = append(dst, `,"multiplier":`...)
	dst = strconv.AppendFloat(dst, c.Backoff.Multiplier, 'f', -1, 64)
	dst = append(dst, `,"jitter":`...)
	dst = strconv.AppendBool(dst, c.Backoff.Jitter)
	dst = append(dst, `},"maxInFlight":`...)
	dst = strconv.AppendInt(dst, int64(c.MaxInFlight), 10)
	dst = append(dst, `,"maxAckedAhead":`...)
	dst = strconv.AppendInt(dst, int64(c.MaxAckedAhead), 10)
	dst = append(dst, `,"deadLetter":{"topic":`...)
	dst = appendOptional(dst, c.DeadLetterTopic)
	dst = append(dst, `},"gapPolicy":`...)
	dst = appendString(dst, string(c.GapPolicy))
	dst = append(dst, `,"ordering":`...)
	dst = appendString(dst, string(c.Ordering))
	dst = append(dst, `,"fairShare":`...)
	switch {
	case c.FairShare.Key:
		dst = append(dst, `{"by":"key"}`...)
	case c.FairShare.Header != "":
		dst = append(dst, `{"by":"header","header":`...)
		dst = append(appendString(dst, c.FairShare.Header), '}')
	default:
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"push":null`...)
	if partitions != nil {
		dst = append(dst, `,"partitions":[`...)
		for i := range partitions {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendPartitionStats(dst, &partitions[i])
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func appendPartitionStats(dst []byte, p *leases.PartitionStats) []byte {
	dst = append(dst, `{"partition":`...)
	dst = strconv.AppendInt(dst, int64(p.Partition), 10)
	for _, n := range [...]struct {
		name string
		v    int64
	}{
		{`,"frontier":`, p.Frontier}, {`,"head":`, p.Head}, {`,"logStart":`, p.LogStart}, {`,"inFlight":`, p.InFlight}, {`,"ackedAhead":`, p.AckedAhead},
		{`,"owed":`, p.Owed}, {`,"delayed":`, p.Delayed}, {`,"waiting":`, p.Waiting}, {`,"lag":`, p.Lag}, {`,"deadLetters":`, p.DeadLetters},
		{`,"skipped":`, p.Skipped},
	} {
		dst = append(dst, n.name...)
		dst = strconv.AppendInt(dst, max(n.v, 0), 10)
	}
	dst = append(dst, `,"oldestUnackedAgeSeconds":`...)
	dst = appendSeconds(dst, p.OldestUnackedAge)
	dst = append(dst, `,"retentionHeadroomSeconds":`...)
	if p.RetentionHeadroom == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendSeconds(dst, *p.RetentionHeadroom)
	}
	dst = append(dst, `,"gap":`...)
	if p.Gap == nil {
		return append(dst, "null}"...)
	}
	dst = append(dst, `{"from":`...)
	dst = strconv.AppendInt(dst, p.Gap.From, 10)
	dst = append(dst, `,"to":`...)
	dst = strconv.AppendInt(dst, p.Gap.To, 10)
	return append(dst, "}}"...)
}

// appendSeconds appends seconds to the millisecond, never below 0.
func appendSeconds(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, float64(max(d, 0).Milliseconds())/1000, 'f', -1, 64)
}
