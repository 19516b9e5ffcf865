package wire

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

// topicDecoder decodes the body of PUT /v1/topics/{topic} and collects every fault of it.
type topicDecoder struct {
	settings
	cfg         api.TopicConfig
	acknowledge bool
}

// DecodeTopicConfig decodes the body of PUT /v1/topics/{topic}. Members that are absent keep their value in current, or, for a topic that
// does not exist yet (nil), in api.DefaultTopicConfig; an empty body changes nothing. acknowledged is "acknowledgeKeyRemap".
//
// Codes: INVALID_REQUEST with every fault by member, PARTITIONS_CANNOT_SHRINK, and CONFLICT where partitions are raised without
// acknowledgeKeyRemap, which moves keys to other partitions from then on.
func DecodeTopicConfig(body []byte, current *api.TopicConfig) (cfg api.TopicConfig, acknowledged bool, err error) {
	d := &topicDecoder{cfg: api.DefaultTopicConfig()}
	if current != nil {
		d.cfg = *current
	}
	err = d.decode(body, d.member, map[string]memberFunc{"/retention": d.retention, "/schema": d.schema})
	if err != nil {
		return api.TopicConfig{}, false, err
	}
	if current != nil {
		switch from, to := current.Partitions, d.cfg.Partitions; {
		case to < from:
			e := fault(api.CodePartitionsCannotShrink, "/partitions",
				"the topic has %d partitions, and records of the last ones would have nowhere to be; create another topic with fewer", from)
			return api.TopicConfig{}, false, e.With("partitions", from)
		case to > from && !d.acknowledge:
			e := fault(api.CodeConflict, "/acknowledgeKeyRemap",
				"going from %d to %d partitions sends most keys to another partition, so order per key breaks at this point; "+
					`send "acknowledgeKeyRemap": true if that is acceptable`, from, to)
			return api.TopicConfig{}, false, e.With("partitions", from)
		}
	}
	return d.cfg, d.acknowledge, nil
}

func (d *topicDecoder) member(at, name string, v jsontext.Value) {
	switch name {
	case "partitions":
		d.integer(at, v, 1, api.MaxPartitions, func(n int64) { d.cfg.Partitions = int(n) })
	case "retention":
		d.faults.add(at, `must be an object such as {"time":"72h","bytes":null}`)
	case "cleanup":
		s, ok := stringValue(v)
		switch c := api.Cleanup(s); {
		case ok && (c.Compacts() || c.Deletes()):
			d.cfg.Cleanup = c
		default:
			d.faults.add(at, `must be "delete", "compact" or "compact,delete"`)
		}
	case "minCompactionLag":
		d.duration(at, v, 0, api.MaxRetention, func(t time.Duration) { d.cfg.MinCompactionLag = t })
	case "tombstoneRetention":
		d.duration(at, v, 0, api.MaxRetention, func(t time.Duration) { d.cfg.TombstoneRetention = t })
	case "residency":
		s, ok := stringValue(v)
		switch {
		case v.Kind() == 'n':
			d.cfg.Residency = ""
		case ok && api.ValidName(s):
			d.cfg.Residency = s
		default:
			d.faults.add(at, "must be the name of a region, or null for none")
		}
	case "mirror":
		// Accepting it would promise a copy that nothing makes.
		b, ok := boolean(v)
		switch {
		case !ok:
			d.faults.add(at, "must be true or false")
		case b:
			d.faults.add(at, "mirroring is not available in this release; leave it out or send false")
		default:
			d.cfg.Mirror = false
		}
	case "maxRecordBytes":
		d.integer(at, v, 1, api.MaxRecordBytes, func(n int64) { d.cfg.MaxRecordBytes = int(n) })
	case "dedupeWindow":
		d.duration(at, v, 0, api.MaxDedupeWindow, func(t time.Duration) { d.cfg.DedupeWindow = t })
	case "schema":
		if v.Kind() != 'n' {
			d.faults.add(at, `must be an object such as {"subject":null,"mode":"off"}`)
			return
		}
		d.cfg.SchemaSubject, d.cfg.SchemaMode = "", "off"
	case "acknowledgeKeyRemap":
		b, ok := boolean(v)
		if !ok {
			d.faults.add(at, "must be true or false")
		}
		d.acknowledge = b
	default:
		d.faults.add(at, "there is no such member")
	}
}

