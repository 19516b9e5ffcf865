package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Puts is what the server's object store was asked to write meanwhile.
type Puts struct {
	Count  int64   `json:"count"`
	PerGiB float64 `json:"perGiB"` // of keys and values acknowledged
}

// putCounter reads the server's own count of PUTs before and after a measurement.
type putCounter struct {
	url   string // "" = off
	start float64
}

func newPutCounter(opsURL string) *putCounter {
	if opsURL == "" {
		return &putCounter{}
	}
	return &putCounter{url: strings.TrimRight(opsURL, "/") + "/metrics"}
}

// before reads the count at the given time.
func (p *putCounter) before(ctx context.Context, at time.Time) (err error) {
	if p.url == "" || !sleepUntil(ctx, at) {
		return nil
	}
	p.start, err = p.read(ctx)
	return err
}

// after reads it again.
func (p *putCounter) after(ctx context.Context, bytes int64) (*Puts, error) {
	if p.url == "" {
		return nil, nil
	}
	end, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	puts := &Puts{Count: int64(end - p.start)}
	if bytes > 0 {
		puts.PerGiB = float64(puts.Count) / (float64(bytes) / (1 << 30))
	}
	return puts, nil
}

func (p *putCounter) read(ctx context.Context) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read metrics: %s answers %s", p.url, resp.Status)
	}
	return sumPuts(resp.Body)
}

// putMetric counts the object store's operations by label op.
const putMetric = "forebay_objectstore_requests_total"

// sumPuts adds up the samples of putMetric that are PUTs, in Prometheus' text format.
func sumPuts(r io.Reader) (sum float64, err error) {
	found := false
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, putMetric+"{") {
			continue
		}
		labels, value, ok := strings.Cut(line[len(putMetric):], "} ")
		if !ok {
			continue
		}
		found = true
		if !strings.Contains(labels, `op="put`) {
			continue
		}
		value, _, _ = strings.Cut(value, " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read metrics: %q: %w", line, err)
		}
		sum += n
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("read metrics: there is no %s; is this the ops port of a Forebay node?", putMetric)
	}
	return sum, nil
}
