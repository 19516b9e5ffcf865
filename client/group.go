package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/forebaymq/forebay/api"
)

// The calls of a consumer group's member, one for one as the REST contract has them. Consumer makes them in the right order.

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// GroupOffset is a place in one partition. Offset is the next one to read, not the last one that was read.
type GroupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Metadata  string `json:"metadata,omitempty"` // of the commit, up to 4 KiB; none in an assignment
	// TopicID, in an assignment, tells a topic from one that was deleted and created again under its name.
	TopicID string `json:"topicID,omitempty"`
}

// JoinOptions say who joins, and for what.
type JoinOptions struct {
	Topics []string // 1 to 100; the members of one group may differ in them
	// MemberID is the ID of an earlier join, to be the same member again, or one of NewMemberID. "" = one is made.
	MemberID string
	// InstanceID makes a membership static: a process that joins with the instance of another takes over what that one owned. "" = none.
	InstanceID     string
	SessionTimeout time.Duration // 1 s to 5 min; 0 = the server's default (10 s)
	// Start says where the group begins on partitions for which it has no offset: "latest" or "earliest", "" = latest. It is decided once, when the
	// group first gets the partition.
	Start string
}

// Membership is what a member has to know.
type Membership struct {
	MemberID   string
	Generation int64
	Assignment []GroupOffset    // what it owns, and where to go on
	Revoke     []TopicPartition // with Heartbeat: what to finish, commit and let go
	// HeartbeatInterval, with JoinGroup, is how often to send heartbeats. 0 with Heartbeat.
	HeartbeatInterval time.Duration
}

// GroupMember is who speaks to a group, in which generation.
type GroupMember struct {
	ID         string
	Generation int64
}

func groupPath(group string) string { return "/v1/groups/" + url.PathEscape(group) }

// groupRequest begins a request about a group. rest is the path behind the group's, such as "/join".
func groupRequest(op, method, group, rest string, twice repeatable) *request {
	return &request{op: op + " group " + group, method: method, path: groupPath(group) + rest, accept: contentJSON, twice: twice}
}

// NewMemberID makes an ID for JoinOptions.MemberID that nobody else has. Who knows it beforehand can leave, or join again, also where no answer to
// the join ever came.
func NewMemberID() string { return "m-" + rand.Text() }

// JoinGroup makes or renews a membership. A group that does not exist is created. What the member owns already is in the answer; more comes with
// heartbeats, once others have let go of it. Polls of the member go on from the committed offsets.
//
// It is sent again where its answer was lost. That leaves no second member behind, which would hold partitions until its session lapses: a
// join without MemberID is sent with one that is made here.
func (c *Client) JoinGroup(ctx context.Context, group string, o JoinOptions) (*Membership, error) {
	if o.MemberID == "" {
		o.MemberID = NewMemberID()
	}
	b := jsonJoin{Topics: o.Topics, MemberID: o.MemberID, InstanceID: o.InstanceID, Start: o.Start}
	if o.SessionTimeout != 0 {
		b.SessionTimeout = formatDuration(o.SessionTimeout)
	}
	r, err := groupRequest("join", http.MethodPost, group, "/join", safeTwice).withJSON(b)
	if err != nil {
		return nil, err
	}
	return c.membership(ctx, r, GroupMember{ID: o.MemberID})
}

// Heartbeat keeps the session alive. owned is what the member still works on: what is in Membership.Revoke and not in owned is let go, but only if
// m.Generation is the one that asked for it, or a later one. nil does not say, and lets nothing go; empty lets go of all of it.
//
// The answer may have a newer generation than m's, which the next calls have to name. ErrStaleGeneration: the membership has ended, join again.
func (c *Client) Heartbeat(ctx context.Context, group string, m GroupMember, owned []TopicPartition) (*Membership, error) {
	r, err := groupRequest("heartbeat to", http.MethodPost, group, "/heartbeat", safeTwice).withJSON(jsonHeartbeat{m.ID, m.Generation, owned})
	if err != nil {
		return nil, err
	}
	return c.membership(ctx, r, m)
}

