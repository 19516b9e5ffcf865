package gateway

import (
	"net/http"
	"strconv"

	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/metadata"
)

// commitOffsets serves PUT /v1/groups/{group}/offsets: 204 once all of them are durable.
func (s *Server) commitOffsets(rq *request) error {
	n, c, err := groupBody(rq, wire.DecodeCommit)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	asked := map[string]bool{}
	for i := range c.Offsets {
		topic := c.Offsets[i].Topic
		if asked[topic] {
			continue
		}
		asked[topic] = true
		if err := s.mayRead(ctx, rq, topic, "/offsets/"+strconv.Itoa(i)+"/topic"); err != nil {
			return err
		}
	}
	c.Name = n
	if err := s.o.Groups.Commit(ctx, *c); err != nil {
		return queueError(rq, err)
	}
	return rq.noContent()
}

// groupOffsets serves GET /v1/groups/{group}/offsets. Linearizable.
func (s *Server) groupOffsets(rq *request) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	n, err := rq.group(auth.Describe)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	offsets, err := s.o.Groups.Offsets(ctx, n)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendOffsetsJSON(b, offsets) })
}

// seekGroup serves POST /v1/groups/{group}/seek, and answers what that skips and repeats.
func (s *Server) seekGroup(rq *request) error {
	n, seek, err := groupBody(rq, wire.DecodeGroupSeek)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if err := s.mayRead(ctx, rq, seek.Topic, "/topic"); err != nil {
		return err
	}
	seek.Name = n
	sought, err := s.o.Groups.Seek(ctx, *seek)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendSoughtJSON(b, sought, seek.DryRun) })
}

// getGroup serves GET /v1/groups/{group}.
func (s *Server) getGroup(rq *request) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	n, err := rq.group(auth.Describe)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	d, err := s.o.Groups.Group(ctx, n)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendGroupStateJSON(b, d) })
}

// deleteGroup serves DELETE /v1/groups/{group}.
func (s *Server) deleteGroup(rq *request) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	n, err := rq.group(auth.Configure)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if err := s.o.Groups.Delete(ctx, n); err != nil {
		return queueError(rq, err)
	}
	return rq.noContent()
}

// listGroups serves GET /v1/groups: those that the caller may describe, by name.
func (s *Server) listGroups(rq *request) error {
	q, err := rq.parseQuery("limit", "cursor")
	if err != nil {
		return err
	}
	limit, after, err := listParams(q)
	if err != nil {
		return err
	}
	if err := s.groupsThere(); err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	items, next, err := visible(limit, after, rq.authorize(auth.Describe, auth.Group, ""),
		func(after string, limit int) ([]*metadata.ConsumerGroup, string, error) {
			return s.o.Groups.Groups(ctx, rq.principal.Tenant, after, limit)
		},
		func(g *metadata.ConsumerGroup) (string, error) {
			return g.Name, rq.authorize(auth.Describe, auth.Group, g.Name)
		})
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"items":[`...)
		for i, g := range items {
			if i > 0 {
				b = append(b, ',')
			}
			b = wire.AppendGroupJSON(b, g)
		}
		return appendNextCursor(append(b, ']'), next)
	})
}
