package gateway

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// route is one line of the route table. openapi.yaml has the same lines, and a test compares the two.
type route struct {
	method, path string
	handler      echo.HandlerFunc
}

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
