package gateway

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/leases"
)

// Dead letters with their records are fetched in steps, the next one as large as what is there so far, until a page is full or has
// deadLetterBytes of records: a thousand records of a mebibyte must not be in memory together.
const (
	deadLetterStep  = 16
	deadLetterBytes = 4 << 20
)

// listDeadLetters serves GET /v1/topics/{topic}/subscriptions/{subscription}/dead-letters. A page may be shorter than its limit.
func (s *Server) listDeadLetters(rq *request) error {
	q, err := rq.parseQuery("limit", "cursor", "records")
	if err != nil {
		return err
	}
	limit, err := q.intIn("limit", 1, api.MaxListLimit, api.DefaultListLimit)
	if err != nil {
		return err
	}
	records, err := q.boolean("records", true)
	if err != nil {
		return err
	}
	after := ""
	if q.has("cursor") {
		if after, err = parseOpaqueCursor(q.get("cursor")); err != nil {
			return err
		}
	}
	n, err := rq.subscription(auth.Consume)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if _, err := s.queueTopic(ctx, n); err != nil {
		return err
	}
	var items []leases.DeadLetter
	next, size := after, 0
	for len(items) < int(limit) && size < deadLetterBytes {
		step := int(limit) - len(items)
		if records {
			step = min(step, max(len(items), deadLetterStep))
		}
		var some []leases.DeadLetter
		if some, next, err = s.o.Queues.DeadLetters(ctx, n, next, step, records); err != nil {
			return queueError(rq, err)
		}
		for i := range some {
			if r := some[i].Record; r != nil {
				size += wire.RecordBytes(r)
			}
		}
		items = append(items, some...)
		if next == "" || len(some) == 0 {
			break
		}
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"items":[`...)
		for i := range items {
			if i > 0 {
				b = append(b, ',')
			}
			b = wire.AppendDeadLetterJSON(b, &items[i])
		}
		b = append(b, `],"nextCursor":`...)
		if next == "" {
			return append(b, "null}"...)
		}
		return append(appendQuoted(b, formatOpaqueCursor(next)), '}')
	})
}

// formatOpaqueCursor makes the text of a place that another package names. It begins with a version, so that its meaning may change.
func formatOpaqueCursor(place string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("1" + place))
}

func parseOpaqueCursor(s string) (string, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 2 || len(b) > 512 || b[0] != '1' || !utf8.Valid(b) {
		return "", invalidField("cursor", "is not a nextCursor of this list")
	}
	return string(b[1:]), nil
}

// selection reads the body of a redrive (rated) or of a discard, and what it is for.
func (rq *request) selection(rated bool) (n leases.Name, sel leases.DeadLetterSelection, rate int, err error) {
	if _, err = rq.parseQuery(); err != nil {
		return n, sel, 0, err
	}
	if n, err = rq.subscription(auth.Consume); err != nil {
		return n, sel, 0, err
	}
	body, release, err := rq.readJSON()
	if err != nil {
		return n, sel, 0, err
	}
	defer release()
	sel, rate, err = wire.DecodeSelection(body, rated)
	return n, sel, rate, err
}

// redrive serves POST .../dead-letters/redrive: 202 with the task that brings the selected dead letters back.
func (s *Server) redrive(rq *request) error {
	n, sel, rate, err := rq.selection(true)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if _, err := s.queueTopic(ctx, n); err != nil {
		return err
	}
	task, err := s.o.Queues.Redrive(ctx, n, sel, rate)
	if err != nil {
		return queueError(rq, err)
	}
	rq.Response().Header()["Location"] = []string{"/v1/topics/" + n.Topic + "/subscriptions/" + n.Subscription + "/tasks/" + task.ID}
	return rq.respondJSON(http.StatusAccepted, func(b []byte) []byte { return wire.AppendTaskJSON(b, task) })
}

// discard serves POST .../dead-letters/discard: the selected dead letters are forgotten.
func (s *Server) discard(rq *request) error {
	n, sel, _, err := rq.selection(false)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if _, err := s.queueTopic(ctx, n); err != nil {
		return err
	}
	count, err := s.o.Queues.Discard(ctx, n, sel)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"discarded":`...)
		return append(strconv.AppendInt(b, count, 10), '}')
	})
}

// getTask serves GET .../tasks/{task}.
func (s *Server) getTask(rq *request) error {
	return s.task(rq, auth.Describe, Queues.Task)
}

// cancelTask serves DELETE .../tasks/{task}: what was redriven stays redriven, the rest stays dead. It answers the task as it is then.
func (s *Server) cancelTask(rq *request) error {
	return s.task(rq, auth.Consume, Queues.CancelTask)
}

// taskCall is a method of Queues on one task.
type taskCall func(q Queues, ctx context.Context, n leases.Name, id string) (*leases.Task, error)

func (s *Server) task(rq *request, op auth.Operation, call taskCall) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	id, err := rq.pathParam("task")
	if err != nil {
		return err
	}
	if !api.ValidName(id) {
		return invalidField("task", "must be the id of a task as a redrive gave it")
	}
	n, err := rq.subscription(op)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if _, err := s.queueTopic(ctx, n); err != nil {
		return err
	}
	task, err := call(s.o.Queues, ctx, n, id)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendTaskJSON(b, task) })
}
