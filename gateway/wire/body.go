package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/bits"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/forebaymq/forebay/api"
)

// Buffers are pooled by size class: powers of two from 4 KiB to 32 MiB. A request begins with what its Content-Length asks for, but with
// no more than firstBuffer, because a length costs a liar nothing: memory follows the bytes that have arrived.
const (
	minClass    = 12
	maxClass    = 25
	firstBuffer = 256 << 10
)

// maxWindow bounds what a zstd frame may ask a decoder to remember. No body is larger than this, so no honest frame needs more.
const maxWindow = api.MaxRequestBytes

// BodyReader reads request bodies into pooled buffers and undoes their Content-Encoding. One for the whole process; the zero value is
// ready. It may be used by many goroutines at once.
type BodyReader struct {
	buffers [maxClass - minClass + 1]sync.Pool // of *[]byte with exactly 1<<class bytes
	gzips   sync.Pool                          // of *gzip.Reader
	zstds   sync.Pool                          // of *zstd.Decoder, without goroutines of their own
}

// NewBodyReader makes a BodyReader.
func NewBodyReader() *BodyReader { return &BodyReader{} }

type encoding uint8

const (
	identity encoding = iota
	gzipped
	zstded
)

// Read reads the whole body of r, decoded, of at most max bytes. The limit holds for the bytes on the wire and for the decoded bytes
// alike, and memory in use stays within about four times max. Codes: TOO_LARGE beyond max; UNSUPPORTED_MEDIA_TYPE for encodings other
// than one of gzip, zstd and identity; INVALID_REQUEST for a body that is truncated, has trailing bytes after its compressed
// data, or is not as long as its Content-Length; REQUEST_TIMEOUT when the connection's read deadline passed.
//
// The body belongs to the caller until release is called; then nothing may refer to it. release may be called more than once, and is
// never nil.
func (b *BodyReader) Read(r *http.Request, max int64) (body []byte, release func(), err error) {
	enc, err := contentEncoding(r.Header)
	if err != nil {
		return nil, func() {}, err
	}
	if r.ContentLength > max {
		return nil, func() {}, bodyTooLarge(max)
	}
	if r.Body == nil || r.Body == http.NoBody {
		if enc != identity {
			return nil, func() {}, invalid("", "the body is empty, which is not valid compressed data")
		}
		return nil, func() {}, nil
	}
	hint := r.ContentLength
	if hint < 0 {
		hint = 8 << 10
	}
	raw, err := b.readAll(r.Body, hint, max)
	if err != nil {
		return nil, func() {}, bodyFault(err, max)
	}
	if r.ContentLength >= 0 && int64(len(raw)) != r.ContentLength {
		b.put(raw)
		return nil, func() {}, invalid("", "the body has %d bytes, but its Content-Length is %d", len(raw), r.ContentLength)
	}
	if enc != identity {
		decoded, err := b.decode(enc, raw, max)
		b.put(raw)
		if err != nil {
			return nil, func() {}, err
		}
		raw = decoded
	}
	var once sync.Once
	return raw, func() { once.Do(func() { b.put(raw) }) }, nil
}

// contentEncoding reads Content-Encoding. Stacked encodings are refused: they multiply, and no client needs them.
func contentEncoding(h http.Header) (encoding, error) {
	values := h["Content-Encoding"]
	if len(values) == 0 {
		return identity, nil
	}
	name := strings.ToLower(strings.TrimSpace(values[0]))
	switch {
	case len(values) > 1 || strings.Contains(name, ","):
		return 0, fault(api.CodeUnsupportedMediaType, "Content-Encoding", "use one encoding: gzip, zstd or identity")
	case name == "" || name == "identity":
		return identity, nil
	case name == "gzip" || name == "x-gzip":
		return gzipped, nil
	case name == "zstd":
		return zstded, nil
	default:
		return 0, fault(api.CodeUnsupportedMediaType, "Content-Encoding", "use gzip, zstd or identity")
	}
}

