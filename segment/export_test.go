package segment

import "encoding/binary"

// MendBatch writes the stored length and the checksum that b would have as a batch, so that a fuzzer gets past them.
func MendBatch(b []byte) []byte {
	if len(b) >= BatchHeaderSize {
		copy(b, batchMagic)
		b[batchVersion] = Version
		sealBatch(b)
	}
	return b
}

// MendObject writes the magics, the versions and the checksums that b would have as an object, batches included as far as the index is sane.
func MendObject(b []byte) []byte {
	if len(b) < HeaderSize+FooterSize {
		return b
	}
	copy(b, headerMagic)
	b[headerVersion] = Version
	binary.LittleEndian.PutUint32(b[headerCRC:], checksum(b[:headerCRC]))
	f := b[len(b)-FooterSize:]
	copy(f[footerMagicAt:], footerMagic)
	f[footerVersion] = Version
	if size := int(binary.LittleEndian.Uint32(f[footerIndexLen:])); size <= len(b)-FooterSize {
		index := b[len(b)-FooterSize-size : len(b)-FooterSize]
		binary.LittleEndian.PutUint32(f[footerIndexCRC:], checksum(index))
	}
	binary.LittleEndian.PutUint32(f[footerCRC:], checksum(f[:footerCRC]))
	if x, err := OpenIndex(b, int64(len(b))); err == nil {
		for _, info := range x.Batches {
			MendBatch(b[info.Ref.Pos : info.Ref.Pos+uint64(info.Ref.Len)])
		}
	}
	return b
}

// DecodeRecord decodes one encoding that must fill b.
func DecodeRecord(b []byte, r *Record) bool {
	size, n := uvarint(b)
	if n == 0 || size == 0 || size != uint64(len(b)-n) {
		return false
	}
	_, reason := decodeBody(b[n:], r, &headerArena{})
	return reason == ""
}

// Uvarint is uvarint.
func Uvarint(b []byte) (uint64, int) { return uvarint(b) }

// UvarintSize is uvarintSize.
func UvarintSize(v uint64) int { return uvarintSize(v) }

// Castagnoli is checksum.
func Castagnoli(b []byte) uint32 { return checksum(b) }
