package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// DeadLetter is a record that failed too often. The record itself stays in the topic as long as retention keeps it.
type DeadLetter struct {
	Partition     int32
	Offset        int64
	Attempts      int32
	Reason        string // of the last failure
	FirstFailedAt time.Time
	DeadAt        time.Time
	Expired       bool    // retention has deleted the record
	Record        *Record // nil where it was not asked for or cannot be read any more
	// JSON is the server's answer, word for word.
	JSON json.RawMessage
}

func (d *DeadLetter) decode(body []byte) error {
	var answer struct {
		Partition     int32        `json:"partition"`
		Offset        int64        `json:"offset"`
		Attempts      int32        `json:"attempts"`
		Reason        string       `json:"reason"`
		FirstFailedAt time.Time    `json:"firstFailedAt"`
		DeadAt        time.Time    `json:"deadAt"`
		Expired       bool         `json:"expired"`
		Record        *jsonMessage `json:"record"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	*d = DeadLetter{
		Partition: answer.Partition, Offset: answer.Offset, Attempts: answer.Attempts, Reason: answer.Reason, FirstFailedAt: answer.FirstFailedAt,
		DeadAt: answer.DeadAt, Expired: answer.Expired, JSON: body,
	}
	if answer.Record == nil {
		return nil
	}
	d.Record = &Record{}
	return answer.Record.record(d.Record)
}

// DeadLetterOptions say what DeadLetters lists.
type DeadLetterOptions struct {
	Records bool   // with the records themselves
	Page    int    // dead letters a request; 0 = the server's default (100)
	Cursor  string // begin after this page; "" = at the first
}

// DeadLetterPage is one page of ListDeadLetters.
type DeadLetterPage struct {
	Items []DeadLetter
	Next  string // pass as Cursor to go on; "" = this was the last page
}

// ListDeadLetters gives one page of the dead letters of a subscription.
func (c *Client) ListDeadLetters(ctx context.Context, topic, subscription string, o DeadLetterOptions) (*DeadLetterPage, error) {
	r := queueRequest("list dead letters of", http.MethodGet, topic, subscription, "/dead-letters", safeTwice)
	r.query = pageQuery(o.Page, o.Cursor)
	r.query.Set("records", strconv.FormatBool(o.Records))
	items, next, err := callPage[DeadLetter](ctx, c, r)
	if err != nil {
		return nil, err
	}
	return &DeadLetterPage{Items: items, Next: next}, nil
}

// DeadLetters goes over the dead letters of a subscription, page by page. An error is the last element.
func (c *Client) DeadLetters(ctx context.Context, topic, subscription string, o DeadLetterOptions) iter.Seq2[*DeadLetter, error] {
	return func(yield func(*DeadLetter, error) bool) {
		for {
			page, err := c.ListDeadLetters(ctx, topic, subscription, o)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			o.Cursor = page.Next
		}
	}
}

// DeadLetterSelection names dead letters: all of them, or these.
type DeadLetterSelection struct {
	All     bool
	Offsets []Position
}

// selectionBody is the body of redrive and discard.
type selectionBody struct {
	All           bool       `json:"all,omitempty"`
	Offsets       []Position `json:"offsets,omitempty"`
	RatePerSecond int        `json:"ratePerSecond,omitempty"`
}

func (s DeadLetterSelection) body(rate int) (*selectionBody, error) {
	if s.All == (len(s.Offsets) > 0) {
		return nil, fmt.Errorf("%w: name all dead letters or some of them", errNotSent)
	}
	return &selectionBody{All: s.All, Offsets: s.Offsets, RatePerSecond: rate}, nil
}

// Task states.
const (
	TaskRunning   = "running"
	TaskDone      = "done"
	TaskCancelled = "cancelled"
)

// Task is a redrive: it runs in the server and outlives its nodes.
type Task struct {
	ID        string    `json:"id"`
	Total     int64     `json:"total"` // dead letters when it began
	Done      int64     `json:"done"`
	State     string    `json:"state"` // running, done or cancelled
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// JSON is the server's answer, word for word.
	JSON json.RawMessage `json:"-"`
}

// Redrive begins to deliver dead letters again, their attempts counted from one, ratePerSecond a second (0 = the server's default). Where its
// outcome is unknown it is not sent again by itself: a second one would redrive what has failed again since.
func (c *Client) Redrive(ctx context.Context, topic, subscription string, sel DeadLetterSelection, ratePerSecond int) (*Task, error) {
	r := queueRequest("redrive dead letters of", http.MethodPost, topic, subscription, "/dead-letters/redrive", onceAtMost)
	body, err := sel.body(ratePerSecond)
	if err != nil {
		return nil, &Error{Op: r.op, Cause: err}
	}
	if r, err = r.withJSON(body); err != nil {
		return nil, err
	}
	return c.task(ctx, r)
}

// Discard forgets dead letters, and says how many. Where its outcome is unknown it is not sent again by itself: a second one would forget
// what has died since.
func (c *Client) Discard(ctx context.Context, topic, subscription string, sel DeadLetterSelection) (discarded int64, err error) {
	r := queueRequest("discard dead letters of", http.MethodPost, topic, subscription, "/dead-letters/discard", onceAtMost)
	body, err := sel.body(0)
	if err != nil {
		return 0, &Error{Op: r.op, Cause: err}
	}
	if r, err = r.withJSON(body); err != nil {
		return 0, err
	}
	var answer struct {
		Discarded int64 `json:"discarded"`
	}
	err = c.call(ctx, r, func(_ int, body []byte) error {
		answer.Discarded = 0
		return json.Unmarshal(body, &answer)
	})
	return answer.Discarded, err
}

// Task says how far a redrive is.
func (c *Client) Task(ctx context.Context, topic, subscription, id string) (*Task, error) {
	return c.task(ctx, queueRequest("get task of", http.MethodGet, topic, subscription, "/tasks/"+url.PathEscape(id), safeTwice))
}

// CancelTask stops a redrive, and says how far it got. What it has redriven stays so.
func (c *Client) CancelTask(ctx context.Context, topic, subscription, id string) (*Task, error) {
	return c.task(ctx, queueRequest("cancel task of", http.MethodDelete, topic, subscription, "/tasks/"+url.PathEscape(id), safeTwice))
}

func (c *Client) task(ctx context.Context, r *request) (*Task, error) {
	var t *Task
	err := c.call(ctx, r, func(_ int, body []byte) error {
		t = &Task{JSON: body}
		return json.Unmarshal(body, t)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}
