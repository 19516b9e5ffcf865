package wire

import (
	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// recordsJSON decodes the records of one request.
type recordsJSON struct {
	jsonReader
	size    int   // bytes of the body
	now     int64 // Unix ms
	total   int   // records so far, over all topics
	headers headerNames
}

func decodePublishJSON(body []byte, single string, now int64) (*Publish, error) {
	d := &recordsJSON{jsonReader: newJSONReader(body), size: len(body), now: now}
	p := &Publish{}
	if err := d.begin('{', "a JSON object"); err != nil {
		return nil, err
	}
	for d.more() {
		name, err := d.name()
		if err != nil {
			return nil, err
		}
		switch {
		case string(name) == "records" && single != "":
			p.Topics = []TopicRecords{{Topic: single, pointer: "/records"}}
			err = d.records(&p.Topics[0])
		case string(name) == "topics" && single == "":
			err = d.topics(p)
		case string(name) == "producer":
			p.Producer, err = d.producer()
		default:
			err = invalid(d.pointer(), "there is no such member")
		}
		if err != nil {
			return nil, err
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	if len(p.Topics) == 0 {
		if single != "" {
			return nil, invalid("/records", "is missing: an array of at least one record")
		}
		return nil, invalid("/topics", "is missing: an object with at least one topic")
	}
	return p, nil
}

func (d *recordsJSON) topics(p *Publish) error {
	if err := d.begin('{', "an object of topics"); err != nil {
		return err
	}
	for d.more() {
		name, err := d.name()
		if err != nil {
			return err
		}
		pointer := d.pointer()
		if err := checkTopicName(pointer, string(name)); err != nil {
			return err
		}
		if len(p.Topics) == api.MaxTopicsPerRequest {
			return tooLarge(pointer, "a request names at most %d topics", api.MaxTopicsPerRequest)
		}
		t := TopicRecords{Topic: string(name), pointer: pointer + "/records"}
		if err := d.begin('{', `an object such as {"records":[...]}`); err != nil {
			return err
		}
		for d.more() {
			name, err := d.name()
			if err != nil {
				return err
			}
			if string(name) != "records" {
				return invalid(d.pointer(), "there is no such member")
			}
			if err := d.records(&t); err != nil {
				return err
			}
		}
		if err := d.end(); err != nil {
			return err
		}
		if len(t.Records) == 0 {
			return invalid(t.pointer, "is missing: an array of at least one record")
		}
		p.Topics = append(p.Topics, t)
	}
	return d.end()
}

func (d *recordsJSON) records(t *TopicRecords) error {
	if err := d.begin('[', "an array of records"); err != nil {
		return err
	}
	start := d.dec.InputOffset()
	for d.more() {
		if d.total == api.MaxRecordsPerRequest {
			return tooLarge(t.pointer, "a request has at most %d records", api.MaxRecordsPerRequest)
		}
		d.total++
		i := len(t.Records)
		t.Records = append(t.Records, segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime})
		partition, err := d.record(&t.Records[i])
		if err != nil {
			return err
		}
		t.Partitions = append(t.Partitions, partition)
		if member, detail, code := checkRecord(&t.Records[i], partition, d.now); code != "" {
			return recordFault(t.place(i), member, detail, code, i)
		}
		if i == 0 {
			// Records of one request are alike: room for as many as the rest of the body holds at the size of the first, within reason.
			used := d.dec.InputOffset() - start
			n := min(int((int64(d.size)-start)/used)+1, 4096)
			t.Records = append(make([]segment.Record, 0, n), t.Records...)
			t.Partitions = append(make([]int32, 0, n), t.Partitions...)
		}
	}
	if err := d.end(); err != nil {
		return err
	}
	if len(t.Records) == 0 {
		return invalid(t.pointer, "must have at least one record")
	}
	return nil
}

func (d *recordsJSON) record(rec *segment.Record) (partition int32, err error) {
	partition = -1
	if err := d.begin('{', "an object"); err != nil {
		return 0, err
	}
	for d.more() {
		name, err := d.name()
		if err != nil {
			return 0, err
		}
		switch string(name) {
		case "key":
			err = d.once(rec.Key == nil, "key and keyBase64")
			if err == nil {
				rec.Key, err = d.text()
			}
		case "keyBase64":
			err = d.once(rec.Key == nil, "key and keyBase64")
			if err == nil {
				rec.KeyBinary = true
				rec.Key, err = d.base64()
			}
		case "value":
			err = d.once(rec.Value == nil, "value, text and data")
			if err == nil {
				rec.Kind = segment.KindJSON
				rec.Value, err = d.value()
			}
		case "text":
			err = d.once(rec.Value == nil, "value, text and data")
			if err == nil {
				rec.Kind = segment.KindText
				rec.Value, err = d.text()
			}
		case "data":
			err = d.once(rec.Value == nil, "value, text and data")
			if err == nil {
				rec.Kind = segment.KindData
				rec.Value, err = d.base64()
			}
		case "headers":
			err = d.recordHeaders(rec)
		case "time":
			rec.ProducerTime, err = d.time()
		case "deliverAt":
			err = d.once(rec.DeliverAt == segment.NoTime, "deliverAt and delay")
			if err == nil {
				rec.DeliverAt, err = d.time()
			}
		case "delay":
			err = d.once(rec.DeliverAt == segment.NoTime, "deliverAt and delay")
			if err == nil {
				rec.DeliverAt, err = d.delay()
			}
		case "partition":
			partition, err = d.partition()
		case "id":
			rec.ID, err = d.id()
		default:
			err = invalid(d.pointer(), "there is no such member of a record to publish")
		}
		if err != nil {
			return 0, err
		}
	}
	return partition, d.end()
}

// once refuses the second of members that exclude each other.
func (d *recordsJSON) once(first bool, members string) error {
	if !first {
		return invalid(d.pointer(), "at most one of %s", members)
	}
	return nil
}

func (d *recordsJSON) time() (int64, error) {
	text, err := d.text()
	if err != nil {
		return 0, err
	}
	ms, ok := parseTime(text)
	if !ok {
		return 0, invalid(d.pointer(), timeForm)
	}
	return ms, nil
}

func (d *recordsJSON) delay() (int64, error) {
	text, err := d.text()
	if err != nil {
		return 0, err
	}
	delay, err := ParseDuration(string(text))
	if err != nil {
		return 0, invalid(d.pointer(), "%v", err)
	}
	if delay > api.MaxDeliverDelay {
		return 0, invalid(d.pointer(), "delivery can be put off by at most %s", FormatDuration(api.MaxDeliverDelay))
	}
	return d.now + delay.Milliseconds(), nil
}

func (d *recordsJSON) partition() (int32, error) {
	n, err := d.integer()
	if err != nil {
		return 0, err
	}
	if n < 0 || n >= api.MaxPartitions {
		return 0, invalid(d.pointer(), "must be between 0 and %d", api.MaxPartitions-1)
	}
	return int32(n), nil
}

func (d *recordsJSON) id() (string, error) {
	text, err := d.text()
	if err != nil {
		return "", err
	}
	if len(text) == 0 {
		return "", invalid(d.pointer(), "must not be empty; leave it out instead")
	}
	return string(text), nil
}

// recordHeaders reads [[name, value], ...] or {name: value, ...}, in the order of the body.
func (d *recordsJSON) recordHeaders(rec *segment.Record) error {
	tok, err := d.dec.ReadToken()
	if err != nil {
		return jsonFault(err)
	}
	kind := tok.Kind()
	if kind != '{' && kind != '[' {
		return invalid(d.pointer(), "must be an array of [name, value] pairs or an object of strings")
	}
	for d.more() {
		i := len(rec.Headers)
		if i == api.MaxHeaders {
			return tooLarge(d.pointer(), "a record has at most %d headers", api.MaxHeaders)
		}
		var name, value []byte
		if kind == '{' {
			if name, err = d.name(); err == nil {
				value, err = d.text()
			}
		} else {
			name, value, err = d.pair()
		}
		if err != nil {
			return err
		}
		if rec.Headers == nil {
			rec.Headers = make([]segment.Header, 0, d.headers.expect())
		}
		rec.Headers = append(rec.Headers, segment.Header{Name: d.headers.name(i, name), Value: string(value)})
	}
	return d.end()
}

func (d *recordsJSON) pair() (name, value []byte, err error) {
	if err := d.begin('[', "a [name, value] pair of strings"); err != nil {
		return nil, nil, err
	}
	pointer := ""
	for i := 0; d.more(); i++ {
		var text []byte
		if text, err = d.text(); err != nil {
			return nil, nil, err
		}
		switch i {
		case 0:
			name = text
		case 1:
			value = text
		default:
			pointer = d.pointer()
		}
	}
	if err := d.end(); err != nil {
		return nil, nil, err
	}
	if pointer != "" || value == nil {
		return nil, nil, invalid(d.pointer(), "must be a [name, value] pair of strings")
	}
	return name, value, nil
}

func (d *recordsJSON) producer() (*metadata.Producer, error) {
	if err := d.begin('{', `an object such as {"id":"p","epoch":0,"sequence":1}`); err != nil {
		return nil, err
	}
	p := &metadata.Producer{Sequence: -1}
	for d.more() {
		name, err := d.name()
		if err != nil {
			return nil, err
		}
		switch string(name) {
		case "id":
			var text []byte
			text, err = d.text()
			p.ID = string(text)
		case "epoch":
			p.Epoch, err = d.integer()
		case "sequence":
			if p.Sequence, err = d.integer(); err == nil && p.Sequence < 0 {
				err = invalid(d.pointer(), "must be 0 or above")
			}
		default:
			err = invalid(d.pointer(), "there is no such member")
		}
		if err != nil {
			return nil, err
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	if p.Sequence < 0 {
		return nil, invalid("/producer/sequence", "is missing: an integer that rises with each request of the producer")
	}
	return p, checkProducer("/producer", p)
}

// headerNames reuses the strings of header names: the records of a request mostly carry the same ones in the same order.
type headerNames struct {
	names []string
}

func (h *headerNames) expect() int { return max(len(h.names), 2) }

func (h *headerNames) name(i int, name []byte) string {
	if i < len(h.names) {
		if h.names[i] != string(name) {
			h.names[i] = string(name)
		}
		return h.names[i]
	}
	s := string(name)
	if i == len(h.names) {
		h.names = append(h.names, s)
	}
	return s
}
