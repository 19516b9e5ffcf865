package client

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forebaymq/forebay/api"
)

// The protobuf messages of api/forebay/v1/queue.proto, encoded and decoded in place as those of records.proto are.

// encodeLease gives a LeaseRequest.
func encodeLease(o LeaseOptions, id string) []byte {
	b := make([]byte, 0, 64+len(id))
	if o.Max > 0 {
		b = appendVarintField(b, 1, uint64(o.Max))
	}
	if o.Wait > 0 {
		b = appendVarintField(b, 2, millis(o.Wait))
	}
	if o.Visibility > 0 {
		b = appendVarintField(b, 3, millis(o.Visibility))
	}
	if id != "" {
		b = appendBytesField(b, 4, id)
	}
	if o.MaxBytes > 0 {
		b = appendVarintField(b, 5, uint64(o.MaxBytes))
	}
	return b
}

func millis(d time.Duration) uint64 { return uint64(d.Round(time.Millisecond) / time.Millisecond) }

// decodeLease reads a LeaseResponse. Keys and values point into b.
func decodeLease(b []byte) ([]Message, error) {
	n, err := countField(b, 1)
	if err != nil {
		return nil, err
	}
	messages := make([]Message, 0, n)
	err = fields(b, func(num protowire.Number, _ uint64, inner []byte) error {
		if num != 1 {
			return nil
		}
		messages = append(messages, Message{})
		return decodeMessage(inner, &messages[len(messages)-1])
	})
	return messages, err
}

func decodeMessage(b []byte, m *Message) error {
	return fields(b, func(num protowire.Number, v uint64, inner []byte) error {
		switch num {
		case 1:
			m.Receipt = string(inner)
		case 2:
			m.Attempt = int32(v)
		case 3:
			m.LeaseExpiresAt = time.UnixMilli(int64(v)).UTC()
		case 4:
			return decodeRecord(inner, &m.Record)
		}
		return nil
	})
}

// encodeReceipts gives an AckRequest, and what NackRequest and ExtendRequest begin with.
func encodeReceipts(receipts []string) []byte {
	n := 64
	for _, r := range receipts {
		n += sizeBytesField(len(r))
	}
	b := make([]byte, 0, n)
	for _, r := range receipts {
		b = appendBytesField(b, 1, r)
	}
	return b
}

func encodeNack(receipts []string, o NackOptions) []byte {
	b := encodeReceipts(receipts)
	if o.Delay != nil {
		b = appendVarintField(b, 2, millis(*o.Delay))
	}
	if o.Reason != "" {
		b = appendBytesField(b, 3, o.Reason)
	}
	return b
}

func encodeExtend(receipts []string, visibility time.Duration) []byte {
	b := encodeReceipts(receipts)
	if visibility > 0 {
		b = appendVarintField(b, 2, millis(visibility))
	}
	return b
}

// decodeSettled appends the results of a SettleResponse, which come in the order of the receipts asked about.
func decodeSettled(b []byte, receipts []string, results []SettleResult) ([]SettleResult, error) {
	n := 0
	err := fields(b, func(num protowire.Number, _ uint64, inner []byte) error {
		if num != 1 {
			return nil
		}
		if n == len(receipts) {
			return fmt.Errorf("more results than the %d receipts", n)
		}
		r := SettleResult{Receipt: receipts[n]}
		n++
		err := fields(inner, func(num protowire.Number, v uint64, inner []byte) error {
			switch num {
			case 1:
				r.Code = api.Code(inner)
			case 2:
				r.LeaseExpiresAt = time.UnixMilli(int64(v)).UTC()
			}
			return nil
		})
		results = append(results, r)
		return err
	})
	if err == nil && n != len(receipts) {
		err = fmt.Errorf("%d results for %d receipts", n, len(receipts))
	}
	return results, err
}
