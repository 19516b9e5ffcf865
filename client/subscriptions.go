package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forebaymq/forebay/api"
)

// SubscriptionSettings is what a subscription is created with or changed to. A nil field is left to the server: its default when the
// subscription is created, its present value when it is changed. Durations are written as the contract writes them: "500ms", "30s", "3d".
type SubscriptionSettings struct {
	VisibilityTimeout *string              `json:"visibilityTimeout,omitempty"` // how long a lease lives, 1s to 12h
	MaxAttempts       *int                 `json:"maxAttempts,omitempty"`       // deliveries before a record becomes a dead letter
	Backoff           *BackoffSettings     `json:"backoff,omitempty"`
	MaxInFlight       *int                 `json:"maxInFlight,omitempty"`   // leases at a time, per partition
	MaxAckedAhead     *int                 `json:"maxAckedAhead,omitempty"` // leased and settled beyond the frontier, per partition
	Start             *string              `json:"start,omitempty"`         // "latest", "earliest" or a time (RFC 3339); only when it is created
	DeadLetter        *DeadLetterSettings  `json:"deadLetter,omitempty"`
	GapPolicy         *string              `json:"gapPolicy,omitempty"` // "fail" or "skip"
	Ordering          *string              `json:"ordering,omitempty"`  // "none" or "key"
	FairShare         *Nullable[FairShare] `json:"fairShare,omitempty"`
}

// BackoffSettings change the pause before a failed record is delivered again.
type BackoffSettings struct {
	Initial    *string  `json:"initial,omitempty"`
	Max        *string  `json:"max,omitempty"`
	Multiplier *float64 `json:"multiplier,omitempty"`
	Jitter     *bool    `json:"jitter,omitempty"`
}

// DeadLetterSettings change what happens to a record that failed too often. Topic null: it stays where it is.
type DeadLetterSettings struct {
	Topic *Nullable[string] `json:"topic,omitempty"`
}

// FairShare names what a subscription shares its deliveries by: the record's key ("key"), or the first header of a name ("header").
type FairShare struct {
	By     string `json:"by"`
	Header string `json:"header,omitempty"`
}

// Backoff is the pause before a failed record is delivered again.
type Backoff struct {
	Initial    string  `json:"initial"`
	Max        string  `json:"max"`
	Multiplier float64 `json:"multiplier"`
	Jitter     bool    `json:"jitter"`
}

// Subscription is a subscription as the server describes it.
type Subscription struct {
	Name              string    `json:"name"`
	Topic             string    `json:"topic"`
	Created           time.Time `json:"created"`
	VisibilityTimeout string    `json:"visibilityTimeout"`
	MaxAttempts       int       `json:"maxAttempts"`
	Backoff           Backoff   `json:"backoff"`
	MaxInFlight       int       `json:"maxInFlight"`
	MaxAckedAhead     int       `json:"maxAckedAhead"`
	DeadLetter        struct {
		Topic *string `json:"topic"`
	} `json:"deadLetter"`
	GapPolicy string     `json:"gapPolicy"`
	Ordering  string     `json:"ordering"`
	FairShare *FairShare `json:"fairShare"`
	// Partitions is the state of each partition, with GetSubscription and Seek.
	Partitions []SubscriptionPartition `json:"partitions"`
	// JSON is the server's answer, word for word, fields that this client does not know included.
	JSON json.RawMessage `json:"-"`
}

// SubscriptionPartition is where a subscription stands on one partition. Counts are records.
type SubscriptionPartition struct {
	Partition  int32 `json:"partition"`
	Frontier   int64 `json:"frontier"` // every offset below it is settled
	Head       int64 `json:"head"`
	LogStart   int64 `json:"logStart"`
	InFlight   int64 `json:"inFlight"`
	AckedAhead int64 `json:"ackedAhead"` // settled above the frontier
	Owed       int64 `json:"owed"`       // failed or redriven, to be delivered again
	Delayed    int64 `json:"delayed"`
	Waiting    int64 `json:"waiting"` // behind their key
	Lag        int64 `json:"lag"`     // not settled
	// OldestUnackedAgeSeconds has the age of the poison in it, but not that of delayed records; 0 when there is none.
	OldestUnackedAgeSeconds float64 `json:"oldestUnackedAgeSeconds"`
	DeadLetters             int64   `json:"deadLetters"`
	Skipped                 int64   `json:"skipped"`
	// RetentionHeadroomSeconds is how long until retention deletes the oldest record not settled; nil = never.
	RetentionHeadroomSeconds *float64 `json:"retentionHeadroomSeconds"`
	Gap                      *Gap     `json:"gap"` // what retention deleted before it was settled
}

