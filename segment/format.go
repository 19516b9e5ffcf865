package segment

import (
	"errors"
	"fmt"
	"hash/crc32"
)

// Version is the format that Writer writes. Version bytes are never reused; readers keep every version they ever read.
const Version = 1

// Limits of the format. A reader refuses whatever exceeds them before it allocates anything for it.
const (
	MaxPayloadBytes  = 64 << 20 // one batch's payload before compression
	MaxBatchRecords  = 1<<31 - 1
	MaxProducerBytes = 1024 // producer ID in a batch header
	MaxBatches       = 1 << 24
)

// Object header: the first HeaderSize bytes. All integers of the format are little-endian.
//
//	offset size field
//	0      7    magic "FBYSEG\n"
//	7      1    version
//	8      1    level
//	9      7    reserved, zero
//	16     16   segment ID (ULID)
//	32     8    created, Unix ms, signed
//	40     4    reserved, zero
//	44     4    CRC-32C of bytes 0 to 43
const (
	HeaderSize = 48

	headerMagic    = "FBYSEG\n"
	headerVersion  = 7
	headerLevel    = 8
	headerReserved = 9
	headerID       = 16
	headerCreated  = 32
	headerReserve2 = 40
	headerCRC      = 44
)

// Batch header: BatchHeaderSize bytes, followed by the producer ID and the payload.
//
//	offset size field
//	0      4    magic "FBAT"
//	4      4    CRC-32C of bytes 8 to the end of the batch
//	8      1    version
//	9      1    codec
//	10     2    flags
//	12     4    stored length, header, producer ID and payload
//	16     4    payload length before compression
//	20     4    records
//	24     8    topic ID
//	32     4    partition
//	36     2    length of the producer ID
//	38     2    reserved, zero
//	40     8    producer epoch, signed
//	48     8    producer sequence, signed
//	56     8    first offset (sparse), else zero
//	64     8    first append time, Unix ms (sparse), else zero
const (
	BatchHeaderSize = 72

	batchMagic       = "FBAT"
	batchCRC         = 4
	batchVersion     = 8
	batchCodec       = 9
	batchFlags       = 10
	batchStored      = 12
	batchRaw         = 16
	batchRecords     = 20
	batchTopic       = 24
	batchPartition   = 32
	batchProducer    = 36
	batchReserved    = 38
	batchEpoch       = 40
	batchSequence    = 48
	batchFirstOffset = 56
	batchFirstTime   = 64
)

// Flags of a batch, in its header and in its index entry. Unknown flags are corrupt.
const (
	FlagSparse   = 1 << 0 // offsets and append times are in the payload
	FlagProducer = 1 << 1 // the producer fields mean something

	knownFlags = FlagSparse | FlagProducer
)

// Codec says how a payload is stored.
type Codec uint8

// Codecs. Part of the format, never renumbered.
const (
	CodecRaw  Codec = 0
	CodecZstd Codec = 1
)

func (c Codec) String() string {
	switch c {
	case CodecRaw:
		return "raw"
	case CodecZstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", uint8(c))
}

// Index entry: IndexEntrySize bytes, and in a sparse batch IndexSparseSize more.
//
//	offset size field
//	0      8    topic ID
//	8      4    partition
//	12     4    records
//	16     8    position of the batch in the object
//	24     4    stored length
//	28     4    payload length before compression
//	32     2    flags
//	34     2    reserved, zero
//	36     8    first offset (sparse only)
//	44     8    last offset (sparse only)
//	52     8    first append time, Unix ms (sparse only)
//	60     8    last append time, Unix ms (sparse only)
const (
	IndexEntrySize  = 36
	IndexSparseSize = 32

	indexTopic       = 0
	indexPartition   = 8
	indexRecords     = 12
	indexPos         = 16
	indexLen         = 24
	indexRaw         = 28
	indexFlags       = 32
	indexReserved    = 34
	indexFirstOffset = 36
	indexLastOffset  = 44
	indexFirstTime   = 52
	indexLastTime    = 60
)

// Footer: the last FooterSize bytes. Its last eight bytes keep their place and meaning in every version.
//
//	offset size field
//	0      16   segment ID (ULID)
//	16     8    created, Unix ms, signed
//	24     8    position of the index
//	32     4    length of the index
//	36     4    CRC-32C of the index
//	40     4    batches
//	44     4    reserved, zero
//	48     1    level
//	49     3    reserved, zero
//	52     4    CRC-32C of bytes 0 to 51
//	56     7    magic "FBYEND\n"
//	63     1    version
const (
	FooterSize = 64

	footerMagic    = "FBYEND\n"
	footerID       = 0
	footerCreated  = 16
	footerIndexPos = 24
	footerIndexLen = 32
	footerIndexCRC = 36
	footerBatches  = 40
	footerReserved = 44
	footerLevel    = 48
	footerReserve2 = 49
	footerCRC      = 52
	footerMagicAt  = 56
	footerVersion  = 63
)

// Flags of a record: a varint of one or two bytes at the start of its body.
const (
	recordKey          = 1 << 0
	recordKeyBinary    = 1 << 1
	recordValue        = 1 << 2
	recordKindShift    = 3 // two bits: Kind
	recordHeaders      = 1 << 5
	recordProducerTime = 1 << 6
	recordDeliverAt    = 1 << 7
	recordID           = 1 << 8

	recordKindMask   = 3
	recordKnownFlags = 1<<9 - 1
	minRecordSize    = 2 // body length and flags
)

// ErrUnsupportedVersion is the class of errors about bytes written by a version that this reader does not know.
var ErrUnsupportedVersion = errors.New("unsupported segment version")

// ErrInvalidBatch is the class of errors about batches that cannot be written as they are. Nothing was added to the segment.
var ErrInvalidBatch = errors.New("invalid batch")

// VersionError says which structure has which unknown version.
type VersionError struct {
	Structure string // "header", "footer", "batch"
	Version   uint8
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("unsupported segment version %d in the %s: this build reads version %d", e.Version, e.Structure, Version)
}

// Is makes errors.Is(err, ErrUnsupportedVersion) true.
func (e *VersionError) Is(target error) bool { return target == ErrUnsupportedVersion }

// castagnoli is the table of CRC-32C. MakeTable returns one shared, constant table.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func corrupt(structure string, offset int, format string, args ...any) error {
	return &CorruptError{Offset: int64(offset), Structure: structure, Reason: fmt.Sprintf(format, args...)}
}

// shift adds a base to the offset of a corruption, where the caller knows where the structure stands in the object.
func shift(err error, base int64) error {
	var c *CorruptError
	if !errors.As(err, &c) {
		return err
	}
	moved := *c
	moved.Offset += base
	return &moved
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
