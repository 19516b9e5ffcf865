package wire

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/groups"
)

// object decodes a body that is one JSON object, and calls member with the reader before the value of each of its members. example is
// what the body may look like, for the error about an empty one.
func object(body []byte, example string, member func(r jsonReader, name string) error) error {
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return invalid("", "the body is empty; it must be a JSON object such as %s", example)
	}
	r := newJSONReader(body)
	if err := r.object("a JSON object", member); err != nil {
		return err
	}
	return r.finish()
}

// object reads an object.
func (r jsonReader) object(what string, member func(r jsonReader, name string) error) error {
	if err := r.begin('{', what); err != nil {
		return err
	}
	for r.more() {
		name, err := r.name()
		if err != nil {
			return err
		}
		if err := member(r, string(name)); err != nil {
			return err
		}
	}
	return r.end()
}

// array reads an array of at most so many elements, and calls element with the pointer to each.
func (r jsonReader) array(what string, most int, element func(r jsonReader, at string) error) error {
	if err := r.begin('[', what); err != nil {
		return err
	}
	at := r.pointer()
	for i := 0; r.more(); i++ {
		if i == most {
			return invalid(at, "has more than %d elements", most)
		}
		if err := element(r, at+"/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return r.end()
}

// optionalText reads a string, or null as "".
func (r jsonReader) optionalText() (string, error) {
	if r.dec.PeekKind() == 'n' {
		_, err := r.value()
		return "", err
	}
	text, err := r.text()
	return string(text), err
}

func (r jsonReader) integerIn(low, high int64) (int64, error) {
	n, err := r.integer()
	if err == nil && (n < low || n > high) {
		err = invalid(r.pointer(), "must be between %d and %d", low, high)
	}
	return n, err
}

// id reads the ID of a member or of an instance; null is "".
func (r jsonReader) id(into *string) (err error) {
	if *into, err = r.optionalText(); err != nil {
		return err
	}
	ok := len(*into) <= groups.MaxMemberIDBytes
	for i := 0; i < len(*into); i++ {
		ok = ok && (*into)[i] > ' ' && (*into)[i] <= '~'
	}
	if !ok {
		return invalid(r.pointer(), "must be at most %d printable ASCII characters without spaces", groups.MaxMemberIDBytes)
	}
	return nil
}

func (r jsonReader) topicName(into *string) error {
	text, err := r.text()
	if err != nil {
		return err
	}
	if *into = string(text); !api.ValidName(*into) {
		return invalid(r.pointer(), "must be the name of a topic")
	}
	return nil
}

func (r jsonReader) generation(into *int64) (err error) {
	*into, err = r.integerIn(0, math.MaxInt64)
	return err
}

func noMember(r jsonReader, known string) error {
	return invalid(r.pointer(), "there is no such member; there are %s", known)
}

// missing names what a request of a member does not say.
func missing(memberID string, generation int64) error {
	var f faults
	if memberID == "" {
		f.add("/memberId", "is missing: the one that a join has answered")
	}
	if generation <= 0 {
		f.add("/generation", "is missing: the one that a join or a heartbeat has answered")
	}
	return f.err()
}

// DecodeJoin decodes the body of POST /v1/groups/{group}/join. Name is for the caller to set. INVALID_REQUEST.
func DecodeJoin(body []byte) (*groups.JoinRequest, error) {
	j := &groups.JoinRequest{}
	err := object(body, `{"topics":["orders"]}`, func(r jsonReader, name string) (err error) {
		switch name {
		case "topics":
			return r.array(`an array of names of topics`, groups.MaxTopics, func(r jsonReader, _ string) error {
				var topic string
				err := r.topicName(&topic)
				j.Topics = append(j.Topics, topic)
				return err
			})
		case "memberId":
			return r.id(&j.MemberID)
		case "instanceId":
			return r.id(&j.InstanceID)
		case "sessionTimeout":
			if j.SessionTimeout, err = r.duration(); err == nil && (j.SessionTimeout < groups.MinSessionTimeout || j.SessionTimeout > groups.MaxSessionTimeout) {
				err = invalid(r.pointer(), "must be between %s and %s", FormatDuration(groups.MinSessionTimeout), FormatDuration(groups.MaxSessionTimeout))
			}
			return err
		case "start":
			text, err := r.text()
			if err != nil {
				return err
			}
			if j.Start = groups.Start(text); j.Start != groups.Latest && j.Start != groups.Earliest {
				return invalid(r.pointer(), `must be "latest" or "earliest"`)
			}
			return nil
		}
		return noMember(r, "topics, memberId, instanceId, sessionTimeout and start")
	})
	if err == nil && len(j.Topics) == 0 {
		err = invalid("/topics", "must name 1 to %d topics", groups.MaxTopics)
	}
	return j, err
}

// DecodeHeartbeat decodes the body of POST /v1/groups/{group}/heartbeat. Name is for the caller to set. INVALID_REQUEST.
func DecodeHeartbeat(body []byte) (*groups.HeartbeatRequest, error) {
	h := &groups.HeartbeatRequest{}
	err := object(body, `{"memberId":"m-1","generation":1,"owned":[{"topic":"orders","partition":0}]}`, func(r jsonReader, name string) error {
		switch name {
		case "memberId":
			return r.id(&h.MemberID)
		case "generation":
			return r.generation(&h.Generation)
		case "owned":
			if r.dec.PeekKind() == 'n' { // as if it were left out: nothing is let go by accident
				_, err := r.value()
				return err
			}
			h.OwnedSet = true
			return r.array("an array of partitions", groups.MaxPartitions, func(r jsonReader, at string) error {
				o, err := place(r, at, "topic, partition and offset")
				h.Owned = append(h.Owned, o.TopicPartition)
				return err
			})
		}
		return noMember(r, "memberId, generation and owned")
	})
	if err == nil {
		err = missing(h.MemberID, h.Generation)
	}
	return h, err
}

// place reads a partition of a topic with an offset. Where metadata is among the known members it is read as well, and the offset must be there; else an
// offset and a topic ID are of no effect, so that an assignment may be sent back as it came. known lists the members.
func place(r jsonReader, at, known string) (groups.Offset, error) {
	o := groups.Offset{TopicPartition: groups.TopicPartition{Partition: -1}, Offset: -1}
	offsets := strings.Contains(known, "metadata")
	err := r.object("an object with "+known, func(r jsonReader, name string) (err error) {
		switch {
		case name == "topic":
			return r.topicName(&o.Topic)
		case name == "partition":
			n, err := r.integerIn(0, api.MaxPartitions-1)
			o.Partition = int32(n)
			return err
		case name == "offset":
			o.Offset, err = r.integerIn(0, math.MaxInt64)
			return err
		case name == "topicID" && !offsets:
			_, err := r.optionalText()
			return err
		case name == "metadata" && offsets:
			if o.Metadata, err = r.optionalText(); err == nil && len(o.Metadata) > groups.MaxMetadataBytes {
				err = invalid(r.pointer(), "has %d bytes, of %d at most", len(o.Metadata), groups.MaxMetadataBytes)
			}
			return err
		}
		return noMember(r, known)
	})
	switch {
	case err != nil:
		return o, err
	case o.Topic == "":
		return o, invalid(at+"/topic", "is missing")
	case o.Partition < 0:
		return o, invalid(at+"/partition", "is missing")
	case offsets && o.Offset < 0:
		return o, invalid(at+"/offset", "is missing: the next offset to read")
	}
	return o, nil
}

// DecodeLeave decodes the body of POST /v1/groups/{group}/leave. INVALID_REQUEST.
func DecodeLeave(body []byte) (memberID string, err error) {
	err = object(body, `{"memberId":"m-1"}`, func(r jsonReader, name string) error {
		switch name {
		case "memberId":
			return r.id(&memberID)
		case "generation": // a member that leaves may say it as it does elsewhere; a membership ends in whatever generation
			var generation int64
			return r.generation(&generation)
		}
		return noMember(r, "memberId and generation")
	})
	if err == nil && memberID == "" {
		err = missing("", 1)
	}
	return memberID, err
}

// DecodeCommit decodes the body of PUT /v1/groups/{group}/offsets. Name is for the caller to set. A commit that is no member's has neither memberId nor
// generation. INVALID_REQUEST.
func DecodeCommit(body []byte) (*groups.CommitRequest, error) {
	c := &groups.CommitRequest{}
	there := false
	err := object(body, `{"memberId":"m-1","generation":1,"offsets":[{"topic":"orders","partition":0,"offset":42}]}`, func(r jsonReader, name string) error {
		switch name {
		case "memberId":
			return r.id(&c.MemberID)
		case "generation":
			if r.dec.PeekKind() == 'n' {
				_, err := r.value()
				return err
			}
			return r.generation(&c.Generation)
		case "offsets":
			there = true
			return r.array("an array of offsets", groups.MaxOffsets, func(r jsonReader, at string) error {
				o, err := place(r, at, "topic, partition, offset and metadata")
				c.Offsets = append(c.Offsets, o)
				return err
			})
		}
		return noMember(r, "memberId, generation and offsets")
	})
	switch {
	case err != nil:
		return c, err
	case !there:
		return c, invalid("/offsets", "is missing")
	case c.MemberID != "" || c.Generation != 0:
		return c, missing(c.MemberID, c.Generation)
	case len(c.Offsets) == 0:
		return c, invalid("/offsets", "is empty: a commit without memberId and generation must name an offset")
	}
	return c, nil
}

// DecodePoll decodes the body of POST /v1/groups/{group}/poll. Name is for the caller to set. INVALID_REQUEST.
func DecodePoll(body []byte) (*groups.PollRequest, error) {
	p := &groups.PollRequest{}
	err := object(body, `{"memberId":"m-1","generation":1,"wait":"10s"}`, func(r jsonReader, name string) (err error) {
		switch name {
		case "memberId":
			return r.id(&p.MemberID)
		case "generation":
			return r.generation(&p.Generation)
		case "maxRecords":
			n, err := r.integerIn(1, api.MaxReadRecords)
			p.MaxRecords = int(n)
			return err
		case "maxBytes":
			p.MaxBytes, err = r.integerIn(1, api.MaxReadBytes)
			return err
		case "wait":
			if p.Wait, err = r.duration(); err == nil && p.Wait > api.MaxWait {
				err = invalid(r.pointer(), "must be at most %s", FormatDuration(api.MaxWait))
			}
			return err
		}
		return noMember(r, "memberId, generation, maxRecords, maxBytes and wait")
	})
	if err == nil {
		err = missing(p.MemberID, p.Generation)
	}
	return p, err
}

const groupSeekForm = `{"topic":"orders"} with one of "to":"earliest", "to":"latest", "timestamp":"2026-01-02T03:04:05.678Z" and "offsets":{"0":42}`

// DecodeGroupSeek decodes the body of POST /v1/groups/{group}/seek. Name is for the caller to set. Exactly one target is set. INVALID_REQUEST.
func DecodeGroupSeek(body []byte) (*groups.SeekRequest, error) {
	s := &groups.SeekRequest{}
	var to seekTarget
	err := object(body, groupSeekForm, func(r jsonReader, name string) error {
		switch name {
		case "topic":
			return r.topicName(&s.Topic)
		case "dryRun":
			v, err := r.value()
			if err != nil {
				return err
			}
			var ok bool
			if s.DryRun, ok = boolean(v); !ok {
				return invalid(r.pointer(), "must be true or false")
			}
			return nil
		}
		known, err := to.member(r, name)
		if !known {
			return noMember(r, "topic, to, timestamp, offsets and dryRun")
		}
		return err
	})
	s.Earliest, s.Latest, s.Time, s.Offsets = to.Earliest, to.Latest, to.Time, to.Offsets
	switch {
	case err != nil:
		return s, err
	case s.Topic == "":
		return s, invalid("/topic", "is missing")
	case to.count != 1:
		return s, invalid("", "give %s", groupSeekForm)
	}
	return s, nil
}

// AppendJoinedJSON appends the answer to a join.
func AppendJoinedJSON(dst []byte, j *groups.Joined) []byte {
	dst = append(dst, `{"memberId":`...)
	dst = appendString(dst, j.MemberID)
	dst = append(dst, `,"generation":`...)
	dst = strconv.AppendInt(dst, j.Generation, 10)
	dst = appendAssignment(dst, j.Assignment)
	dst = append(dst, `,"heartbeatInterval":`...)
	return append(appendDurationJSON(dst, j.HeartbeatInterval), '}')
}

// AppendBeatJSON appends the answer to a heartbeat.
func AppendBeatJSON(dst []byte, b *groups.Beat) []byte {
	dst = append(dst, `{"generation":`...)
	dst = strconv.AppendInt(dst, b.Generation, 10)
	dst = appendAssignment(dst, b.Assignment)
	dst = append(dst, `,"revoke":`...)
	return append(appendPlaces(dst, b.Revoke), '}')
}

// appendList appends an array of objects, each of which begins with the members of a partition and is closed here.
func appendList[T any](dst []byte, all []T, at func(*T) *groups.TopicPartition, rest func(dst []byte, v *T) []byte) []byte {
	dst = append(dst, '[')
	for i := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		p := at(&all[i])
		dst = append(dst, `{"topic":`...)
		dst = appendString(dst, p.Topic)
		dst = append(dst, `,"partition":`...)
		dst = strconv.AppendInt(dst, int64(p.Partition), 10)
		dst = append(rest(dst, &all[i]), '}')
	}
	return append(dst, ']')
}

func appendAssignment(dst []byte, all []groups.Assigned) []byte {
	dst = append(dst, `,"assignment":`...)
	return appendList(dst, all, func(a *groups.Assigned) *groups.TopicPartition { return &a.TopicPartition }, func(dst []byte, a *groups.Assigned) []byte {
		dst = appendNumber(dst, `,"offset":`, a.Offset)
		dst = strconv.AppendUint(append(dst, `,"topicID":"`...), uint64(a.TopicID), 10)
		return append(dst, '"')
	})
}

func appendPlaces(dst []byte, all []groups.TopicPartition) []byte {
	return appendList(dst, all, func(p *groups.TopicPartition) *groups.TopicPartition { return p }, func(dst []byte, _ *groups.TopicPartition) []byte { return dst })
}

func appendNumber(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), n, 10)
}

