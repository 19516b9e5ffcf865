package gateway

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
)

func TestOptionsDefaultsAreValid(t *testing.T) {
	o := testOptions(newFabric(), io.Discard)
	o.Listen, o.OpsListen = "", ""
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if o.Listen != "127.0.0.1:8080" || o.Timeouts.Request != 15*time.Second || o.Limits.MaxRequestBytes != api.MaxRequestBytes {
		t.Errorf("%+v", o)
	}
}

func TestOptionsReportEveryFault(t *testing.T) {
	o := Options{
		Listen: "nowhere", OpsListen: "1", TLSKeyFile: "k", RecordTrace: "sometimes",
		Limits:   Limits{MaxConnections: -1, MaxRequests: -1, MaxStreams: -1, MaxHeaderBytes: -1, MaxRequestBytes: 1 << 40, MaxBodyBytes: 5, MaxFollowed: -1, MaxStreamPartition: 20_000},
		Timeouts: Timeouts{ReadHeader: -1, Grace: -1, MinRate: -1, Idle: -1, Request: -1, Heartbeat: -1, Retry: -1, CertCheck: -1},
	}
	err := o.WithDefaults().Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, field := range []string{
		"Listen", "OpsListen", "TLSCertFile", "RecordTrace", "Authenticator", "Authorizer", "Appender", "Reader", "Topics", "Producers", "Health",
		"Limits.MaxConnections", "Limits.MaxRequests", "Limits.MaxStreams", "Limits.MaxHeaderBytes", "Limits.MaxRequestBytes", "Limits.MaxBodyBytes",
		"Limits.MaxFollowed", "Limits.MaxStreamPartition", "Timeouts.ReadHeader", "Timeouts.Grace", "Timeouts.MinRate", "Timeouts.Idle", "Timeouts.Request",
		"Timeouts.Heartbeat", "Timeouts.Retry", "Timeouts.CertCheck",
	} {
		if !strings.Contains(err.Error(), "gateway.Options."+field+":") {
			t.Errorf("%s is not reported", field)
		}
	}
	if _, err := New(o); err == nil {
		t.Error("New takes it")
	}
}

func TestOptionsRegistries(t *testing.T) {
	reg := prometheus.NewRegistry()
	o := Options{Registerer: reg}.WithDefaults()
	if o.Gatherer != prometheus.Gatherer(reg) {
		t.Error("what is registered is not what is shown")
	}
	base := testOptions(newFabric(), io.Discard)
	base.Registerer = reg
	if _, err := New(base); err != nil {
		t.Fatal(err)
	}
	if _, err := New(base); err == nil {
		t.Error("two servers register the same metrics")
	}
}