// errTooLong says that a stream is longer than its limit.
var errTooLong = errors.New("stream is longer than its limit")

// readAll reads r to its end, at most max bytes, into a pooled buffer. hint is the expected size.
func (b *BodyReader) readAll(r io.Reader, hint, max int64) ([]byte, error) {
	// One byte above the limit tells a full body from one that is too long, and above the hint it finds the end without growing.
	buf := b.get(min(hint, max, firstBuffer) + 1)
	n := 0
	for empty := 0; ; {
		m, err := r.Read(buf[n:min(int64(len(buf)), max+1)])
		n += m
		switch {
		case int64(n) > max:
			b.put(buf)
			return nil, errTooLong
		case err == io.EOF:
			return buf[:n], nil
		case err != nil:
			b.put(buf)
			return nil, err
		}
		if m > 0 {
			empty = 0
		} else if empty++; empty > 100 {
			b.put(buf)
			return nil, io.ErrNoProgress
		}
		if n == len(buf) {
			bigger := b.get(min(int64(len(buf))*2, max+1))
			copy(bigger, buf)
			b.put(buf)
			buf = bigger
		}
	}
}

// get gives a buffer of at least n bytes.
func (b *BodyReader) get(n int64) []byte {
	class := max(bits.Len64(uint64(n-1)), minClass)
	if class > maxClass {
		return make([]byte, n)
	}
	if p, ok := b.buffers[class-minClass].Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 1<<class)
}

func (b *BodyReader) put(buf []byte) {
	size := cap(buf)
	if size < 1<<minClass || size > 1<<maxClass || size&(size-1) != 0 {
		return
	}
	buf = buf[:size]
	b.buffers[bits.TrailingZeros(uint(size))-minClass].Put(&buf)
}

// decode undoes enc. The whole compressed body is in memory (and bounded) already, so that a slow sender holds no decoder.
func (b *BodyReader) decode(enc encoding, raw []byte, max int64) ([]byte, error) {
	var (
		in  = bytes.NewReader(raw)
		out []byte
		err error
	)
	hint := int64(len(raw)) * 4
	if enc == gzipped {
		z, _ := b.gzips.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		if err = z.Reset(in); err == nil {
			out, err = b.readAll(z, hint, max)
		}
		b.gzips.Put(z)
	} else {
		z, _ := b.zstds.Get().(*zstd.Decoder)
		if z == nil {
			z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
				zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
			if err != nil {
				return nil, err
			}
		}
		if err = z.Reset(in); err == nil {
			out, err = b.readAll(z, hint, max)
		}
		if z.Reset(nil) == nil { // drops its reference to raw
			b.zstds.Put(z)
		}
	}
	switch {
	case err == nil && len(raw) == 0:
		b.put(out)
		return nil, invalid("", "the body is empty, which is not valid compressed data")
	case err == nil:
		return out, nil
	case errors.Is(err, errTooLong), errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, bodyTooLarge(max)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		e := invalid("", "the compressed body ends early")
		e.Cause = err
		return nil, e
	default:
		e := invalid("", "the body is not valid compressed data, or bytes follow it")
		e.Cause = err
		return nil, e
	}
}

func bodyTooLarge(max int64) error {
	return tooLarge("", "the body is larger than %d bytes, counted on the wire or after decompression; split the request", max)
}

// bodyFault names the error of reading from the connection.
func bodyFault(err error, max int64) error {
	var (
		tooLong *http.MaxBytesError
		network net.Error
	)
	switch {
	case errors.Is(err, errTooLong), errors.As(err, &tooLong):
		return bodyTooLarge(max)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return &api.Error{Code: api.CodeRequestTimeout, Detail: "the body did not arrive in time; send it again", Cause: err}
	default:
		return &api.Error{Code: api.CodeInvalidRequest, Detail: "the body ended early", Cause: err}
	}
}