func appendOptionalNumber(dst []byte, name string, n *int64) []byte {
	if n == nil {
		return append(append(dst, name...), "null"...)
	}
	return appendNumber(dst, name, *n)
}

// AppendOffsetsJSON appends the answer to GET /v1/groups/{group}/offsets.
func AppendOffsetsJSON(dst []byte, all []groups.Offset) []byte {
	dst = append(dst, `{"offsets":`...)
	dst = appendList(dst, all, func(o *groups.Offset) *groups.TopicPartition { return &o.TopicPartition }, func(dst []byte, o *groups.Offset) []byte {
		dst = appendNumber(dst, `,"offset":`, o.Offset)
		dst = append(dst, `,"metadata":`...)
		return appendString(dst, o.Metadata)
	})
	return append(dst, '}')
}

// AppendSoughtJSON appends the answer to a seek.
func AppendSoughtJSON(dst []byte, all []groups.Sought, dryRun bool) []byte {
	dst = append(dst, `{"dryRun":`...)
	dst = strconv.AppendBool(dst, dryRun)
	dst = append(dst, `,"partitions":`...)
	dst = appendList(dst, all, func(s *groups.Sought) *groups.TopicPartition { return &s.TopicPartition }, func(dst []byte, s *groups.Sought) []byte {
		dst = appendOptionalNumber(dst, `,"from":`, s.From)
		dst = appendNumber(dst, `,"to":`, s.To)
		dst = appendNumber(dst, `,"skipped":`, s.Skipped)
		dst = appendNumber(dst, `,"repeats":`, s.Repeats)
		return appendNumber(dst, `,"lost":`, s.Lost)
	})
	return append(dst, '}')
}

