package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

// ReadOptions say what Read does.
type ReadOptions struct {
	Client   *client.Client
	Topic    string
	JSON     bool          // the JSON form instead of protobuf
	Clients  int           // partitions read at a time
	MaxBytes int64         // of one read; 0 = the largest
	Duration time.Duration // ends earlier than at the heads; 0 = not
}

// ReadReport is what Read measured.
type ReadReport struct {
	Topic         string           `json:"topic"`
	Encoding      string           `json:"encoding"`
	Clients       int              `json:"clients"`
	Partitions    int              `json:"partitions"`
	Seconds       float64          `json:"seconds"`
	Records       int64            `json:"records"`
	Bytes         int64            `json:"bytes"` // of keys and values; in the JSON form of the whole records as JSON
	RecordsPerSec float64          `json:"recordsPerSecond"`
	MBPerSec      float64          `json:"mbPerSecond"`
	Request       Latency          `json:"requestMillis"`
	Errors        map[string]int64 `json:"errors"`
}

// Print writes the report for people.
func (r *ReadReport) Print(w io.Writer) {
	fmt.Fprintf(w, "replay       %d partitions, %d at a time, %s\n", r.Partitions, r.Clients, r.Encoding)
	fmt.Fprintf(w, "throughput   %.0f records/s  %.1f MB/s  (%d records, %d bytes in %.1f s)\n", r.RecordsPerSec, r.MBPerSec, r.Records, r.Bytes, r.Seconds)
	fmt.Fprintf(w, "request      %s\n", r.Request)
	printErrors(w, r.Errors)
}

// Read replays all partitions of a topic from the earliest record to the head that each has when it is begun.
func Read(ctx context.Context, o ReadOptions) (*ReadReport, error) {
	if o.Clients < 1 {
		return nil, errors.New("clients must be 1 or more")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = api.MaxReadBytes
	}
	topic, err := o.Client.GetTopic(ctx, o.Topic)
	if err != nil {
		return nil, err
	}
	if o.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Duration, errTimeUp)
		defer cancel()
	}
	r := &readRun{o: o, rec: newRecorder(), partitions: topic.Partitions}
	begin := time.Now()
	var wg sync.WaitGroup
	for range min(o.Clients, topic.Partitions) {
		wg.Go(func() { r.client(ctx) })
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errTimeUp) {
		return nil, cause
	}
	return r.report(begin)
}

// errTimeUp ends a measurement with a duration.
var errTimeUp = errors.New("the time is up")

type readRun struct {
	o          ReadOptions
	rec        *recorder
	partitions int
	next       atomic.Int64
}

func (r *readRun) client(ctx context.Context) {
	for {
		partition := int(r.next.Add(1) - 1)
		if partition >= r.partitions || !r.partition(ctx, partition) {
			return
		}
	}
}

// partition replays one partition; false ends the client.
func (r *readRun) partition(ctx context.Context, partition int) bool {
	o := client.ReadOptions{Offset: client.Earliest, Limit: api.MaxReadRecords, MaxBytes: r.o.MaxBytes}
	end := int64(-1)
	for {
		begin := time.Now()
		page, err := r.read(ctx, partition, o)
		if err != nil {
			if ctx.Err() == nil {
				r.rec.failure(err)
			}
			return ctx.Err() == nil
		}
		done := time.Now()
		r.rec.success(done, done.Sub(begin), page.records, page.bytes)
		if end < 0 {
			end = page.head
		}
		if page.next >= end || page.next == o.Offset {
			return true
		}
		o.Offset = page.next
	}
}

type readPage struct {
	records, bytes, next, head int64
}

func (r *readRun) read(ctx context.Context, partition int, o client.ReadOptions) (p readPage, err error) {
	if r.o.JSON {
		res, err := r.o.Client.ReadJSON(ctx, r.o.Topic, partition, o)
		if err != nil {
			return p, err
		}
		for _, record := range res.Records {
			p.bytes += int64(len(record))
		}
		p.records, p.next, p.head = int64(len(res.Records)), res.NextOffset, res.Head
		return p, nil
	}
	res, err := r.o.Client.Read(ctx, r.o.Topic, partition, o)
	if err != nil {
		return p, err
	}
	for i := range res.Records {
		p.bytes += int64(len(res.Records[i].Key) + len(res.Records[i].Value))
	}
	p.records, p.next, p.head = int64(len(res.Records)), res.NextOffset, res.Head
	return p, nil
}

func (r *readRun) report(begin time.Time) (*ReadReport, error) {
	report := &ReadReport{Topic: r.o.Topic, Encoding: "protobuf", Clients: min(r.o.Clients, r.partitions), Partitions: r.partitions, Request: r.rec.latency()}
	if r.o.JSON {
		report.Encoding = "json"
	}
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	report.Records, report.Bytes, report.Errors = r.rec.mu.records, r.rec.mu.bytes, r.rec.mu.errors
	if took := r.rec.mu.last.Sub(begin); took > 0 {
		report.Seconds = took.Seconds()
		report.RecordsPerSec = float64(report.Records) / report.Seconds
		report.MBPerSec = float64(report.Bytes) / report.Seconds / 1e6
	}
	if len(report.Errors) > 0 {
		return report, fmt.Errorf("the replay is not whole: %v", report.Errors)
	}
	return report, nil
}