// Gap is a range of offsets that retention deleted before it was settled, or before a group read it: [From, To).
type Gap struct {
	Topic     string `json:"topic,omitempty"` // of a group; "" of a subscription, which has one topic
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

func (s *Subscription) decode(body []byte) error {
	*s = Subscription{}
	if err := json.Unmarshal(body, s); err != nil {
		return err
	}
	s.JSON = body
	return nil
}

func subscriptionsPath(topic string) string { return topicPath(topic) + "/subscriptions" }

func subscriptionPath(topic, name string) string {
	return subscriptionsPath(topic) + "/" + url.PathEscape(name)
}

// queueRequest begins a request about a subscription. rest is the path behind the subscription's, such as "/ack".
func queueRequest(op, method, topic, name, rest string, twice repeatable) *request {
	return &request{
		op: op + " " + topic + "/" + name, method: method, path: subscriptionPath(topic, name) + rest,
		accept: contentJSON, twice: twice,
	}
}

// withJSON sets a JSON body. It fails only on values that JSON cannot hold.
func (r *request) withJSON(v any) (*request, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, &Error{Op: r.op, Cause: err}
	}
	r.body, r.contentType = body, contentJSON
	return r, nil
}

// PutSubscription creates a subscription (created is true) or changes it.
func (c *Client) PutSubscription(ctx context.Context, topic, name string, settings SubscriptionSettings) (s *Subscription, created bool, err error) {
	r, err := queueRequest("put subscription", http.MethodPut, topic, name, "", safeTwice).withJSON(settings)
	if err != nil {
		return nil, false, err
	}
	s = &Subscription{}
	err = c.call(ctx, r, func(status int, body []byte) error {
		created = status == http.StatusCreated
		return s.decode(body)
	})
	if err != nil {
		return nil, false, err
	}
	return s, created, nil
}

