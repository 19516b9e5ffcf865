package compactor

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// keyHash stands for a key. It has 128 bits of SHA-256: whoever can write to a topic must not be able to make one key pass for another.
type keyHash [16]byte

func hashKey(key []byte) keyHash {
	sum := sha256.Sum256(key)
	return keyHash(sum[:16])
}

// keyMap holds the newest offset of each key, in memory of fixed size: an open table that is never more than three quarters full.
type keyMap struct {
	hashes  []keyHash
	offsets []int64 // offset + 1; 0 = the slot is free
	mask    uint64
	n       int
	limit   int
}

const keySlotBytes = 24

// newKeyMap makes a map for about records keys that takes no more than limit bytes, with a slot at least.
func newKeyMap(records int64, limit int64) *keyMap {
	want := uint64(max(records, 1))*4/3 + 1
	slots := uint64(1) << bits.Len64(want-1)
	for slots > 1 && slots*keySlotBytes > uint64(limit) {
		slots /= 2
	}
	slots = max(slots, 4)
	return &keyMap{hashes: make([]keyHash, slots), offsets: make([]int64, slots), mask: slots - 1, limit: int(slots * 3 / 4)}
}

// slot gives the place of a hash, or the free one where it would go.
func (m *keyMap) slot(h *keyHash) uint64 {
	i := binary.LittleEndian.Uint64(h[:8]) & m.mask
	for m.offsets[i] != 0 && m.hashes[i] != *h {
		i = (i + 1) & m.mask
	}
	return i
}

// put notes a record. Offsets come ascending. It returns false, and notes nothing, when the key is new and the map is full.
func (m *keyMap) put(h keyHash, offset int64) bool {
	i := m.slot(&h)
	if m.offsets[i] == 0 {
		if m.n == m.limit {
			return false
		}
		m.n++
		m.hashes[i] = h
	}
	m.offsets[i] = offset + 1
	return true
}

// newer says whether a record of this key has come after the offset.
func (m *keyMap) newer(h keyHash, offset int64) bool {
	return m.offsets[m.slot(&h)] > offset+1
}
