package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/forebaymq/forebay/api"
)

func gzipOf(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstdOf(t testing.TB, data []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// zstdStream compresses without the size of the content in the frame.
func zstdStream(t testing.TB, data []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		n := min(len(data), 1<<20)
		if _, err := w.Write(data[:n]); err != nil {
			t.Fatal(err)
		}
		data = data[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func bodyRequest(encoding string, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	return r
}

func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

// chunked hides the length of a body.
type chunked struct{ r io.Reader }

func (c chunked) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), 1000)]) }

func TestReadBody(t *testing.T) {
	b := NewBodyReader()
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000, 300_000, 1 << 20} {
		data := noise(size)
		for name, r := range map[string]*http.Request{
			"plain":        bodyRequest("", bytes.NewReader(data)),
			"identity":     bodyRequest("Identity", bytes.NewReader(data)),
			"chunked":      bodyRequest("", chunked{bytes.NewReader(data)}),
			"gzip":         bodyRequest("gzip", bytes.NewReader(gzipOf(t, data))),
			"x-gzip":       bodyRequest(" X-GZIP ", bytes.NewReader(gzipOf(t, data))),
			"gzip chunked": bodyRequest("gzip", chunked{bytes.NewReader(gzipOf(t, data))}),
			"gzip twice":   bodyRequest("gzip", io.MultiReader(bytes.NewReader(gzipOf(t, data[:size/2])), bytes.NewReader(gzipOf(t, data[size/2:])))),
			"zstd":         bodyRequest("zstd", bytes.NewReader(zstdOf(t, data, zstd.WithZeroFrames(true)))),
			"zstd chunked": bodyRequest("zstd", chunked{bytes.NewReader(zstdStream(t, data, zstd.WithZeroFrames(true)))}),
		} {
			body, release, err := b.Read(r, 2<<20)
			if err != nil {
				t.Errorf("%s of %d: %v", name, size, err)
			} else if !bytes.Equal(body, data) {
				t.Errorf("%s of %d: other bytes", name, size)
			}
			release()
			release()
		}
	}
}

// H2: the limit holds for the decoded size, at limit and limit+1, whatever the encoding and framing.
func TestReadBodyLimit(t *testing.T) {
	b := NewBodyReader()
	for _, limit := range []int{0, 1, 1000, 4096, 256 << 10, 1 << 20} {
		for extra := range 2 {
			data := bytes.Repeat([]byte("x"), limit+extra)
			for name, r := range map[string]*http.Request{
				"plain":   bodyRequest("", bytes.NewReader(data)),
				"chunked": bodyRequest("", chunked{bytes.NewReader(data)}),
				"gzip":    bodyRequest("gzip", bytes.NewReader(gzipOf(t, data))),
				"zstd":    bodyRequest("zstd", bytes.NewReader(zstdOf(t, data, zstd.WithZeroFrames(true)))),
				"stream":  bodyRequest("zstd", chunked{bytes.NewReader(zstdStream(t, data, zstd.WithZeroFrames(true)))}),
			} {
				if limit < 100 && name != "plain" && name != "chunked" {
					continue // the compressed form alone is longer than that
				}
				body, release, err := b.Read(r, int64(limit))
				if extra == 0 && (err != nil || len(body) != limit) {
					t.Errorf("%s of the limit %d: %v", name, limit, err)
				}
				if extra == 1 && api.CodeOf(err) != api.CodeTooLarge {
					t.Errorf("%s of the limit %d and one: %v", name, limit, err)
				}
				release()
			}
		}
	}
	// A compressed body counts on the wire as well, so that it cannot be made of endless empty members.
	r := bodyRequest("gzip", bytes.NewReader(bytes.Repeat(gzipOf(t, nil), 1000)))
	if _, _, err := b.Read(r, 1000); api.CodeOf(err) != api.CodeTooLarge {
		t.Errorf("empty members: %v", err)
	}
}