// GetSubscription describes a subscription and where it stands on each partition.
func (c *Client) GetSubscription(ctx context.Context, topic, name string) (*Subscription, error) {
	s := &Subscription{}
	err := c.call(ctx, queueRequest("get subscription", http.MethodGet, topic, name, "", safeTwice), func(_ int, body []byte) error { return s.decode(body) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// SubscriptionPage is one page of ListSubscriptions.
type SubscriptionPage struct {
	Items []Subscription
	Next  string // pass as cursor to go on; "" = this was the last page
}

// ListSubscriptions pages through the subscriptions of a topic, by name. limit 0 = the server's default (100); cursor "" = from the start.
func (c *Client) ListSubscriptions(ctx context.Context, topic string, limit int, cursor string) (*SubscriptionPage, error) {
	r := &request{
		op: "list subscriptions of " + topic, method: http.MethodGet, path: subscriptionsPath(topic), query: pageQuery(limit, cursor),
		accept: contentJSON, twice: safeTwice,
	}
	items, next, err := callPage[Subscription](ctx, c, r)
	if err != nil {
		return nil, err
	}
	return &SubscriptionPage{Items: items, Next: next}, nil
}

// DeleteSubscription removes a subscription, its leases and its dead letters; the records stay in the topic. It is sent again when an
// answer was lost; "unknown subscription" is then success.
func (c *Client) DeleteSubscription(ctx context.Context, topic, name string) error {
	r := queueRequest("delete subscription", http.MethodDelete, topic, name, "", safeTwice)
	lost := false
	return retry(ctx, c.policy, safeTwice, func(ctx context.Context) error {
		err := c.call(ctx, r.once(), nil)
		if lost && codeOf(err) == api.CodeUnknownSubscription {
			return nil
		}
		if outcome, _ := Classify(err); outcome == Indefinite {
			lost = true
		}
		return err
	})
}

// SeekTarget is where a subscription or a group shall stand. Exactly one is set.
type SeekTarget struct {
	Earliest bool
	Latest   bool
	Time     time.Time       // the first record appended at or after it
	Offsets  map[int32]int64 // by partition; the others stay where they are
}

func (t SeekTarget) body() (map[string]any, error) {
	var chosen []map[string]any
	if t.Earliest {
		chosen = append(chosen, map[string]any{"to": "earliest"})
	}
	if t.Latest {
		chosen = append(chosen, map[string]any{"to": "latest"})
	}
	if !t.Time.IsZero() {
		chosen = append(chosen, map[string]any{"timestamp": formatTime(t.Time)})
	}
	if len(t.Offsets) > 0 {
		chosen = append(chosen, map[string]any{"offsets": t.Offsets})
	}
	if len(chosen) != 1 {
		return nil, fmt.Errorf("a seek names exactly one of earliest, latest, time and offsets; this one names %d", len(chosen))
	}
	return chosen[0], nil
}

// Seek moves a subscription: what lies before the target counts as settled, what lies behind it is delivered (again). Leases and dead
// letters of the partitions concerned are void. A seek to the latest record whose outcome is unknown is not sent again by itself: the second one would
// pass what was published since the first.
func (c *Client) Seek(ctx context.Context, topic, name string, to SeekTarget) (*Subscription, error) {
	body, err := to.body()
	if err != nil {
		return nil, &Error{Op: fmt.Sprintf("seek %s/%s", topic, name), Cause: fmt.Errorf("%w: %w", errNotSent, err)}
	}
	r, err := queueRequest("seek", http.MethodPost, topic, name, "/seek", repeatable(!to.Latest)).withJSON(body)
	if err != nil {
		return nil, err
	}
	s := &Subscription{}
	if err := c.call(ctx, r, func(_ int, body []byte) error { return s.decode(body) }); err != nil {
		return nil, err
	}
	return s, nil
}

// Peeked is a record that would be leased next.
type Peeked struct {
	Record
	Attempt int32     // of the delivery that is to come
	DueAt   time.Time // zero = now
	JSON    json.RawMessage
}

// Peek shows up to most (at most 100) records that would be leased next, without leasing them. 0 = the server's default (10).
func (c *Client) Peek(ctx context.Context, topic, name string, most int) ([]Peeked, error) {
	r := queueRequest("peek", http.MethodGet, topic, name, "/peek", safeTwice)
	if most > 0 {
		r.query = url.Values{"max": {strconv.Itoa(most)}}
	}
	var peeked []Peeked
	err := c.call(ctx, r, func(_ int, body []byte) error {
		var answer struct {
			Messages []json.RawMessage `json:"messages"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		peeked = make([]Peeked, len(answer.Messages))
		for i, item := range answer.Messages {
			p := &peeked[i]
			p.JSON = item
			var m jsonMessage
			if err := json.Unmarshal(item, &m); err != nil {
				return err
			}
			p.Attempt, p.DueAt = m.Attempt, m.DueAt
			if err := m.record(&p.Record); err != nil {
				return err
			}
		}
		return nil
	})
	return peeked, err
}

func pageQuery(limit int, cursor string) url.Values {
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return query
}

// callPage asks for one page of a list. next is the cursor of the one after it, or "".
func callPage[T any, P interface {
	*T
	decode(body []byte) error
}](ctx context.Context, c *Client, r *request) (items []T, next string, err error) {
	err = c.call(ctx, r, func(_ int, body []byte) error {
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor *string           `json:"nextCursor"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return err
		}
		items, next = make([]T, len(page.Items)), ""
		for i, item := range page.Items {
			if err := P(&items[i]).decode(item); err != nil {
				return err
			}
		}
		if page.NextCursor != nil {
			next = *page.NextCursor
		}
		return nil
	})
	return items, next, err
}
