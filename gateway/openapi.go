package gateway

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"

	"go.yaml.in/yaml/v3"
)

// openAPIYAML is the contract as it is written by hand.
//
//go:embed openapi.yaml
var openAPIYAML []byte

// openAPIDocument turns the contract into the JSON that is served.
func openAPIDocument() ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(openAPIYAML, &doc); err != nil {
		return nil, fmt.Errorf("parse openapi.yaml: %w", err)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("convert openapi.yaml: %w", err)
	}
	return b, nil
}

// getOpenAPI serves GET /openapi.json.
func (s *Server) getOpenAPI(rq *request) error { return rq.respond(http.StatusOK, typeJSON, s.openapi) }
