package gateway

import (
	"net/http"

	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
)

// getTopic serves GET /v1/topics/{topic}, with partitionInfo. Linearizable: the heads show everything acknowledged before.
func (s *Server) getTopic(rq *request) error {
	name, err := rq.topicParam()
	if err != nil {
		return err
	}
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	if err := rq.authorize(auth.Describe, auth.Topic, name); err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	topic, err := s.freshTopic(ctx, rq.principal.Tenant, name)
	if err != nil {
		return err
	}
	infos, err := s.o.Topics.PartitionInfos(topic.ID)
	if err != nil {
		return err
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendTopicJSON(b, topic, infos) })
}
