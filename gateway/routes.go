package gateway

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/forebaymq/forebay/leases"
)

// route is one line of the route table. openapi.yaml has the same lines, and a test compares the two.
type route struct {
	method, path string
	handler      echo.HandlerFunc
}

// Paths of work queues and of groups.
const (
	group         = "/v1/groups/:group"
	subscriptions = "/v1/topics/:topic/subscriptions"
	subscription  = subscriptions + "/:subscription"
)

// routeTable lists the REST API.
func (s *Server) routeTable() []route {
	return []route{
		{http.MethodGet, "/v1/topics", s.secured(s.listTopics)},
		{http.MethodPut, "/v1/topics/:topic", s.secured(s.putTopic)},
		{http.MethodGet, "/v1/topics/:topic", s.secured(s.getTopic)},
		{http.MethodDelete, "/v1/topics/:topic", s.secured(s.deleteTopic)},
		{http.MethodPost, "/v1/topics/:topic/records", s.secured(s.publish)},
		{http.MethodGet, "/v1/topics/:topic/partitions/:partition/records", s.secured(s.readRecords)},
		{http.MethodGet, "/v1/topics/:topic/partitions/:partition/offset", s.secured(s.offsetForTime)},
		{http.MethodGet, "/v1/topics/:topic/stream", s.secured(s.stream)},
		{http.MethodPost, "/v1/records", s.secured(s.publishTopics)},
		{http.MethodPost, "/v1/producers/:producer", s.secured(s.startProducer)},
		{http.MethodGet, "/v1/producers/:producer", s.secured(s.producerPositions)},

		{http.MethodGet, subscriptions, s.secured(s.listSubscriptions)},
		{http.MethodPut, subscription, s.secured(s.putSubscription)},
		{http.MethodGet, subscription, s.secured(s.getSubscription)},
		{http.MethodDelete, subscription, s.secured(s.deleteSubscription)},
		{http.MethodPost, subscription + "/lease", s.secured(s.lease)},
		{http.MethodGet, subscription + "/consume", s.secured(s.consume)},
		{http.MethodPost, subscription + "/ack", s.secured(s.settle(leases.Ack))},
		{http.MethodPost, subscription + "/nack", s.secured(s.settle(leases.Nack, "delay", "reason"))},
		{http.MethodPost, subscription + "/extend", s.secured(s.settle(leases.Extend, "visibility"))},
		{http.MethodGet, subscription + "/peek", s.secured(s.peek)},
		{http.MethodPost, subscription + "/seek", s.secured(s.seek)},
		{http.MethodGet, subscription + "/dead-letters", s.secured(s.listDeadLetters)},
		{http.MethodPost, subscription + "/dead-letters/redrive", s.secured(s.redrive)},
		{http.MethodPost, subscription + "/dead-letters/discard", s.secured(s.discard)},
		{http.MethodGet, subscription + "/tasks/:task", s.secured(s.getTask)},
		{http.MethodDelete, subscription + "/tasks/:task", s.secured(s.cancelTask)},

		{http.MethodGet, "/v1/groups", s.secured(s.listGroups)},
		{http.MethodGet, group, s.secured(s.getGroup)},
		{http.MethodDelete, group, s.secured(s.deleteGroup)},
		{http.MethodPost, group + "/join", s.secured(s.joinGroup)},
		{http.MethodPost, group + "/heartbeat", s.secured(s.heartbeatGroup)},
		{http.MethodPost, group + "/leave", s.secured(s.leaveGroup)},
		{http.MethodPost, group + "/poll", s.secured(s.pollGroup)},
		{http.MethodPost, group + "/seek", s.secured(s.seekGroup)},
		{http.MethodGet, group + "/offsets", s.secured(s.groupOffsets)},
		{http.MethodPut, group + "/offsets", s.secured(s.commitOffsets)},

		{http.MethodGet, "/healthz", open(s.getHealth)},
		{http.MethodGet, "/readyz", open(s.getReady)},
		{http.MethodGet, "/openapi.json", open(s.getOpenAPI)},
	}
}

// secured makes a handler that authenticates first: before the body is read, and before the path or the query tell anything.
func (s *Server) secured(h func(*request) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		rq := c.(*request)
		if err := rq.authenticate(); err != nil {
			return err
		}
		return h(rq)
	}
}

// open makes a handler that anyone may call.
func open(h func(*request) error) echo.HandlerFunc {
	return func(c echo.Context) error { return h(c.(*request)) }
}
