package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// rest is a client of one node that shares no code with the product.
type rest struct {
	base  string
	token string
	http  *http.Client
}

func newRest(base, token string) *rest {
	return &rest{base: base, token: token, http: &http.Client{
		Timeout:   25 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext},
	}}
}

// problem is an answer that is not 2xx.
type problem struct {
	Status   int          `json:"status"`
	Code     string       `json:"code"`
	Detail   string       `json:"detail"`
	LogStart int64        `json:"logStart"`
	Head     int64        `json:"head"`
	Gaps     []problemGap `json:"gaps"`
}

// problemGap is a range that retention has deleted.
type problemGap struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// maybe says whether a failed write may have had its effect: everything but a refusal that the contract calls definite, and a
// connection that was never made.
func maybe(err error) bool {
	var p *problem
	if errors.As(err, &p) {
		return p.Status == 504 || p.Status == 500 || p.Code == ""
	}
	return !errors.Is(err, syscall.ECONNREFUSED)
}

func (r *rest) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		p := &problem{Status: resp.StatusCode}
		if json.Unmarshal(b, p) != nil {
			p.Detail = string(b)
		}
		return p
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

func (r *rest) createTopic(ctx context.Context, topic string, partitions int) error {
	return r.call(ctx, "PUT", "/v1/topics/"+topic, map[string]any{"partitions": partitions}, nil)
}

// producer is the idempotence part of a publish.
type producer struct {
	ID       string `json:"id"`
	Epoch    int64  `json:"epoch"`
	Sequence int64  `json:"sequence"`
}

type position struct {
	Partition int   `json:"partition"`
	Offset    int64 `json:"offset"`
}

func (r *rest) publish(ctx context.Context, topic string, partition int, texts []string, prod *producer) ([]position, bool, error) {
	recs := make([]map[string]any, len(texts))
	for i, s := range texts {
		recs[i] = map[string]any{"partition": partition, "text": s}
	}
	in := map[string]any{"records": recs}
	if prod != nil {
		in["producer"] = prod
	}
	var out struct {
		Records   []position `json:"records"`
		Duplicate bool       `json:"duplicate"`
	}
	if err := r.call(ctx, "POST", "/v1/topics/"+topic+"/records", in, &out); err != nil {
		return nil, false, err
	}
	if len(out.Records) != len(texts) {
		return nil, false, fmt.Errorf("published %d records, answered %d positions", len(texts), len(out.Records))
	}
	return out.Records, out.Duplicate, nil
}

// readAll reads a partition from an offset to the head of the last answer.
func (r *rest) readAll(ctx context.Context, topic string, partition int, from int64) (texts []string, head int64, err error) {
	for next := from; ; {
		var out struct {
			Records []struct {
				Partition int    `json:"partition"`
				Offset    int64  `json:"offset"`
				Text      string `json:"text"`
			} `json:"records"`
			NextOffset int64 `json:"nextOffset"`
			Head       int64 `json:"head"`
			LogStart   int64 `json:"logStart"`
		}
		if err := r.call(ctx, "GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&limit=10000", topic, partition, next), nil, &out); err != nil {
			return nil, 0, err
		}
		for i, rec := range out.Records {
			if want := next + int64(i); rec.Offset != want || rec.Partition != partition {
				return nil, 0, fmt.Errorf("read of %d at %d: record %d says %d/%d", partition, next, i, rec.Partition, rec.Offset)
			}
			texts = append(texts, rec.Text)
		}
		next += int64(len(out.Records))
		if next != out.NextOffset {
			return nil, 0, fmt.Errorf("read of %d: %d records end at %d, nextOffset is %d", partition, len(out.Records), next, out.NextOffset)
		}
		if next >= out.Head {
			return texts, out.Head, nil
		}
		if len(out.Records) == 0 {
			return nil, 0, fmt.Errorf("read of %d stalls at %d below head %d", partition, next, out.Head)
		}
	}
}
