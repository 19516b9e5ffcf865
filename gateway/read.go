package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/metadata"
)

// readParams are the parameters of GET .../records.
type readParams struct {
	offset   int64 // or fetch.Earliest, fetch.Latest
	time     int64 // Unix ms, where byTime
	byTime   bool
	limit    int
	maxBytes int64
	wait     time.Duration
}

// readRecords serves GET /v1/topics/{topic}/partitions/{partition}/records: replay, and with wait a long poll.
func (s *Server) readRecords(rq *request) error {
	name, err := rq.topicParam()
	if err != nil {
		return err
	}
	partition, err := rq.partitionParam()
	if err != nil {
		return err
	}
	p, err := rq.readParams()
	if err != nil {
		return err
	}
	answer, err := wire.NegotiateAccept(rq.Request().Header)
	if err != nil {
		return err
	}
	if err := rq.authorize(auth.Read, auth.Topic, name); err != nil {
		return err
	}
	ctx := rq.ctx
	var waiter fetch.Waiter
	if p.wait > 0 {
		over, cancel := s.waiter(p.wait)
		defer cancel()
		waiter = over
	}
	// The wait is the client's; what comes after it (a barrier, a GET) has the time of any request.
	ctx, cancel := s.within(ctx, p.wait+s.o.Timeouts.Request)
	defer cancel()

	var res *fetch.ReadResult
	err = s.withTopic(ctx, rq.principal.Tenant, name, partition, func(t *metadata.Topic) (err error) {
		if err := s.resident(t); err != nil {
			return err
		}
		req := fetch.ReadRequest{Tenant: rq.principal.Tenant, TopicID: t.ID, Partition: partition, Offset: p.offset, MaxRecords: p.limit, MaxBytes: p.maxBytes}
		if p.byTime {
			if req.Offset, err = s.offsetAt(ctx, t, partition, p.time); err != nil {
				return err
			}
		}
		if waiter == nil {
			res, err = s.o.Reader.Read(ctx, req)
		} else {
			res, err = s.o.Reader.ReadWait(ctx, req, waiter)
		}
		return err
	})
	if err != nil {
		return err
	}
	b := s.buffers.get()
	*b = wire.AppendRead(*b, answer, res.Records, wire.Page{Partition: partition, NextOffset: res.NextOffset, Head: res.Head, LogStart: res.LogStart})
	err = rq.respond(http.StatusOK, answer.String(), *b)
	s.buffers.put(b)
	return err
}

// offsetAt gives the offset of the first record at or after a time, or the head when there is none. The head is read before a second
// look: a record that came between a first look and the head would be passed over.
func (s *Server) offsetAt(ctx context.Context, t *metadata.Topic, partition int32, ms int64) (int64, error) {
	offset, found, err := s.o.Reader.OffsetForTime(ctx, t.ID, partition, ms)
	if err != nil || found {
		return offset, err
	}
	end, err := s.o.Reader.Read(ctx, fetch.ReadRequest{Tenant: t.Tenant, TopicID: t.ID, Partition: partition, Offset: fetch.Latest, MaxRecords: 1, MaxBytes: 1})
	if err != nil {
		return 0, err
	}
	offset, found, err = s.o.Reader.OffsetForTime(ctx, t.ID, partition, ms)
	if err != nil || found {
		return offset, err
	}
	return end.Head, nil
}

func (rq *request) readParams() (p readParams, err error) {
	q, err := rq.parseQuery("offset", "timestamp", "limit", "maxBytes", "wait")
	if err != nil {
		return p, err
	}
	switch {
	case q.has("offset") && q.has("timestamp"):
		return p, invalidField("timestamp", "use offset or timestamp, not both")
	case q.has("timestamp"):
		p.byTime = true
		if p.time, err = parseTimestamp(q); err != nil {
			return p, err
		}
	case q.has("offset"):
		if p.offset, err = parseOffset("offset", q.get("offset")); err != nil {
			return p, err
		}
	default:
		p.offset = fetch.Earliest
	}
	limit, err := q.intIn("limit", 1, api.MaxReadRecords, api.DefaultReadRecords)
	if err != nil {
		return p, err
	}
	p.limit = int(limit)
	if p.maxBytes, err = q.intIn("maxBytes", 1, api.MaxReadBytes, api.DefaultReadBytes); err != nil {
		return p, err
	}
	if p.wait, err = q.duration("wait"); err != nil {
		return p, err
	}
	if p.wait > api.MaxWait {
		return p, invalidField("wait", "must be at most "+wire.FormatDuration(api.MaxWait))
	}
	return p, nil
}

// parseOffset takes an offset, "earliest" or "latest".
func parseOffset(field, v string) (int64, error) {
	switch v {
	case "earliest":
		return fetch.Earliest, nil
	case "latest":
		return fetch.Latest, nil
	}
	n, err := wire.ParseInt(field, v)
	if err != nil || n < 0 {
		return 0, invalidField(field, "must be earliest, latest or an integer in decimal digits, 0 or above")
	}
	return n, nil
}

// parseTimestamp takes an RFC 3339 time to the millisecond at or after it.
func parseTimestamp(q query) (int64, error) {
	v := q.get("timestamp")
	ms, err := wire.ParseTime("timestamp", v)
	if err != nil && strings.Contains(v, " ") {
		return 0, invalidField("timestamp", "must be an RFC 3339 time; write the + of its offset as %2B")
	}
	return ms, err
}

func invalidField(field, detail string) error {
	return &api.Error{Code: api.CodeInvalidRequest, Detail: field + ": " + detail, Fields: []api.FieldError{{Pointer: field, Detail: detail}}}
}

// offsetForTime serves GET /v1/topics/{topic}/partitions/{partition}/offset?timestamp=.
func (s *Server) offsetForTime(rq *request) error {
	name, err := rq.topicParam()
	if err != nil {
		return err
	}
	partition, err := rq.partitionParam()
	if err != nil {
		return err
	}
	q, err := rq.parseQuery("timestamp")
	if err != nil {
		return err
	}
	if !q.has("timestamp") {
		return invalidField("timestamp", "is missing: an RFC 3339 time")
	}
	ms, err := parseTimestamp(q)
	if err != nil {
		return err
	}
	if err := rq.authorize(auth.Read, auth.Topic, name); err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	var offset int64
	var found bool
	err = s.withTopic(ctx, rq.principal.Tenant, name, partition, func(t *metadata.Topic) (err error) {
		if err := s.resident(t); err != nil {
			return err
		}
		offset, found, err = s.o.Reader.OffsetForTime(ctx, t.ID, partition, ms)
		return err
	})
	if err != nil {
		return err
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"offset":`...)
		if found {
			b = strconv.AppendInt(b, offset, 10)
		} else {
			b = append(b, "null"...)
		}
		return append(b, '}')
	})
}

// waiter fires after wait, and at once when the server drains, so that Stop is not held up by long polls.
func (s *Server) waiter(wait time.Duration) (fetch.Waiter, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.drain)
	timer := s.o.Clock.AfterFunc(wait, cancel)
	return ctx.Done(), func() { timer.Stop(); cancel() }
}