func (d *topicDecoder) retention(at, name string, v jsontext.Value) {
	switch name {
	case "time":
		if v.Kind() == 'n' {
			d.cfg.RetentionTime = 0
			return
		}
		s, ok := stringValue(v)
		t, err := ParseDuration(s)
		switch {
		case !ok || err != nil:
			d.faults.add(at, "%v, or null to keep records for ever", errDuration)
		case t <= 0 || t > api.MaxRetention:
			d.faults.add(at, "must be above 0 and at most %s, or null to keep records for ever", FormatDuration(api.MaxRetention))
		default:
			d.cfg.RetentionTime = t
		}
	case "bytes":
		if v.Kind() == 'n' {
			d.cfg.RetentionBytes = 0
			return
		}
		n, ok := integer(v)
		if !ok || n < 1 {
			d.faults.add(at, "must be an integer above 0 (stored bytes of a partition), or null for no bound")
			return
		}
		d.cfg.RetentionBytes = n
	default:
		d.faults.add(at, "there is no such member")
	}
}

func (d *topicDecoder) schema(at, name string, v jsontext.Value) {
	s, ok := stringValue(v)
	switch name {
	case "subject":
		switch {
		case v.Kind() == 'n':
			d.cfg.SchemaSubject = ""
		case ok && api.ValidName(s):
			d.cfg.SchemaSubject = s
		default:
			d.faults.add(at, "must be the name of a subject, or null for none")
		}
	case "mode":
		switch {
		case ok && s == "off":
			d.cfg.SchemaMode = s
		case ok && s == "enforce":
			// Accepting it would promise a check that nothing makes.
			d.faults.add(at, `schemas are not enforced in this release; leave it out or send "off"`)
		default:
			d.faults.add(at, `must be "enforce" or "off"`)
		}
	default:
		d.faults.add(at, "there is no such member")
	}
}

// AppendTopicJSON appends a topic as the contract shows it. partitions, by number, become partitionInfo; nil leaves it out (lists).
func AppendTopicJSON(dst []byte, t *metadata.Topic, partitions []metadata.PartitionInfo) []byte {
	c := &t.Config
	dst = append(dst, `{"name":`...)
	dst = appendString(dst, t.Name)
	dst = append(dst, `,"topicID":"`...) // a string: IDs use all 64 bits
	dst = strconv.AppendUint(dst, uint64(t.ID), 10)
	dst = append(dst, `","created":"`...)
	dst = AppendTime(dst, t.Created)
	dst = append(dst, `","partitions":`...)
	dst = strconv.AppendInt(dst, int64(c.Partitions), 10)
	dst = append(dst, `,"retention":{"time":`...)
	if c.RetentionTime > 0 {
		dst = appendDurationJSON(dst, c.RetentionTime)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"bytes":`...)
	if c.RetentionBytes > 0 {
		dst = strconv.AppendInt(dst, c.RetentionBytes, 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `},"cleanup":`...)
	dst = appendString(dst, string(c.Cleanup))
	dst = append(dst, `,"minCompactionLag":`...)
	dst = appendDurationJSON(dst, c.MinCompactionLag)
	dst = append(dst, `,"tombstoneRetention":`...)
	dst = appendDurationJSON(dst, c.TombstoneRetention)
	dst = append(dst, `,"residency":`...)
	dst = appendOptional(dst, c.Residency)
	dst = append(dst, `,"mirror":`...)
	dst = strconv.AppendBool(dst, c.Mirror)
	dst = append(dst, `,"maxRecordBytes":`...)
	dst = strconv.AppendInt(dst, int64(c.MaxRecordBytes), 10)
	dst = append(dst, `,"dedupeWindow":`...)
	dst = appendDurationJSON(dst, c.DedupeWindow)
	dst = append(dst, `,"schema":{"subject":`...)
	dst = appendOptional(dst, c.SchemaSubject)
	dst = append(dst, `,"mode":`...)
	dst = appendString(dst, c.SchemaMode)
	dst = append(dst, '}')
	if partitions != nil {
		dst = append(dst, `,"partitionInfo":[`...)
		for i := range partitions {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"partition":`...)
			dst = strconv.AppendInt(dst, int64(i), 10)
			dst = append(dst, `,"logStart":`...)
			dst = strconv.AppendInt(dst, partitions[i].LogStart, 10)
			dst = append(dst, `,"head":`...)
			dst = strconv.AppendInt(dst, partitions[i].Head, 10)
			dst = append(dst, `,"bytes":`...)
			dst = strconv.AppendInt(dst, partitions[i].Bytes, 10)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func appendDurationJSON(dst []byte, d time.Duration) []byte {
	dst = append(dst, '"')
	return append(AppendDuration(dst, d), '"')
}

func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}
