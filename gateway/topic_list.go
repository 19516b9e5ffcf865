package gateway

import (
	"encoding/base64"
	"net/http"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/metadata"
)

// listPartitions bounds the partitions that one page of topics tells of: a page ends before the topic that would exceed it, but has
// at least one topic.
const listPartitions = 20_000

// listTopics serves GET /v1/topics: the topics that the caller may describe, by name, with partitionInfo. Linearizable.
func (s *Server) listTopics(rq *request) error {
	q, err := rq.parseQuery("limit", "cursor")
	if err != nil {
		return err
	}
	limit, after, err := listParams(q)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if err := s.o.Topics.Sync(ctx); err != nil {
		return err
	}
	items, next, err := visible(limit, after, rq.authorize(auth.Describe, auth.Topic, ""),
		func(after string, limit int) ([]*metadata.Topic, string, error) {
			items, next := s.listOwn(rq.principal.Tenant, after, limit)
			return items, next, nil
		},
		func(t *metadata.Topic) (string, error) {
			return t.Name, rq.authorize(auth.Describe, auth.Topic, t.Name)
		})
	if err != nil {
		return err
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"items":[`...)
		written, partitions := 0, 0
		for i, t := range items {
			if partitions += t.Config.Partitions; i > 0 && partitions > listPartitions {
				next = items[i-1].Name
				break
			}
			infos, err := s.o.Topics.PartitionInfos(t.ID)
			if err != nil {
				continue // deleted since the page was taken
			}
			if written > 0 {
				b = append(b, ',')
			}
			b = wire.AppendTopicJSON(b, t, infos)
			written++
		}
		return appendNextCursor(append(b, ']'), next)
	})
}

// listOwn lists the topics that a tenant has made itself: those with reserved names, such as the journal of its queues, are not its business.
func (s *Server) listOwn(tenant, after string, limit int) (own []*metadata.Topic, next string) {
	for {
		page, next := s.o.Topics.Topics(tenant, after, limit-len(own))
		for _, t := range page {
			if api.ValidName(t.Name) {
				own = append(own, t)
			}
		}
		if next == "" || len(own) == limit {
			return own, next
		}
		after = next
	}
}

// listParams gives the parameters of a list by name.
func listParams(q query) (limit int, after string, err error) {
	n, err := q.intIn("limit", 1, api.MaxListLimit, api.DefaultListLimit)
	if err != nil {
		return 0, "", err
	}
	if q.has("cursor") {
		after, err = parseListCursor(q.get("cursor"))
	}
	return int(n), after, err
}

// appendNextCursor ends the object of a list by name, whose items end the text so far.
func appendNextCursor(b []byte, next string) []byte {
	b = append(b, `,"nextCursor":`...)
	if next == "" {
		return append(b, "null}"...)
	}
	return append(appendQuoted(b, formatListCursor(next)), '}')
}

// formatListCursor makes the opaque text of a place in a list. It begins with a version, so that its meaning may change.
func formatListCursor(name string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("1" + name))
}

func parseListCursor(s string) (string, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 2 || b[0] != '1' || !api.ValidName(string(b[1:])) {
		return "", invalidField("cursor", "is not a nextCursor of this list")
	}
	return string(b[1:]), nil
}