func (c *Client) membership(ctx context.Context, r *request, m GroupMember) (*Membership, error) {
	var out *Membership
	err := c.call(ctx, r, func(_ int, body []byte) (err error) {
		out, err = decodeMembership(body, m.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LeaveGroup ends a membership; the others get its partitions at once. A member that is none any more has left. Where an answer was lost it is sent
// again, and a group that is gone by then is success.
func (c *Client) LeaveGroup(ctx context.Context, group, memberID string) error {
	r, err := groupRequest("leave", http.MethodPost, group, "/leave", safeTwice).withJSON(map[string]string{"memberId": memberID})
	if err != nil {
		return err
	}
	return c.groupTwice(ctx, r, true, nil)
}

// groupTwice sends r, again where the policy and r.twice allow it. decode, if any, hears whether an answer was lost before.
//
// After a lost answer, UNKNOWN_GROUP is success where gone is what is wanted. And a CONFLICT does not say then that nothing has changed: members may
// have come after the first one took effect. So the error is that of the lost answer.
func (c *Client) groupTwice(ctx context.Context, r *request, gone bool, decode func(lost bool, body []byte) error) error {
	var lost *Error
	err := retry(ctx, c.policy, r.twice, func(ctx context.Context) error {
		err := c.call(ctx, r.once(), func(_ int, body []byte) error {
			if decode == nil {
				return nil
			}
			return decode(lost != nil, body)
		})
		if gone && lost != nil && codeOf(err) == api.CodeUnknownGroup {
			return nil
		}
		if outcome, _ := Classify(err); outcome == Indefinite {
			errors.As(err, &lost)
		}
		return err
	})
	if lost == nil || codeOf(err) != api.CodeConflict {
		return err
	}
	e := *lost
	if e.Cause == nil {
		e.Cause = fmt.Errorf("sent again: %v", err)
	} else {
		e.Cause = fmt.Errorf("%w; sent again: %v", e.Cause, err)
	}
	return &e
}

// CommitOffsets commits offsets, all or none, and returns once they are durable. ErrStaleGeneration: the generation is over, and nothing was
// committed; a heartbeat tells the new one and what is still owned. ErrNotOwner: one of the partitions is not the member's, and nothing was committed.
//
// The zero GroupMember commits for a group without members, which is created where there is none; CONFLICT where there are some. It must commit something.
//
// It is sent again where its answer was lost.
func (c *Client) CommitOffsets(ctx context.Context, group string, m GroupMember, offsets []GroupOffset) error {
	sent := make([]GroupOffset, len(offsets))
	for i, o := range offsets {
		sent[i] = o
		sent[i].TopicID = "" // it is part of answers only
	}
	r, err := groupRequest("commit to", http.MethodPut, group, "/offsets", safeTwice).withJSON(jsonCommit{m.ID, m.Generation, sent})
	if err != nil {
		return err
	}
	return c.call(ctx, r, nil)
}

// CommittedOffsets gives what a group has committed, by topic and partition. Linearizable.
func (c *Client) CommittedOffsets(ctx context.Context, group string) ([]GroupOffset, error) {
	var answer struct {
		Offsets []GroupOffset `json:"offsets"`
	}
	err := c.call(ctx, groupRequest("offsets of", http.MethodGet, group, "/offsets", safeTwice), func(_ int, body []byte) error {
		answer.Offsets = nil
		return json.Unmarshal(body, &answer)
	})
	if err != nil {
		return nil, err
	}
	return answer.Offsets, nil
}

// PollOptions say how much a poll asks for.
type PollOptions struct {
	MaxRecords int           // most records; 0 = the server's default (1,000)
	MaxBytes   int           // most bytes of keys, values and headers, but at least one record; 0 = the server's default (4 MiB)
	Wait       time.Duration // how long the server waits for a first record, at most 30 s; 0 = not at all
}

// PolledPartition is what one partition gave to a poll.
type PolledPartition struct {
	Topic      string
	Partition  int32
	Records    []Record
	NextOffset int64             // what to commit once the records are processed; holes are passed
	Head       int64             // the offset that the next record will get
	JSON       []json.RawMessage // Records in the server's own words, one for one
	// Gap is what retention has deleted before the group read it, nil = nothing. With one there are no records, and there will be none before somebody
	// decides: the member that owns the partition with a commit at or after the gap's end, or SeekGroup. NextOffset is that end, and Head 0 (unknown).
	Gap *Gap
}

// errPollLost says what to do about a poll whose outcome is unknown.
var errPollLost = errors.New("records may have been read without coming here: join again with the same member ID before the next poll")

// Poll reads from all partitions that a member owns, but for those that it is to let go, from where its last poll in this generation left off, or
// else from the committed offsets. Partitions without records are not in the answer, but for those with a Gap. Polls of one member at the same time
// read different records.
//
// A poll moves the place of the next one. So it is not sent again where its answer was lost, but fails, and Classify says Indefinite: join again with the
// same member ID, and polls go on from the committed offsets; a second poll would pass over what was lost. ErrStaleGeneration: a heartbeat tells
// the new generation. ErrRetentionGap: there is nothing but gaps, which are in Gaps.
func (c *Client) Poll(ctx context.Context, group string, m GroupMember, o PollOptions) ([]PolledPartition, error) {
	b := jsonPoll{MemberID: m.ID, Generation: m.Generation, MaxRecords: o.MaxRecords, MaxBytes: o.MaxBytes}
	if o.Wait > 0 {
		b.Wait = formatDuration(o.Wait)
	}
	r, err := groupRequest("poll", http.MethodPost, group, "/poll", onceAtMost).withJSON(b)
	if err != nil {
		return nil, err
	}
	r.wait = o.Wait
	var polled []PolledPartition
	err = c.call(ctx, r, func(_ int, body []byte) (err error) {
		polled, err = decodePolled(body)
		return err
	})
	if err == nil {
		return polled, nil
	}
	var e *Error
	if outcome, _ := Classify(err); outcome == Indefinite && errors.As(err, &e) {
		if e.Cause == nil {
			e.Cause = errPollLost
		} else {
			e.Cause = fmt.Errorf("%w; %w", e.Cause, errPollLost)
		}
	}
	return nil, err
}
