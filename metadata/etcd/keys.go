package etcd

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/metadata"
)

// DefaultPrefix is where a fabric's keys start. docs/metadata-keys.md is the normative table of what follows it.
const DefaultPrefix = "/forebay/v1/"

// Key families, after the prefix.
const (
	familyFabric = "fabric" // one key
	familyLog    = "log/"   // <shard %04x>/<stream>/<seq %016x>
	familyHead   = "head/"  // <shard %04x>
	familySnap   = "snap/"  // <shard %04x>
	familyClaim  = "claim/" // <name>
)

// keys makes and parses the keys of one fabric.
type keys struct{ prefix string }

func (k keys) fabric() string           { return k.prefix + familyFabric }
func (k keys) logs() string             { return k.prefix + familyLog }
func (k keys) heads() string            { return k.prefix + familyHead }
func (k keys) snaps() string            { return k.prefix + familySnap }
func (k keys) head(shard int) string    { return fmt.Sprintf("%s%s%04x", k.prefix, familyHead, shard) }
func (k keys) snap(shard int) string    { return fmt.Sprintf("%s%s%04x", k.prefix, familySnap, shard) }
func (k keys) claim(name string) string { return k.prefix + familyClaim + name }

func (k keys) entry(shard int, stream metadata.Stream, seq uint64) string {
	return fmt.Sprintf("%s%s%04x/%s/%016x", k.prefix, familyLog, shard, stream, seq)
}

// parseEntry is the inverse of entry.
func (k keys) parseEntry(key string) (shard int, stream metadata.Stream, seq uint64, err error) {
	rest, ok := strings.CutPrefix(key, k.logs())
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || len(parts[0]) != 4 || parts[1] == "" || len(parts[2]) != 16 {
		return 0, "", 0, fmt.Errorf("key %q is not a log entry", key)
	}
	n, err := strconv.ParseUint(parts[0], 16, 16)
	if err != nil {
		return 0, "", 0, fmt.Errorf("key %q is not a log entry: %w", key, err)
	}
	if seq, err = strconv.ParseUint(parts[2], 16, 64); err != nil {
		return 0, "", 0, fmt.Errorf("key %q is not a log entry: %w", key, err)
	}
	if k.entry(int(n), metadata.Stream(parts[1]), seq) != key {
		return 0, "", 0, fmt.Errorf("key %q is not a log entry: not in the canonical form", key)
	}
	return int(n), metadata.Stream(parts[1]), seq, nil
}

// parseSnap is the inverse of snap.
func (k keys) parseSnap(key string) (shard int, err error) {
	rest, ok := strings.CutPrefix(key, k.snaps())
	n, err := strconv.ParseUint(rest, 16, 16)
	if !ok || err != nil || k.snap(int(n)) != key {
		return 0, fmt.Errorf("key %q is not a snapshot pointer", key)
	}
	return int(n), nil
}

// pointerValue is the value of a snap key, as JSON.
type pointerValue struct {
	Revision int64  `json:"revision"`
	Object   string `json:"object"`
	Hash     []byte `json:"hash"` // State.Hash, base64
}

func encodePointer(p metadata.SnapshotPointer) (string, error) {
	b, err := json.Marshal(pointerValue{p.Revision, p.Object, p.Hash[:]})
	return string(b), err
}

func decodePointer(shard int, b []byte) (metadata.SnapshotPointer, error) {
	var v pointerValue
	if err := json.Unmarshal(b, &v); err != nil {
		return metadata.SnapshotPointer{}, fmt.Errorf("snapshot pointer of shard %d: %w", shard, err)
	}
	p := metadata.SnapshotPointer{Shard: shard, Revision: v.Revision, Object: v.Object}
	if len(v.Hash) != len(p.Hash) || v.Object == "" || v.Revision <= 0 {
		return metadata.SnapshotPointer{}, fmt.Errorf("snapshot pointer of shard %d is not valid: %s", shard, b)
	}
	copy(p.Hash[:], v.Hash)
	return p, nil
}