func TestReadBodyRefused(t *testing.T) {
	b := NewBodyReader()
	data := noise(10_000)
	wrongLength := func(r *http.Request, n int64) *http.Request { r.ContentLength = n; return r }
	two := bodyRequest("gzip", bytes.NewReader(gzipOf(t, data)))
	two.Header.Add("Content-Encoding", "gzip")
	flip := func(b []byte, i int) []byte { b[i] ^= 0x55; return b }
	const inv, media = api.CodeInvalidRequest, api.CodeUnsupportedMediaType
	for name, c := range map[string]struct {
		r    *http.Request
		code api.Code
	}{
		"stacked":          {bodyRequest("gzip, gzip", bytes.NewReader(gzipOf(t, gzipOf(t, data)))), media},
		"two headers":      {two, media},
		"identity, gzip":   {bodyRequest("identity, gzip", bytes.NewReader(gzipOf(t, data))), media},
		"br":               {bodyRequest("br", bytes.NewReader(data)), media},
		"not gzip":         {bodyRequest("gzip", bytes.NewReader(data)), inv},
		"not zstd":         {bodyRequest("zstd", bytes.NewReader(data)), inv},
		"empty gzip":       {bodyRequest("gzip", chunked{strings.NewReader("")}), inv},
		"no body gzip":     {bodyRequest("gzip", http.NoBody), inv},
		"empty zstd":       {bodyRequest("zstd", chunked{strings.NewReader("")}), inv},
		"truncated gzip":   {bodyRequest("gzip", bytes.NewReader(gzipOf(t, data)[:5000])), inv},
		"no gzip trailer":  {bodyRequest("gzip", bytes.NewReader(gzipOf(t, []byte("abc"))[:20])), inv},
		"truncated zstd":   {bodyRequest("zstd", bytes.NewReader(zstdOf(t, data)[:5000])), inv},
		"truncated header": {bodyRequest("zstd", bytes.NewReader(zstdOf(t, data)[:3])), inv},
		"gzip garbage":     {bodyRequest("gzip", bytes.NewReader(append(gzipOf(t, data), "garbage"...))), inv},
		"gzip zero":        {bodyRequest("gzip", bytes.NewReader(append(gzipOf(t, data), 0))), inv},
		"zstd garbage":     {bodyRequest("zstd", bytes.NewReader(append(zstdOf(t, data), "garbage"...))), inv},
		"gzip checksum":    {bodyRequest("gzip", bytes.NewReader(flip(gzipOf(t, []byte("abc")), 22))), inv},
		"zstd checksum":    {bodyRequest("zstd", bytes.NewReader(flip(zstdStream(t, []byte("abcdefgh")), len(zstdStream(t, []byte("abcdefgh")))-1))), inv},
		"gzip in gzip":     {bodyRequest("gzip, identity", bytes.NewReader(gzipOf(t, data))), media},
		"longer":           {wrongLength(bodyRequest("", bytes.NewReader(data)), 9_999), inv},
		"shorter":          {wrongLength(bodyRequest("", bytes.NewReader(data)), 10_001), inv},
		"claimed huge":     {wrongLength(bodyRequest("", bytes.NewReader(data)), 1<<40), api.CodeTooLarge},
		"broken":           {bodyRequest("", io.MultiReader(bytes.NewReader(data), brokenReader{io.ErrUnexpectedEOF})), inv},
		"slow":             {bodyRequest("", io.MultiReader(bytes.NewReader(data), brokenReader{os.ErrDeadlineExceeded})), api.CodeRequestTimeout},
		"max bytes":        {bodyRequest("", brokenReader{&http.MaxBytesError{Limit: 1}}), api.CodeTooLarge},
		"no progress":      {bodyRequest("", brokenReader{}), inv},
	} {
		body, release, err := b.Read(c.r, 1<<20)
		if api.CodeOf(err) != c.code || body != nil {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		release()
	}
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

// H2: bodies that grow without end when decompressed are refused with little memory, and a small body works right after.
func TestReadBodyBombs(t *testing.T) {
	b := NewBodyReader()
	const limit = 1 << 20
	zeros := make([]byte, 8<<20)
	for name, c := range map[string]struct {
		encoding string
		body     []byte
	}{
		"gzip":          {"gzip", bytes.Repeat(gzipOf(t, zeros), 100)}, // 800 MiB
		"zstd":          {"zstd", bytes.Repeat(zstdOf(t, zeros), 400)},
		"zstd stream":   {"zstd", bytes.Repeat(zstdStream(t, zeros), 400)},
		"zstd window":   {"zstd", zstdStream(t, zeros, zstd.WithWindowSize(zstd.MaxWindowSize))}, // asks for 512 MiB at once
		"zstd claimed":  {"zstd", []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 1, 0, 0}},
		"zstd claimed2": {"zstd", []byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0xf8, 0, 0, 0, 0, 0, 0, 0, 0x7f, 1, 0, 0}},
	} {
		if len(c.body) > limit {
			t.Fatalf("%s: %d bytes", name, len(c.body))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := b.Read(bodyRequest(c.encoding, bytes.NewReader(c.body)), limit)
		runtime.ReadMemStats(&after)
		if code := api.CodeOf(err); code != api.CodeTooLarge && !(strings.HasPrefix(name, "zstd claimed") && code == api.CodeInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 24<<20 {
			t.Errorf("%s: %d MiB allocated", name, used>>20)
		}
		body, release, err := b.Read(bodyRequest(c.encoding, bytes.NewReader(map[string][]byte{
			"gzip": gzipOf(t, []byte("{}")), "zstd": zstdOf(t, []byte("{}"))}[c.encoding])), limit)
		if err != nil || string(body) != "{}" {
			t.Errorf("%s: a small body afterwards: %q, %v", name, body, err)
		}
		release()
	}
}

// A Content-Length alone costs no memory: buffers follow the bytes that arrive.
func TestReadBodyDoesNotTrustTheLength(t *testing.T) {
	b := NewBodyReader()
	r := bodyRequest("", brokenReader{errors.New("gone")})
	r.ContentLength = 16 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := b.Read(r, 16<<20)
	runtime.ReadMemStats(&after)
	if api.CodeOf(err) != api.CodeInvalidRequest || after.TotalAlloc-before.TotalAlloc > 2<<20 {
		t.Errorf("%v, %d bytes allocated", err, after.TotalAlloc-before.TotalAlloc)
	}
}

// Pooled buffers and decoders are shared by requests at the same time, and never by two at once.
func TestReadBodyConcurrently(t *testing.T) {
	b := NewBodyReader()
	var wg sync.WaitGroup
	for g := range 8 {
		data := bytes.Repeat([]byte{byte('a' + g)}, 10_000*(g+1))
		gz, zs := gzipOf(t, data), zstdOf(t, data)
		wg.Go(func() {
			for i := range 30 {
				enc, body := "gzip", gz
				if i%2 == 0 {
					enc, body = "zstd", zs
				}
				got, release, err := b.Read(bodyRequest(enc, bytes.NewReader(body)), 1<<20)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: %v", enc, err)
				}
				runtime.Gosched()
				if !bytes.Equal(got, data) {
					t.Error("another request wrote into the buffer")
				}
				release()
			}
		})
	}
	wg.Wait()
}
