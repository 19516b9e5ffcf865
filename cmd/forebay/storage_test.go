package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/internal/node"
)

// TestStorageReport prints what a node answers, as text and as JSON, with what it costs.
func TestStorageReport(t *testing.T) {
	stored := compactor.Report{
		Revision: 7, Objects: 3, Bytes: 3e9, Live: 2e9,
		Topics: []compactor.TopicReport{{Tenant: "acme", Topic: "orders", Class: "ttl=3d", Partitions: 2, Records: 12, Bytes: 2e9, Batches: 5,
			Levels: []compactor.TopicLevelReport{{Level: 0, Objects: 1, Bytes: 1e9, Batches: 4}, {Level: 2, Objects: 2, Bytes: 1e9, Batches: 1}}}},
		Levels: []compactor.LevelReport{{Level: 0, Objects: 1, Bytes: 1e9, Live: 1e9}, {Class: "ttl=3d", Level: 2, Objects: 2, Bytes: 2e9, Live: 1e9}},
	}
	answer := node.StorageReport{Report: &stored, Reads: []node.LevelReads{
		{LevelReads: fetch.LevelReads{Level: 0, Gets: 900, GetBytes: 3 << 30, Delivered: 2 << 30}, GetsPerGiB: 450},
		{LevelReads: fetch.LevelReads{Level: 2, Gets: 100, GetBytes: 2 << 30, Delivered: 2 << 30}, GetsPerGiB: 50},
	}}
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/debug/storage" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(&answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	r := forebay(t, nil, "", "storage", "report", "--ops", server.URL, "--price-gb-month", "0.1", "--currency", "EUR")
	if r.code != exitOK || r.err != "" {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{"acme", "orders", "ttl=3d", "EUR/MONTH", "0.2000", "Storage of live objects: 0.3000 EUR a month", "GETS/GIB", "450.0", "50.0",
		"250.0"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the report lacks %q:\n%s", want, r.out)
		}
	}
	r = forebay(t, nil, "", "storage", "report", "--ops", server.URL, "--price-gb-month", "0.1", "--output", "json")
	var out struct {
		node.StorageReport
		Costs []compactor.Cost    `json:"topicCosts"`
		Total compactor.TotalCost `json:"totalCost"`
	}
	if err := json.Unmarshal([]byte(r.out), &out); err != nil || r.code != exitOK {
		t.Fatal(err, r)
	}
	if len(out.Topics) != 1 || len(out.Costs) != 1 || out.Costs[0].Storage < 0.19 || out.Costs[0].Gets < 400 || out.Total.Storage < 0.29 || len(out.Reads) != 2 || out.Reads[1].Gets != 100 {
		t.Errorf("%+v", out)
	}
	status = http.StatusServiceUnavailable
	if r = forebay(t, nil, "", "storage", "report", "--ops", server.URL); r.code != exitFailure || !strings.Contains(r.err, "503") || r.out != "" {
		t.Errorf("%+v", r)
	}
	server.Close()
	if r = forebay(t, nil, "", "storage", "report", "--ops", server.URL); r.code != exitFailure || r.err == "" {
		t.Errorf("%+v", r)
	}
}
