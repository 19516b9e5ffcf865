package metadata

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
)

// A snapshot object is
//
//	magic "FBMS"(4) version(1) method(1) SHA-256 of the body(32) length of the body(uvarint) payload
//
// where the payload is the body itself (method 0) or one zstd frame of it (method 1). The body is canonical: equal states have equal
// bodies. Versions ratchet and are never reused.
const (
	snapshotMagic           = "FBMS"
	snapshotVersion    byte = 3 // since 2 the body has subscriptions behind event IDs, since 3 it ends with groups
	oldestSnapshot     byte = 1 // that can be read
	snapshotRaw        byte = 0
	snapshotZstd       byte = 1
	snapshotHashOffset      = len(snapshotMagic) + 2
	snapshotHeader          = snapshotHashOffset + sha256.Size

	// A payload that shrinks by more than this is stored raw, so that a reader can refuse any that claims to be larger.
	maxSnapshotRatio = 1024
	maxSnapshotSlack = 1 << 20

	// The encoder's largest window, which a decoder must permit even for small bodies.
	zstdWindow = 8 << 20
)

// ErrSnapshotMismatch: a snapshot's body is not the one that its header, or the pointer to it, names.
var ErrSnapshotMismatch = errors.New("snapshot does not match its hash")

// Hash is the SHA-256 of the state's snapshot body. States that applied the same entries have the same hash.
func (s *State) Hash() [32]byte { return sha256.Sum256(s.SnapshotBody()) }

// MarshalSnapshot gives the stored form of the state.
func (s *State) MarshalSnapshot() []byte {
	out, _ := SealSnapshot(s.SnapshotBody())
	return out
}

// SealSnapshot makes the stored form of a snapshot body, and gives the body's hash. It needs no lock on the state that the body is of.
func SealSnapshot(body []byte) (stored []byte, hash [32]byte) {
	hash = sha256.Sum256(body)
	out := make([]byte, 0, snapshotHeader+binary.MaxVarintLen64+len(body)/4)
	out = append(out, snapshotMagic...)
	out = append(out, snapshotVersion, snapshotZstd)
	out = append(out, hash[:]...)
	out = binary.AppendUvarint(out, uint64(len(body)))
	head := len(out)
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(fmt.Sprintf("assertion failed: constant options of the encoder: %v", err))
	}
	out = enc.EncodeAll(body, out)
	if packed := len(out) - head; packed >= len(body) || len(body) > maxBody(packed) {
		out = append(out[:head], body...)
		out[len(snapshotMagic)+1] = snapshotRaw
	}
	return out, hash
}

func maxBody(packed int) int { return packed*maxSnapshotRatio + maxSnapshotSlack }

// SnapshotHash reads the hash in the header of a stored snapshot.
func SnapshotHash(b []byte) (h [32]byte, err error) {
	if len(b) < snapshotHeader || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return h, &DecodeError{Structure: "snapshot", Reason: "no snapshot"}
	}
	copy(h[:], b[snapshotHashOffset:])
	return h, nil
}

// UnmarshalSnapshot is the inverse of MarshalSnapshot. Errors are ErrUndecodable or ErrSnapshotMismatch. The result shares no memory
// with b.
func UnmarshalSnapshot(b []byte) (*State, error) {
	body, err := openSnapshot(b)
	if err != nil {
		return nil, err
	}
	return decodeBody(body, b[len(snapshotMagic)])
}

func openSnapshot(b []byte) ([]byte, error) {
	want, err := SnapshotHash(b)
	if err != nil {
		return nil, err
	}
	if v := b[len(snapshotMagic)]; v < oldestSnapshot || v > snapshotVersion {
		return nil, &DecodeError{Structure: "snapshot", Offset: len(snapshotMagic), Reason: fmt.Sprintf("unknown version %d", v)}
	}
	r := &reader{b: b, off: snapshotHeader, structure: "snapshot"}
	n := r.upTo(math.MaxInt64)
	if r.err != nil {
		return nil, r.err
	}
	body := b[r.off:]
	switch method := b[len(snapshotMagic)+1]; method {
	case snapshotRaw:
		if n != uint64(len(body)) {
			return nil, &DecodeError{Structure: "snapshot", Offset: r.off, Reason: "length does not match"}
		}
	case snapshotZstd:
		if n > uint64(maxBody(len(body))) {
			return nil, &DecodeError{Structure: "snapshot", Offset: r.off, Reason: "length exceeds what the payload can hold"}
		}
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max(n, zstdWindow)))
		if err != nil {
			return nil, fmt.Errorf("decompress snapshot: %w", err)
		}
		defer dec.Close()
		if body, err = dec.DecodeAll(body, nil); err != nil || uint64(len(body)) != n {
			return nil, &DecodeError{Structure: "snapshot", Offset: r.off, Reason: fmt.Sprintf("bad payload: %v", err)}
		}
	default:
		return nil, &DecodeError{Structure: "snapshot", Offset: len(snapshotMagic) + 1, Reason: fmt.Sprintf("unknown method %d", method)}
	}
	if got := sha256.Sum256(body); !bytes.Equal(got[:], want[:]) {
		return nil, ErrSnapshotMismatch
	}
	return body, nil
}
