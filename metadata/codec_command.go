package metadata

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/api"
)

// entryVersion is the first byte of an encoded entry. Versions ratchet and are never reused.
//
//	entry = version(1) count(uvarint) { kind(1) body }
const entryVersion byte = 1

// AppendCommands appends the encoding of an entry with these commands to dst. An error means that a command is not well-formed (a
// count or an index that nothing could decode); dst is then returned as it was.
func AppendCommands(dst []byte, cmds []Command) ([]byte, error) {
	out := append(dst, entryVersion)
	out = binary.AppendUvarint(out, uint64(len(cmds)))
	for i, c := range cmds {
		if c == nil {
			return dst, fmt.Errorf("encode command %d: nil command", i)
		}
		out = append(out, byte(c.kind()))
		var err error
		switch c := c.(type) {
		case *Commit:
			out, err = appendCommit(out, c)
		case *CreateTopic:
			out = appendString(out, c.Tenant)
			out = appendString(out, c.Name)
			out = appendVarint(out, c.Now)
			out = appendConfig(out, &c.Config)
		case *UpdateTopic:
			out = binary.AppendUvarint(out, uint64(c.TopicID))
			out = appendVarint(out, c.Version)
			out = appendConfig(out, &c.Config)
		case *DeleteTopic:
			out = binary.AppendUvarint(out, uint64(c.TopicID))
		case *Trim:
			if c.Partition < 0 {
				err = fmt.Errorf("negative partition %d", c.Partition)
				break
			}
			out = binary.AppendUvarint(out, uint64(c.TopicID))
			out = binary.AppendUvarint(out, uint64(c.Partition))
			out = appendVarint(out, c.LogStart)
			out = appendString(out, c.Claim)
			out = appendVarint(out, c.ClaimEpoch)
		case *Replace:
			out, err = appendReplace(out, c)
		case *GCBoundary:
			out = appendVarint(out, c.Boundary)
			out = appendString(out, c.Claim)
			out = appendVarint(out, c.ClaimEpoch)
		case *ProducerEpoch:
			out = appendString(out, c.Tenant)
			out = appendString(out, c.ID)
			out = appendVarint(out, c.Now)
			out = appendString(out, c.Nonce)
		case *CreateSubscription:
			out, err = appendCreateSubscription(out, c)
		case *UpdateSubscription:
			out, err = appendUpdateSubscription(out, c)
		case *DeleteSubscription:
			out = binary.AppendUvarint(out, uint64(c.ID))
		case *CreateGroup:
			out = appendString(out, c.Tenant)
			out = appendString(out, c.Name)
			out = appendVarint(out, c.Now)
		case *DeleteGroup:
			out = binary.AppendUvarint(out, uint64(c.ID))
		default:
			err = fmt.Errorf("unknown type %T", c)
		}
		if err != nil {
			return dst, fmt.Errorf("encode command %d: %w", i, err)
		}
	}
	return out, nil
}

// DecodeCommands is the inverse of AppendCommands. Errors are ErrUndecodable. The result shares no memory with b.
func DecodeCommands(b []byte) ([]Command, error) {
	r := &reader{b: b, structure: "entry"}
	if v := r.byte(); r.err == nil && v != entryVersion {
		r.fail(fmt.Sprintf("unknown version %d", v))
	}
	n := r.count(2)
	cmds := make([]Command, 0, n)
	for i := 0; i < n && r.err == nil; i++ {
		r.structure = "entry"
		switch k := commandKind(r.byte()); k {
		case kindCommit:
			cmds = append(cmds, readCommit(r))
		case kindCreateTopic:
			r.structure = "createTopic"
			c := &CreateTopic{Tenant: r.string(), Name: r.string(), Now: r.varint()}
			c.Config = readConfig(r)
			cmds = append(cmds, c)
		case kindUpdateTopic:
			r.structure = "updateTopic"
			c := &UpdateTopic{TopicID: TopicID(r.uvarint()), Version: r.varint()}
			c.Config = readConfig(r)
			cmds = append(cmds, c)
		case kindDeleteTopic:
			r.structure = "deleteTopic"
			cmds = append(cmds, &DeleteTopic{TopicID: TopicID(r.uvarint())})
		case kindTrim:
			r.structure = "trim"
			cmds = append(cmds, &Trim{TopicID: TopicID(r.uvarint()), Partition: r.int32(), LogStart: r.varint(),
				Claim: r.string(), ClaimEpoch: r.varint()})
		case kindReplace:
			cmds = append(cmds, readReplace(r))
		case kindGCBoundary:
			r.structure = "gcBoundary"
			cmds = append(cmds, &GCBoundary{Boundary: r.varint(), Claim: r.string(), ClaimEpoch: r.varint()})
		case kindProducerEpoch:
			r.structure = "producerEpoch"
			cmds = append(cmds, &ProducerEpoch{Tenant: r.string(), ID: r.string(), Now: r.varint(), Nonce: r.string()})
		case kindCreateSubscription:
			cmds = append(cmds, readCreateSubscription(r))
		case kindUpdateSubscription:
			cmds = append(cmds, readUpdateSubscription(r))
		case kindDeleteSubscription:
			r.structure = "deleteSubscription"
			cmds = append(cmds, &DeleteSubscription{ID: SubscriptionID(r.uvarint())})
		case kindCreateGroup:
			r.structure = "createGroup"
			cmds = append(cmds, &CreateGroup{Tenant: r.string(), Name: r.string(), Now: r.varint()})
		case kindDeleteGroup:
			r.structure = "deleteGroup"
			cmds = append(cmds, &DeleteGroup{ID: GroupID(r.uvarint())})
		default:
			r.fail(fmt.Sprintf("unknown command kind %d", k))
		}
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return cmds, nil
}

// appendConfig is shared by commands and snapshots.
func appendConfig(dst []byte, c *api.TopicConfig) []byte {
	dst = appendVarint(dst, int64(c.Partitions))
	dst = appendVarint(dst, int64(c.RetentionTime))
	dst = appendVarint(dst, c.RetentionBytes)
	dst = appendString(dst, string(c.Cleanup))
	dst = appendVarint(dst, int64(c.MinCompactionLag))
	dst = appendVarint(dst, int64(c.TombstoneRetention))
	dst = appendString(dst, c.Residency)
	dst = appendBool(dst, c.Mirror)
	dst = appendVarint(dst, int64(c.MaxRecordBytes))
	dst = appendVarint(dst, int64(c.DedupeWindow))
	dst = appendString(dst, c.SchemaSubject)
	return appendString(dst, c.SchemaMode)
}

func readConfig(r *reader) api.TopicConfig {
	return api.TopicConfig{
		Partitions:         int(r.varint()),
		RetentionTime:      time.Duration(r.varint()),
		RetentionBytes:     r.varint(),
		Cleanup:            api.Cleanup(r.string()),
		MinCompactionLag:   time.Duration(r.varint()),
		TombstoneRetention: time.Duration(r.varint()),
		Residency:          r.string(),
		Mirror:             r.bool(),
		MaxRecordBytes:     int(r.varint()),
		DedupeWindow:       time.Duration(r.varint()),
		SchemaSubject:      r.string(),
		SchemaMode:         r.string(),
	}
}
