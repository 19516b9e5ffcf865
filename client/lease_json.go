package client

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/api"
)

const contentJSON = "application/json"

// jsonMessage is a record in the JSON form, and what leases and peeks add to it.
type jsonMessage struct {
	Receipt        string    `json:"receipt"`
	Attempt        int32     `json:"attempt"`
	LeaseExpiresAt time.Time `json:"leaseExpiresAt"`
	DueAt          time.Time `json:"dueAt"`

	Partition    int32           `json:"partition"`
	Offset       int64           `json:"offset"`
	Time         time.Time       `json:"time"`
	ProducerTime time.Time       `json:"producerTime"`
	DeliverAt    time.Time       `json:"deliverAt"`
	Key          *string         `json:"key"`
	KeyBase64    *string         `json:"keyBase64"`
	Value        json.RawMessage `json:"value"`
	Text         *string         `json:"text"`
	Data         *string         `json:"data"`
	Headers      [][2]string     `json:"headers"`
	ID           string          `json:"id"`
}

// record fills in what a read in the protobuf form would have given.
func (m *jsonMessage) record(r *Record) (err error) {
	*r = Record{
		Partition: m.Partition, Offset: m.Offset, Time: m.Time, ProducerTime: m.ProducerTime, DeliverAt: m.DeliverAt, ID: m.ID,
	}
	switch {
	case m.Key != nil:
		r.Key = []byte(*m.Key)
	case m.KeyBase64 != nil:
		if r.Key, err = base64.StdEncoding.DecodeString(*m.KeyBase64); err != nil {
			return fmt.Errorf("key of record %d:%d: %w", m.Partition, m.Offset, err)
		}
		r.KeyBinary = true
	}
	switch {
	case m.Value != nil:
		r.Value, r.Kind = m.Value, KindJSON
	case m.Text != nil:
		r.Value, r.Kind = []byte(*m.Text), KindText
	case m.Data != nil:
		if r.Value, err = base64.StdEncoding.DecodeString(*m.Data); err != nil {
			return fmt.Errorf("data of record %d:%d: %w", m.Partition, m.Offset, err)
		}
		r.Kind = KindData
	}
	if len(m.Headers) > 0 {
		r.Headers = make([]Header, len(m.Headers))
		for i, h := range m.Headers {
			r.Headers[i] = Header{Name: h[0], Value: h[1]}
		}
	}
	return nil
}

// decodeMessagesJSON reads the JSON answer of a lease.
func decodeMessagesJSON(body []byte) ([]Message, error) {
	var answer struct {
		Messages []jsonMessage `json:"messages"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	messages := make([]Message, len(answer.Messages))
	for i := range answer.Messages {
		from, to := &answer.Messages[i], &messages[i]
		to.Receipt, to.Attempt, to.LeaseExpiresAt = from.Receipt, from.Attempt, from.LeaseExpiresAt
		if err := from.record(&to.Record); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// decodeSettledJSON appends the results of a JSON answer, which come in the order of the receipts asked about.
func decodeSettledJSON(body []byte, receipts []string, results []SettleResult) ([]SettleResult, error) {
	var answer struct {
		Results []struct {
			Receipt        string    `json:"receipt"`
			Code           api.Code  `json:"code"`
			LeaseExpiresAt time.Time `json:"leaseExpiresAt"`
		} `json:"results"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return results, err
	}
	if len(answer.Results) != len(receipts) {
		return results, fmt.Errorf("%d results for %d receipts", len(answer.Results), len(receipts))
	}
	for i, r := range answer.Results {
		if r.Receipt != receipts[i] {
			return results, fmt.Errorf("result %d is about another receipt", i)
		}
		if r.Code == "OK" {
			r.Code = ""
		}
		results = append(results, SettleResult{Receipt: r.Receipt, Code: r.Code, LeaseExpiresAt: r.LeaseExpiresAt})
	}
	return results, nil
}
