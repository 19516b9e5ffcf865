package gateway

import (
	"github.com/forebaymq/forebay/gateway/auth"
)

// deleteTopic serves DELETE /v1/topics/{topic}. Its records are gone for readers with the answer; a topic made later under the same name
// is another one.
func (s *Server) deleteTopic(rq *request) error {
	name, err := rq.topicParam()
	if err != nil {
		return err
	}
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	if err := rq.authorize(auth.Configure, auth.Topic, name); err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if err := s.o.Topics.DeleteTopic(ctx, rq.principal.Tenant, name); err != nil {
		return err
	}
	return rq.noContent()
}
