package client

import (
	"encoding/json"
	"fmt"
	"time"
)

type jsonJoin struct {
	Topics         []string `json:"topics"`
	MemberID       string   `json:"memberId,omitempty"`
	InstanceID     string   `json:"instanceId,omitempty"`
	SessionTimeout string   `json:"sessionTimeout,omitempty"`
	Start          string   `json:"start,omitempty"`
}

type jsonHeartbeat struct {
	MemberID   string           `json:"memberId"`
	Generation int64            `json:"generation"`
	Owned      []TopicPartition `json:"owned,omitzero"` // nil is left out, empty is not
}

type jsonCommit struct {
	MemberID   string        `json:"memberId,omitempty"`
	Generation int64         `json:"generation,omitempty"`
	Offsets    []GroupOffset `json:"offsets"`
}

type jsonPoll struct {
	MemberID   string `json:"memberId"`
	Generation int64  `json:"generation"`
	MaxRecords int    `json:"maxRecords,omitempty"`
	MaxBytes   int    `json:"maxBytes,omitempty"`
	Wait       string `json:"wait,omitempty"`
}

// decodeMembership reads the answer to a join or to a heartbeat, which does not repeat the member's ID.
func decodeMembership(body []byte, memberID string) (*Membership, error) {
	var a struct {
		MemberID          *string          `json:"memberId"`
		Generation        int64            `json:"generation"`
		Assignment        []GroupOffset    `json:"assignment"`
		Revoke            []TopicPartition `json:"revoke"`
		HeartbeatInterval string           `json:"heartbeatInterval"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	m := &Membership{MemberID: memberID, Generation: a.Generation, Assignment: a.Assignment, Revoke: a.Revoke}
	if a.MemberID != nil {
		m.MemberID = *a.MemberID
	}
	if m.Generation <= 0 {
		return nil, fmt.Errorf("generation %d: want 1 or more", m.Generation)
	}
	if a.HeartbeatInterval != "" {
		var err error
		if m.HeartbeatInterval, err = time.ParseDuration(a.HeartbeatInterval); err != nil || m.HeartbeatInterval <= 0 {
			return nil, fmt.Errorf("heartbeat interval %q: want a duration such as 3333ms", a.HeartbeatInterval)
		}
	}
	return m, nil
}

// decodePolled reads the answer to a poll.
func decodePolled(body []byte) ([]PolledPartition, error) {
	var answer struct {
		Partitions []struct {
			Topic      string            `json:"topic"`
			Partition  int32             `json:"partition"`
			Records    []json.RawMessage `json:"records"`
			NextOffset int64             `json:"nextOffset"`
			Head       int64             `json:"head"`
		} `json:"partitions"`
		Gaps []Gap `json:"gaps"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	polled := make([]PolledPartition, len(answer.Partitions), len(answer.Partitions)+len(answer.Gaps))
	for i := range answer.Partitions {
		from := &answer.Partitions[i]
		polled[i] = PolledPartition{
			Topic: from.Topic, Partition: from.Partition, Records: make([]Record, len(from.Records)), NextOffset: from.NextOffset, Head: from.Head, JSON: from.Records,
		}
		for j, raw := range from.Records {
			var m jsonMessage
			if err := json.Unmarshal(raw, &m); err != nil {
				return nil, fmt.Errorf("record %d of %s partition %d: %w", j, from.Topic, from.Partition, err)
			}
			if err := m.record(&polled[i].Records[j]); err != nil {
				return nil, err
			}
		}
	}
	for i := range answer.Gaps {
		gap := &answer.Gaps[i]
		polled = append(polled, PolledPartition{Topic: gap.Topic, Partition: gap.Partition, NextOffset: gap.To, Gap: gap})
	}
	return polled, nil
}