// AppendPolledJSON appends the answer to a poll. Partitions that retention has overtaken come after those that have records.
func AppendPolledJSON(dst []byte, all []groups.Polled) []byte {
	var t lastTime
	var gaps []groups.Polled
	read := make([]groups.Polled, 0, len(all))
	for i := range all {
		if all[i].Gap != nil {
			gaps = append(gaps, all[i])
		} else {
			read = append(read, all[i])
		}
	}
	at := func(p *groups.Polled) *groups.TopicPartition { return &p.TopicPartition }
	dst = append(dst, `{"partitions":`...)
	dst = appendList(dst, read, at, func(dst []byte, p *groups.Polled) []byte {
		dst = append(dst, `,"records":[`...)
		for i := range p.Records {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '{')
			dst = append(appendRecord(dst, &p.Records[i], p.Partition, &t), '}')
		}
		dst = appendNumber(append(dst, ']'), `,"nextOffset":`, p.NextOffset)
		return appendNumber(dst, `,"head":`, p.Head)
	})
	if len(gaps) > 0 {
		dst = append(dst, `,"gaps":`...)
		dst = appendList(dst, gaps, at, func(dst []byte, p *groups.Polled) []byte {
			return appendNumber(appendNumber(dst, `,"from":`, p.Gap.From), `,"to":`, p.Gap.To)
		})
	}
	return append(dst, '}')
}
