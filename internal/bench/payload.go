package bench

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/forebaymq/forebay/client"
)

// filler is the part of a value that compresses.
const filler = "the quick brown fox jumps over the lazy dog and runs along the bay; "

// payloads makes requests before the clock runs, so that the client costs little of the machine that it shares with the server.
type payloads struct {
	size         int     // of key and value together
	batch        int     // records a request
	compressible float64 // share of a value that is filler, 0..1
	json         bool
	rng          *rand.Rand
}

// value makes one value. Text has 6 bits of randomness in a byte at most, data 8.
func (p *payloads) value(n int) []byte {
	random := n - int(float64(n)*p.compressible)
	v := make([]byte, 0, n+3)
	for len(v) < random {
		word := p.rng.Uint64()
		for i := 0; i < 8 && len(v) < random; i++ {
			v = append(v, byte(word>>(8*i)))
		}
	}
	if p.json {
		v = []byte(base64.RawURLEncoding.EncodeToString(v))[:random]
	}
	for len(v) < n {
		v = append(v, filler[:min(len(filler), n-len(v))]...)
	}
	return v
}

func (p *payloads) records() []client.Record {
	records := make([]client.Record, p.batch)
	for i := range records {
		key := []byte("k" + strconv.FormatUint(p.rng.Uint64()%1_000_000, 10))
		records[i] = client.Record{Key: key, Value: p.value(max(0, p.size-len(key))), Kind: client.KindData}
	}
	return records
}

// request makes one request, and says how many bytes of keys and values it holds.
func (p *payloads) request(c *client.Client) (*client.Prepared, int64, error) {
	records := p.records()
	var bytes int64
	for _, r := range records {
		bytes += int64(len(r.Key) + len(r.Value))
	}
	if !p.json {
		prepared, err := c.Prepare(records, nil)
		return prepared, bytes, err
	}
	body := []byte(`{"records":[`)
	for i, r := range records {
		if i > 0 {
			body = append(body, ',')
		}
		// Keys and text are of an alphabet that JSON needs not escape.
		body = fmt.Appendf(body, `{"key":"%s","text":"%s"}`, r.Key, r.Value)
	}
	prepared, err := c.PrepareJSON(append(body, "]}"...), len(records))
	return prepared, bytes, err
}
