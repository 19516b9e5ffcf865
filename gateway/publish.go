package gateway

import (
	"context"
	"net/http"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/metadata"
)

// publish serves POST /v1/topics/{topic}/records.
func (s *Server) publish(rq *request) error {
	name, err := rq.topicParam()
	if err != nil {
		return err
	}
	if err := rq.authorize(auth.Publish, auth.Topic, name); err != nil {
		return err
	}
	return s.publishTo(rq, name)
}

// publishTopics serves POST /v1/records: an atomic publish to several topics.
func (s *Server) publishTopics(rq *request) error {
	return s.publishTo(rq, "")
}

// publishTo reads, decodes and appends one request. single is the topic of the path, "" for a request that names its topics itself.
func (s *Server) publishTo(rq *request, single string) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	ct, err := wire.ParseContentType(rq.Request().Header)
	if err != nil {
		return err
	}
	answer := ct // what one speaks, unless the request says otherwise
	if len(rq.Request().Header["Accept"]) > 0 {
		if answer, err = wire.NegotiateAccept(rq.Request().Header); err != nil {
			return err
		}
	}
	body, release, err := rq.readBody()
	if err != nil {
		return err
	}
	defer release()

	pub, err := wire.DecodePublish(ct, body, single, s.o.Clock.Now())
	if err != nil {
		return err
	}
	if single == "" {
		for i := range pub.Topics {
			if err := rq.authorize(auth.Publish, auth.Topic, pub.Topics[i].Topic); err != nil {
				return err
			}
		}
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	req, err := s.prepare(ctx, rq, pub)
	if err != nil {
		return err
	}
	res, err := s.o.Appender.Append(ctx, req)
	if c := api.CodeOf(err); c == api.CodeUnknownTopic || c == api.CodeUnknownPartition {
		if req, err = s.prepareAgain(ctx, rq, pub, req, err); err != nil {
			return err
		}
		res, err = s.o.Appender.Append(ctx, req)
	}
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.BeforeAck)
	return rq.respondPublished(answer, single == "", req, res)
}

// prepare makes the request for ingest: it finds the topics, holds the records against them, and chooses partitions. Nothing is stored
// before every topic has passed, so a request that is refused for one record leaves no trace of the others.
func (s *Server) prepare(ctx context.Context, rq *request, pub *wire.Publish) (*ingest.Request, error) {
	req := &ingest.Request{Tenant: rq.principal.Tenant, Producer: pub.Producer, Topics: make([]ingest.TopicRecords, len(pub.Topics))}
	seat := s.keylessSeat(pub.Producer)
	for i := range pub.Topics {
		t := &pub.Topics[i]
		topic, err := s.topic(ctx, req.Tenant, t.Topic)
		if err != nil {
			return nil, err
		}
		err = t.Check(&topic.Config)
		if api.CodeOf(err) == api.CodeUnknownPartition { // another node may have raised the number
			if topic, err = s.freshTopic(ctx, req.Tenant, t.Topic); err != nil {
				return nil, err
			}
			err = t.Check(&topic.Config)
		}
		if err != nil {
			return nil, err
		}
		if err := s.resident(topic); err != nil {
			return nil, err
		}
		req.Topics[i] = ingest.TopicRecords{Topic: topic, Records: t.Records, Partitions: choosePartitions(t, topic.Config.Partitions, seat)}
	}
	if hs := rq.traceHeaders(); hs != nil {
		for i := range req.Topics {
			addTrace(req.Topics[i].Records, hs)
		}
	}
	return req, nil
}

// prepareAgain looks at a request once more that ingest or apply refused because a topic or a partition is not there. That is so by ID:
// the view of this node may have had a topic that was deleted and created again elsewhere. It returns refusal when nothing differs.
func (s *Server) prepareAgain(ctx context.Context, rq *request, pub *wire.Publish, before *ingest.Request, refusal error) (*ingest.Request, error) {
	if err := s.o.Topics.Sync(ctx); err != nil {
		return nil, err
	}
	req, err := s.prepare(ctx, rq, pub)
	if err != nil {
		return nil, err
	}
	for i := range req.Topics {
		was, is := before.Topics[i].Topic, req.Topics[i].Topic
		if was.ID != is.ID || was.Config.Partitions != is.Config.Partitions {
			return req, nil
		}
	}
	return nil, refusal
}

// keylessSeat picks where the records without a key or a partition go: all those of a request to one partition (a batch compresses
// better than its parts), the next request to the next one. With a producer the choice depends on nothing but its ID and
// sequence, because the retry of a request must find the first attempt's sequence on its partition, on whichever node it arrives.
func (s *Server) keylessSeat(p *metadata.Producer) uint32 {
	if p == nil {
		return s.keyless.Add(1)
	}
	key := make([]byte, 0, len(p.ID)+8)
	key = append(key, p.ID...)
	for shift := 0; shift < 64; shift += 8 {
		key = append(key, byte(p.Sequence>>shift))
	}
	return uint32(api.PartitionForKey(key, 1<<30))
}

// choosePartitions gives the partition of each record: the one it names, the one of its key, or the seat of the request.
func choosePartitions(t *wire.TopicRecords, partitions int, seat uint32) []int32 {
	keyless := int32(seat % uint32(partitions))
	chosen := make([]int32, len(t.Records))
	for i := range t.Records {
		switch {
		case t.Partitions[i] >= 0:
			chosen[i] = t.Partitions[i]
		case t.Records[i].Key != nil:
			chosen[i] = int32(api.PartitionForKey(t.Records[i].Key, partitions))
		default:
			chosen[i] = keyless
		}
	}
	return chosen
}

// respondPublished writes the positions of the records.
func (rq *request) respondPublished(ct wire.ContentType, several bool, req *ingest.Request, res *ingest.Result) error {
	p := rq.s.buffers.get()
	if several {
		topics := make([]wire.TopicPositions, len(req.Topics))
		for i := range req.Topics {
			topics[i] = wire.TopicPositions{Topic: req.Topics[i].Topic.Name, Partitions: req.Topics[i].Partitions, Offsets: res.Topics[i].Offsets}
		}
		*p = wire.AppendPublishTopics(*p, ct, topics, res.Duplicate)
	} else {
		*p = wire.AppendPublish(*p, ct, req.Topics[0].Partitions, res.Topics[0].Offsets, res.Duplicate)
	}
	err := rq.respond(http.StatusOK, ct.String(), *p)
	rq.s.buffers.put(p)
	return err
}
