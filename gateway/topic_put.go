package gateway

import (
	"net/http"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/metadata"
)

// putTopic serves PUT /v1/topics/{topic}: 201 when it made the topic, 200 when it was there. Members that the body leaves out keep their
// value, so the same request twice is the same as once.
func (s *Server) putTopic(rq *request) error {
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
	body, release, err := rq.readJSON()
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	topic, created, err := s.o.Topics.PutTopic(ctx, rq.principal.Tenant, name, func(current *metadata.Topic) (api.TopicConfig, error) {
		var have *api.TopicConfig
		if current != nil {
			have = &current.Config
		}
		cfg, _, err := wire.DecodeTopicConfig(body, have)
		return cfg, err
	})
	if err != nil {
		return err
	}
	infos, err := s.o.Topics.PartitionInfos(topic.ID)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return rq.respondJSON(status, func(b []byte) []byte { return wire.AppendTopicJSON(b, topic, infos) })
}
