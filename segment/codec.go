package segment

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Compression says how much a Writer compresses.
type Compression uint8

// The compression levels.
const (
	CompressFastest Compression = iota // zstd at its fastest, the default: made for the commit path
	CompressBetter                     // zstd, slower and smaller: made for the compactor
	CompressNone                       // payloads are stored as they are
)

const (
	// minGainPercent is what compression must save for a payload to be stored compressed: below it, reading costs more than the bytes.
	minGainPercent = 6
	// minCompressBytes: a smaller payload is stored as it is.
	minCompressBytes = 128
	// probeBytes: a payload of at least four times this is probed before it is compressed as a whole.
	probeBytes = 16 << 10
	// A zstd block yields at most 128 KiB and takes at least 4 bytes. So stored bytes bound what can come out of them.
	zstdBlockBytes    = 128 << 10
	zstdMinBlockBytes = 4
)

// The pools hold scratch state without meaning between uses: an encoder or decoder is a few hundred KiB of tables and is made for one
// goroutine, while DecodeBatch has no receiver that could keep one.
var (
	fastestEncoders = sync.Pool{New: func() any { return newEncoder(zstd.SpeedFastest) }}
	betterEncoders  = sync.Pool{New: func() any { return newEncoder(zstd.SpeedBetterCompression) }}
	decoders        = sync.Pool{New: func() any { return newDecoder() }}
)

func newEncoder(level zstd.EncoderLevel) *zstd.Encoder {
	// No CRC in the frame: the batch has its own over the stored bytes.
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20))
	if err != nil {
		panic("segment: zstd refuses constant options: " + err.Error())
	}
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxPayloadBytes), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("segment: zstd refuses constant options: " + err.Error())
	}
	return d
}

// compress appends the zstd frame of src to dst. ok is false, and dst as it was, when that does not save enough.
func compress(dst, src []byte, level Compression, minGain int) (out []byte, ok bool) {
	if level == CompressNone || len(src) < minCompressBytes {
		return dst, false
	}
	pool := &fastestEncoders
	if level == CompressBetter {
		pool = &betterEncoders
	}
	e := pool.Get().(*zstd.Encoder)
	defer pool.Put(e)
	enough := func(stored, raw int) bool { return int64(stored)*100 <= int64(raw)*int64(100-minGain) }
	if len(src) >= 4*probeBytes && looksRandom(src) {
		// Flat byte frequencies leave only repeated strings to be found, as in copies of one random payload: look for them in one
		// stretch before the whole is tried.
		at := (len(src) - probeBytes) / 2
		probe := e.EncodeAll(src[at:at+probeBytes], dst[len(dst):])
		if !enough(len(probe), probeBytes) {
			return dst, false
		}
	}
	out = e.EncodeAll(src, dst)
	if !enough(len(out)-len(dst), len(src)) {
		return dst, false
	}
	return out, true
}

// looksRandom says whether 4096 bytes sampled from all over src have frequencies so flat that an entropy coder would save less than
// about 6 %: their collision entropy is above 7.5 bits a byte.
func looksRandom(src []byte) bool {
	const samples, stretch = 64, 64
	var count [256]uint32
	step := (len(src) - stretch) / samples
	for i := range samples {
		for _, c := range src[i*step : i*step+stretch] {
			count[c]++
		}
	}
	var squares uint64
	for _, n := range count {
		squares += uint64(n) * uint64(n)
	}
	const total = samples * stretch
	return squares < total*total/181 // 2^7.5 = 181
}

// decompress gives the payload of raw bytes that src holds, or a reason.
func decompress(dst, src []byte, raw int) ([]byte, string) {
	if raw > (len(src)/zstdMinBlockBytes+1)*zstdBlockBytes {
		return nil, "payload length is more than the stored bytes can yield"
	}
	if cap(dst) < raw {
		dst = make([]byte, 0, raw)
	}
	d := decoders.Get().(*zstd.Decoder)
	defer decoders.Put(d)
	out, err := d.DecodeAll(src, dst[:0:raw])
	if err != nil {
		return nil, err.Error()
	}
	if len(out) != raw {
		return nil, "payload length differs from the header's"
	}
	return out, ""
}
