package ingest

import (
	"math/bits"
	"sync"
)

const (
	minBufferBits = 10 // 1 KiB
	maxBufferBits = 20 // 1 MiB; larger buffers are rare, made to measure, and left to the garbage collector
)

// buffer is reusable memory for the encodings of one request.
type buffer struct{ b []byte }

// bufferPool lends buffers by size class (powers of two), so that a small request never holds a large buffer.
type bufferPool struct {
	classes [maxBufferBits - minBufferBits + 1]sync.Pool
}

// get returns a buffer whose b has length n; its contents are arbitrary.
func (p *bufferPool) get(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minBufferBits) - minBufferBits
	if class >= len(p.classes) {
		return &buffer{b: make([]byte, n)}
	}
	if b, ok := p.classes[class].Get().(*buffer); ok {
		b.b = b.b[:n]
		return b
	}
	return &buffer{b: make([]byte, n, 1<<(class+minBufferBits))}
}

// put takes a buffer back. Nothing may refer to its memory any more. nil is ignored.
func (p *bufferPool) put(b *buffer) {
	if b == nil || bits.OnesCount(uint(cap(b.b))) != 1 {
		return
	}
	if class := bits.Len(uint(cap(b.b))) - 1 - minBufferBits; class >= 0 && class < len(p.classes) {
		p.classes[class].Put(b)
	}
}
