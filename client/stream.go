package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forebaymq/forebay/api"
)

// StreamOptions say what a Stream follows, and from where.
type StreamOptions struct {
	Partition   *int          // nil = all partitions, those that the topic gets later included
	Offset      int64         // Earliest, Latest or, with Partition, a number
	LastEventID string        // go on after this event; "" = Offset decides
	Silence     time.Duration // a connection that says nothing for so long is made anew; servers say something every 15 s. Default 1 min
}

// Event is one record of a stream.
type Event struct {
	ID        string // pass as LastEventID to go on after this event (or, between the events of one page, a little before it)
	Partition int
	Offset    int64
	JSON      json.RawMessage // the record in the JSON form; valid until the callback returns
}

// maxEventBytes bounds one event: a record in JSON, six times as long as its bytes at worst, and the id beside it.
const maxEventBytes = 8<<20 + 256<<10

// callbackError carries an error of the caller's function through the retries.
type callbackError struct{ error }

// Stream calls fn for every record of a topic, in order within a partition, each once, until ctx ends (nil), fn fails (its error), or the
// stream cannot go on. A connection that breaks is made anew, where it broke, as long as the retry policy allows; a connection that
// delivers begins the policy anew.
func (c *Client) Stream(ctx context.Context, topic string, o StreamOptions, fn func(Event) error) error {
	if o.Silence <= 0 {
		o.Silence = time.Minute
	}
	s := &stream{c: c, topic: topic, o: o, fn: fn, next: map[int]int64{}}
	for {
		err := retry(ctx, c.policy, safeTwice, s.connect)
		var stop callbackError
		switch outcome, _ := Classify(s.last); {
		case errors.As(s.last, &stop):
			return stop.error
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case outcome == Definite:
			return s.last
		}
	}
}

type stream struct {
	c         *Client
	topic     string
	o         StreamOptions
	fn        func(Event) error
	next      map[int]int64 // by partition: the first offset that fn has not seen
	delivered int64
	last      error // why the last connection ended; never nil
}

// connect follows one connection to its end. nil means that it went well for a while, so that the next failure is a first one: it
// brought records, or it lived for longer than the longest pause.
func (s *stream) connect(ctx context.Context) error {
	begin, before := time.Now(), s.delivered
	s.last = s.follow(ctx)
	if s.delivered > before || time.Since(begin) > s.c.policy.Max {
		return nil
	}
	return s.last
}

func (s *stream) request() *request {
	query := url.Values{}
	if s.o.Partition != nil {
		query.Set("partition", strconv.Itoa(*s.o.Partition))
	}
	if s.o.LastEventID == "" {
		switch s.o.Offset {
		case Earliest:
			query.Set("offset", "earliest")
		case Latest:
			query.Set("offset", "latest")
		default:
			query.Set("offset", strconv.FormatInt(s.o.Offset, 10))
		}
	}
	return &request{
		op: "stream " + s.topic, method: http.MethodGet, path: topicPath(s.topic) + "/stream", query: query,
		accept: "text/event-stream", lastEventID: s.o.LastEventID,
	}
}

func (s *stream) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The timer runs while the server is silent, and is set anew with every line.
	silence := time.AfterFunc(s.o.Silence, cancel)
	defer silence.Stop()
	r := s.request()
	resp, err := s.c.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	requestID := resp.Header.Get("X-Request-Id")
	fail := func(err error) error { return &Error{Op: r.op, RequestID: requestID, Cause: err} }
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxEventBytes)
	var kind, id string
	var data []byte
	hasData := false
	for lines.Scan() {
		silence.Reset(s.o.Silence)
		line := lines.Bytes()
		if len(line) > 0 {
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "id":
				id = string(value)
			case "event":
				kind = string(value)
			case "data":
				if hasData {
					data = append(data, '\n')
				}
				data, hasData = append(data, value...), true
			}
			continue
		}
		switch {
		case hasData && kind == "problem":
			return s.problem(r.op, requestID, data)
		case hasData:
			if err := s.deliver(id, data); err != nil {
				return err
			}
		}
		if id != "" {
			s.o.LastEventID = id
		}
		kind, data, hasData = "", data[:0], false
	}
	if err := lines.Err(); err != nil {
		return fail(err)
	}
	return fail(errors.New("the server ended the stream"))
}

func (s *stream) deliver(id string, data []byte) error {
	e := Event{ID: id, JSON: data}
	var at struct {
		Partition int   `json:"partition"`
		Offset    int64 `json:"offset"`
	}
	if err := json.Unmarshal(data, &at); err != nil {
		return &Error{Op: "stream " + s.topic, Status: http.StatusOK, Cause: fmt.Errorf("decode event: %w", err)}
	}
	e.Partition, e.Offset = at.Partition, at.Offset
	if e.Offset < s.next[e.Partition] {
		return nil // of a page that broke off before, and begins again
	}
	if err := s.fn(e); err != nil {
		return &Error{Op: "stream " + s.topic, Cause: errors.Join(errNotSent, callbackError{err})}
	}
	s.next[e.Partition] = e.Offset + 1
	s.delivered++
	return nil
}

// problem makes the error of a problem document that came as an event.
func (s *stream) problem(op, requestID string, data []byte) error {
	var p struct {
		problem
		Status int `json:"status"`
	}
	if err := json.Unmarshal(data, &p); err != nil || p.Code == "" {
		return &Error{Op: op, RequestID: requestID, Status: http.StatusOK, Cause: errors.New("the server ended the stream with an unreadable problem")}
	}
	if p.Status == 0 {
		p.Status = api.Codes[p.Code].Status
	}
	return &Error{
		Op: op, Status: p.Status, Code: p.Code, Title: p.Title, Detail: p.Detail, RequestID: p.RequestID, Fields: p.Errors,
		LogStart: p.LogStart, Head: p.Head,
	}
}
