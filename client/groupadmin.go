package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Group is a consumer group as the server describes it.
type Group struct {
	Name    string    `json:"name"`
	GroupID string    `json:"groupID"` // never reused: a group deleted and created again has another
	Created time.Time `json:"created"`
	// State and what follows it: with GetGroup.
	State      string               `json:"state"` // "empty" = no members, "stable", "rebalancing" = partitions change hands
	Generation int64                `json:"generation"`
	Members    []GroupMembership    `json:"members"`
	Partitions []GroupPartitionInfo `json:"partitions"` // by topic and partition
	// JSON is the server's answer, word for word, fields that this client does not know included.
	JSON json.RawMessage `json:"-"`
}

// GroupMembership is a member of a group as others see it.
type GroupMembership struct {
	MemberID         string           `json:"memberId"`
	InstanceID       *string          `json:"instanceId"` // nil = none
	Topics           []string         `json:"topics"`
	Owned            []TopicPartition `json:"owned"`
	Revoking         []TopicPartition `json:"revoking"`         // owned, and to be let go
	SessionExpiresAt *time.Time       `json:"sessionExpiresAt"` // without a further heartbeat; nil = not known
}

// GroupPartitionInfo is where a group stands on one partition. Counts are records.
type GroupPartitionInfo struct {
	Topic      string  `json:"topic"`
	Partition  int32   `json:"partition"`
	Owner      *string `json:"owner"`     // the member that owns it, nil = nobody
	Committed  *int64  `json:"committed"` // the next offset to read, nil = none was committed
	Head       int64   `json:"head"`      // the offset that the next record will get
	LogStart   int64   `json:"logStart"`  // the lowest offset still readable
	Lag        int64   `json:"lag"`       // not committed
	LagSeconds float64 `json:"lagSeconds"`
	// RetentionHeadroomSeconds is how long until retention deletes the first record that is not committed; nil = never.
	RetentionHeadroomSeconds *float64 `json:"retentionHeadroomSeconds"`
	Gap                      *Gap     `json:"gap"`      // what retention deleted before the group read it
	Metadata                 string   `json:"metadata"` // of the commit
}

func (g *Group) decode(body []byte) error {
	*g = Group{}
	if err := json.Unmarshal(body, g); err != nil {
		return err
	}
	for i := range g.Partitions {
		if p := &g.Partitions[i]; p.Gap != nil {
			p.Gap.Topic, p.Gap.Partition = p.Topic, p.Partition
		}
	}
	g.JSON = body
	return nil
}

// GetGroup describes a group: its members, and where it stands on each partition. Positions and lag are linearizable. ErrUnknownGroup.
func (c *Client) GetGroup(ctx context.Context, group string) (*Group, error) {
	g := &Group{}
	err := c.call(ctx, groupRequest("get", http.MethodGet, group, "", safeTwice), func(_ int, body []byte) error { return g.decode(body) })
	if err != nil {
		return nil, err
	}
	return g, nil
}

// GroupPage is one page of ListGroups.
type GroupPage struct {
	Items []Group // without members and partitions
	Next  string  // pass as cursor to go on; "" = this was the last page
}

// ListGroups pages through the tenant's groups, by name. limit 0 = the server's default (100); cursor "" = from the start.
func (c *Client) ListGroups(ctx context.Context, limit int, cursor string) (*GroupPage, error) {
	r := &request{op: "list groups", method: http.MethodGet, path: "/v1/groups", query: pageQuery(limit, cursor), accept: contentJSON, twice: safeTwice}
	items, next, err := callPage[Group](ctx, c, r)
	if err != nil {
		return nil, err
	}
	return &GroupPage{Items: items, Next: next}, nil
}

// GroupSeek moves a group on one topic. Exactly one target of To is set; with Offsets the partitions that are not named stay where they are.
type GroupSeek struct {
	Topic  string
	To     SeekTarget
	DryRun bool // only say what would be skipped and repeated; allowed with live members
}

// GroupSeekResult is what a seek did, or would do, by partition.
type GroupSeekResult struct {
	DryRun     bool        `json:"dryRun"`
	Partitions []GroupMove `json:"partitions"`
	// Repeated: an answer was lost and the seek was sent again. Partitions is then the second one's answer: From is where the first one may have put the group.
	Repeated bool `json:"-"`
	// JSON is the server's answer, word for word.
	JSON json.RawMessage `json:"-"`
}

// GroupMove is what a seek does to one partition. Skipped and Repeats count records that are still there; where From is nil there is no place to count from.
type GroupMove struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"from"` // committed before, nil = never
	To        int64  `json:"to"`
	Skipped   int64  `json:"skipped"` // will not be read
	Repeats   int64  `json:"repeats"` // will be read again
	Lost      int64  `json:"lost"`    // not records, but offsets: retention has deleted them before the group read them. They are not in Skipped
}

// SeekGroup moves a group that has no live members: CONFLICT otherwise. A group that does not exist is created; a dry run answers what that would
// do. OFFSET_OUT_OF_RANGE and UNKNOWN_PARTITION change nothing.
//
// It is sent again where its answer was lost, but for one to the latest record: the second would pass what was published since the first. Where it is
// refused after an answer was lost, the error is that of the lost answer, for the first may have taken effect.
func (c *Client) SeekGroup(ctx context.Context, group string, s GroupSeek) (*GroupSeekResult, error) {
	target, err := s.To.body()
	if err != nil {
		return nil, &Error{Op: "seek group " + group, Cause: fmt.Errorf("%w: %w", errNotSent, err)}
	}
	target["topic"] = s.Topic
	if s.DryRun {
		target["dryRun"] = true
	}
	twice := repeatable(!s.To.Latest || s.DryRun)
	r, err := groupRequest("seek", http.MethodPost, group, "/seek", twice).withJSON(target)
	if err != nil {
		return nil, err
	}
	result := &GroupSeekResult{}
	err = c.groupTwice(ctx, r, false, func(lost bool, body []byte) error {
		*result = GroupSeekResult{Repeated: lost && !s.DryRun, JSON: body}
		return json.Unmarshal(body, result)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// DeleteGroup deletes a group that has no live members, and its offsets: CONFLICT otherwise. It is final; one made later under this name is another one.
// Where an answer was lost it is sent again, and "unknown group" is then success.
func (c *Client) DeleteGroup(ctx context.Context, group string) error {
	return c.groupTwice(ctx, groupRequest("delete", http.MethodDelete, group, "", safeTwice), true, nil)
}
