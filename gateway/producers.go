package gateway

import (
	"net/http"
	"strconv"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
)

func (rq *request) producerParam() (string, error) {
	id, err := rq.pathParam("producer")
	if err != nil {
		return "", err
	}
	return id, wire.CheckProducerID("producer", id)
}

// startProducer serves POST /v1/producers/{producer}: it begins a session and fences the earlier ones. The body is empty, or an empty
// JSON object.
func (s *Server) startProducer(rq *request) error {
	id, err := rq.producerParam()
	if err != nil {
		return err
	}
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	if err := rq.authorize(auth.Publish, auth.Producer, id); err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	if err != nil {
		return err
	}
	defer release()
	if len(body) > 0 {
		if err := wire.DecodeStrict(body, &struct{}{}); err != nil {
			return err
		}
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	epoch, err := s.o.Producers.StartProducer(ctx, rq.principal.Tenant, id)
	if err != nil {
		return err
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"epoch":`...)
		b = strconv.AppendInt(b, epoch, 10)
		return append(b, '}')
	})
}

// producerPositions serves GET /v1/producers/{producer}?topic=: the highest sequence that each partition has of the producer, so that one
// that was interrupted knows where to go on. Linearizable. A producer that never wrote has no partitions.
func (s *Server) producerPositions(rq *request) error {
	id, err := rq.producerParam()
	if err != nil {
		return err
	}
	q, err := rq.parseQuery("topic")
	if err != nil {
		return err
	}
	if err := rq.authorize(auth.Publish, auth.Producer, id); err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	topic := ""
	if q.has("topic") {
		topic = q.get("topic")
		if err := api.CheckName("topic", topic); err != nil {
			return err
		}
		if _, err := s.topic(ctx, rq.principal.Tenant, topic); err != nil {
			return err
		}
	}
	positions, err := s.o.Producers.ProducerPositions(ctx, rq.principal.Tenant, id, topic)
	if err != nil {
		return err
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"id":`...)
		b = appendQuoted(b, id)
		b = append(b, `,"partitions":[`...)
		for i, p := range positions {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"topic":`...)
			b = appendQuoted(b, p.Topic)
			b = append(b, `,"partition":`...)
			b = strconv.AppendInt(b, int64(p.Partition), 10)
			b = append(b, `,"sequence":`...)
			b = strconv.AppendInt(b, p.Sequence, 10)
			b = append(b, '}')
		}
		return append(b, "]}"...)
	})
}
