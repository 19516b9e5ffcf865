package gateway

import (
	"context"
	"net/http"
	"strconv"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/leases/groups"
)

// group gives the group of the path, once the principal may do op on it and this node has groups at all.
func (rq *request) group(op auth.Operation) (n groups.Name, err error) {
	if n.Group, err = rq.pathParam("group"); err != nil {
		return n, err
	}
	n.Tenant = rq.principal.Tenant
	if err := api.CheckName("group", n.Group); err != nil {
		return n, err
	}
	if err := rq.authorize(op, auth.Group, n.Group); err != nil {
		return n, err
	}
	return n, rq.s.groupsThere()
}

func (s *Server) groupsThere() error {
	if s.o.Groups == nil {
		return api.Errorf(api.CodeLeasesUnavailable, "this node has no lease store and serves no groups")
	}
	return nil
}

// groupBody gives the group of the path, for somebody who may consume with it, and what decode makes of the body.
func groupBody[T any](rq *request, decode func(body []byte) (T, error)) (n groups.Name, v T, err error) {
	if _, err = rq.parseQuery(); err != nil {
		return n, v, err
	}
	if n, err = rq.group(auth.Consume); err != nil {
		return n, v, err
	}
	body, release, err := rq.readJSON()
	if err != nil {
		return n, v, err
	}
	defer release()
	v, err = decode(body)
	return n, v, err
}

// mayRead refuses a topic that a member may not read: because of who it is, because there is none, or because it resides elsewhere. at is where
// the request names the topic.
func (s *Server) mayRead(ctx context.Context, rq *request, topic, at string) error {
	if err := rq.authorize(auth.Read, auth.Topic, topic); err != nil {
		return err
	}
	t, err := s.topic(ctx, rq.principal.Tenant, topic)
	if api.CodeOf(err) == api.CodeUnknownTopic {
		return &api.Error{Code: api.CodeUnknownTopic, Detail: "topic " + topic + " does not exist", Fields: []api.FieldError{{Pointer: at, Detail: "must be a topic that exists"}}}
	}
	if err != nil {
		return err
	}
	return s.resident(t)
}

// joinGroup serves POST /v1/groups/{group}/join: a new member, or one that comes again with the ID that it had.
func (s *Server) joinGroup(rq *request) error {
	n, j, err := groupBody(rq, wire.DecodeJoin)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	for i, topic := range j.Topics {
		if err := s.mayRead(ctx, rq, topic, "/topics/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	j.Name = n
	joined, err := s.o.Groups.Join(ctx, *j)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendJoinedJSON(b, joined) })
}

// heartbeatGroup serves POST /v1/groups/{group}/heartbeat. It needs no right to read: a member that has lost it may still let go of what it owns.
func (s *Server) heartbeatGroup(rq *request) error {
	n, h, err := groupBody(rq, wire.DecodeHeartbeat)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	h.Name = n
	beat, err := s.o.Groups.Heartbeat(ctx, *h)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendBeatJSON(b, beat) })
}

// leaveGroup serves POST /v1/groups/{group}/leave. A member that is none any more has left.
func (s *Server) leaveGroup(rq *request) error {
	n, member, err := groupBody(rq, wire.DecodeLeave)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if err := s.o.Groups.Leave(ctx, n, member); err != nil {
		return queueError(rq, err)
	}
	return rq.noContent()
}

// pollGroup serves POST /v1/groups/{group}/poll: 200 with records of the partitions that the member owns, perhaps none.
func (s *Server) pollGroup(rq *request) error {
	n, p, err := groupBody(rq, wire.DecodePoll)
	if err != nil {
		return err
	}
	// The wait is the client's; what comes after it (a call of the lease store, a GET) has the time of any request.
	ctx, cancel := s.within(rq.ctx, p.Wait+s.o.Timeouts.Request)
	defer cancel()
	p.Name = n
	if err := s.mayPoll(ctx, rq, p); err != nil {
		return err
	}
	p.Enough = s.drain.Done() // a node that stops holds nobody up
	polled, err := s.o.Groups.Poll(ctx, *p)
	if err != nil {
		return queueError(rq, err)
	}
	for i := range polled {
		// Where a member joined before the topic was bound to another region, its next join is refused as well.
		t, err := s.topic(ctx, n.Tenant, polled[i].Topic)
		if api.CodeOf(err) == api.CodeUnknownTopic {
			continue // deleted since
		}
		if err == nil {
			err = s.resident(t)
		}
		if err != nil {
			return err
		}
	}
	if err := rq.ctx.Err(); err != nil {
		return err
	}
	err = rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendPolledJSON(b, polled) })
	if err != nil {
		// The next poll goes on after these records. So this must not look like a refusal after which one simply tries again.
		return &api.Error{Code: api.CodeOutcomeUnknown, Detail: "records were read and could not be sent; join again with the same memberId to go on from the committed offsets", Cause: err}
	}
	return nil
}

// mayPoll refuses a poll of a member that owns something it may not read. It asks before the poll: what a poll has read is not read again by the
// next one.
func (s *Server) mayPoll(ctx context.Context, rq *request, p *groups.PollRequest) error {
	if rq.authorize(auth.Read, auth.Topic, "") == nil {
		return nil // it may read everything
	}
	beat, err := s.o.Groups.Heartbeat(ctx, groups.HeartbeatRequest{Name: p.Name, MemberID: p.MemberID, Generation: p.Generation})
	if err != nil {
		return queueError(rq, err)
	}
	// In another generation than the member's own the poll is refused, so these are the partitions that it can read.
	asked := map[string]bool{}
	for i := range beat.Assignment {
		topic := beat.Assignment[i].Topic
		if asked[topic] {
			continue
		}
		asked[topic] = true
		if err := rq.authorize(auth.Read, auth.Topic, topic); err != nil {
			return err
		}
	}
	return nil
}
