package journal

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/forebaymq/forebay/metadata"
)

// A key is
//
//	offset  size  field
//	0       1     keyVersion
//	1       1     kind
//	2       8     subscription
//	10      4     partition of the subscription's topic (not kindTask)
//	14      8     incarnation (kindState), the one carried on from (kindOpening), or offset of the record (kindPointer)
//	22      8     writer (kindState, kindOpening) or incarnation (kindPointer)
//	30      8     writer (kindPointer)
//	10      n     ID (kindTask): the rest of the key, 1 to maxTaskID bytes
//
// in big endian. docs/journal-format.md has the same table.
const keyVersion = 1

// keyKind says what a record is about. Kinds are never reused.
type keyKind uint8

const (
	kindSeek    keyKind = 'R' // the state that the last seek gave a shard
	kindOpening keyKind = 'O' // the state with which an incarnation of a shard began that carries on from another one
	kindState   keyKind = 'S' // what one writer knew last of a shard, in one incarnation
	kindPointer keyKind = 'P' // what one writer knew last of a record, in one incarnation
	kindTask    keyKind = 'T' // a redrive
)

const (
	keyHeadBytes    = 10
	keyShardBytes   = 14
	keyStateBytes   = 30
	keyPointerBytes = 38
	maxTaskID       = 256
)

// key is a decoded key. Fields that the kind does not have are zero.
type key struct {
	kind         keyKind
	subscription metadata.SubscriptionID
	partition    int32
	offset       int64
	incarnation  int64 // kindOpening: the one carried on from, 0 = none. kindPointer: 0 = that of the opening in the same append
	writer       uint64
	task         string
}

func (k *key) encode() []byte {
	b := make([]byte, 0, keyPointerBytes)
	b = append(b, keyVersion, byte(k.kind))
	b = binary.BigEndian.AppendUint64(b, uint64(k.subscription))
	if k.kind == kindTask {
		return append(b, k.task...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(k.partition))
	if k.kind == kindPointer {
		b = binary.BigEndian.AppendUint64(b, uint64(k.offset))
	}
	if k.kind != kindSeek {
		b = binary.BigEndian.AppendUint64(b, uint64(k.incarnation))
		b = binary.BigEndian.AppendUint64(b, k.writer)
	}
	return b
}

// decodeKey is the inverse of encode.
func decodeKey(b []byte) (key, error) {
	if len(b) < keyHeadBytes || b[0] != keyVersion {
		return key{}, fmt.Errorf("key %x: %w", head(b), errFormat)
	}
	k := key{kind: keyKind(b[1]), subscription: metadata.SubscriptionID(binary.BigEndian.Uint64(b[2:]))}
	want := 0
	switch k.kind {
	case kindTask:
		if len(b) == keyHeadBytes || len(b) > keyHeadBytes+maxTaskID {
			return key{}, fmt.Errorf("key %x: %d bytes of a task: %w", head(b), len(b), errFormat)
		}
		k.task = string(b[keyHeadBytes:])
		return k, nil
	case kindSeek:
		want = keyShardBytes
	case kindState, kindOpening:
		want = keyStateBytes
	case kindPointer:
		want = keyPointerBytes
	}
	if len(b) != want {
		return key{}, fmt.Errorf("key %x: %d bytes: %w", head(b), len(b), errFormat)
	}
	k.partition = int32(binary.BigEndian.Uint32(b[keyHeadBytes:]))
	rest := b[keyShardBytes:]
	if k.kind == kindPointer {
		k.offset = int64(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
	}
	if len(rest) > 0 {
		k.incarnation = int64(binary.BigEndian.Uint64(rest))
		k.writer = binary.BigEndian.Uint64(rest[8:])
	}
	if k.partition < 0 || k.offset < 0 || k.incarnation < 0 || k.kind == kindState && k.incarnation == 0 {
		return key{}, fmt.Errorf("key %x: a number is out of range: %w", head(b), errFormat)
	}
	return k, nil
}

func head(b []byte) []byte { return b[:min(len(b), keyPointerBytes)] }

// partitionOf says where in the journal a subscription is: FNV-1a, 64 bits, of its ID in big endian, modulo the number of partitions.
func partitionOf(id metadata.SubscriptionID, partitions int) int32 {
	h := fnv.New64a()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	h.Write(b[:])
	return int32(h.Sum64() % uint64(partitions))
}
