package gateway

import (
	"context"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

// topic finds a topic of the tenant. Where the node's view has none, the node catches up with the log and looks again, so a topic that
// another node created a moment ago is found.
func (s *Server) topic(ctx context.Context, tenant, name string) (*metadata.Topic, error) {
	t, err := s.o.Topics.Topic(tenant, name)
	if err == nil || api.CodeOf(err) != api.CodeUnknownTopic {
		return t, err
	}
	return s.freshTopic(ctx, tenant, name)
}

// freshTopic finds a topic in a view that shows all that was acknowledged before the call.
func (s *Server) freshTopic(ctx context.Context, tenant, name string) (*metadata.Topic, error) {
	if err := s.o.Topics.Sync(ctx); err != nil {
		return nil, err
	}
	return s.o.Topics.Topic(tenant, name)
}

// topicWith is topic, but also catches up where the view's topic has no such partition: another node may have raised the number.
// UNKNOWN_PARTITION when there is none then either.
func (s *Server) topicWith(ctx context.Context, tenant, name string, partition int32) (*metadata.Topic, error) {
	t, err := s.topic(ctx, tenant, name)
	if err != nil || int(partition) < t.Config.Partitions {
		return t, err
	}
	if t, err = s.freshTopic(ctx, tenant, name); err != nil {
		return nil, err
	}
	if int(partition) >= t.Config.Partitions {
		return nil, api.Errorf(api.CodeUnknownPartition, "topic %s has partitions 0 to %d", name, t.Config.Partitions-1)
	}
	return t, nil
}

// withTopic calls f with the topic and, when f says that the topic (by its ID) or the partition is not there, once more with what the
// topic is after catching up, if that differs: the view may have had a topic that was deleted and created again, or fewer
// partitions. f must have had no effect when it fails so.
func (s *Server) withTopic(ctx context.Context, tenant, name string, partition int32, f func(*metadata.Topic) error) error {
	t, err := s.topicWith(ctx, tenant, name, partition)
	if err != nil {
		return err
	}
	err = f(t)
	if c := api.CodeOf(err); c != api.CodeUnknownTopic && c != api.CodeUnknownPartition {
		return err
	}
	fresh, ferr := s.freshTopic(ctx, tenant, name)
	if ferr != nil {
		return ferr
	}
	if fresh.ID == t.ID && fresh.Config.Partitions == t.Config.Partitions {
		return err
	}
	return f(fresh)
}

// resident refuses a topic that may only be used in another region.
func (s *Server) resident(t *metadata.Topic) error {
	if r := t.Config.Residency; r != "" && r != s.o.Region {
		return api.Errorf(api.CodeResidencyViolation, "topic %s resides in region %s and may only be used there", t.Name, r)
	}
	return nil
}
