package faults_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
)

func TestParse(t *testing.T) {
	plan, err := faults.Parse(" seed=0x10 ; put:latency=lognormal(80ms, 300ms)+5ms+size(1ms);put,stat:prefix=l0/:skip=1:every=3:count=9:p=0.5:error=503;read:truncate=0.25;" +
		"put:error=late(2s);profile=s3;")
	if err != nil {
		t.Fatal(err)
	}
	reads := []objectstore.Op{objectstore.OpGet, objectstore.OpGetRange, objectstore.OpGetTail}
	want := faults.Plan{Seed: 16, Rules: append([]faults.Rule{
		{Ops: []objectstore.Op{objectstore.OpPut}, Latency: faults.Latency{Base: 5 * time.Millisecond, P50: 80 * time.Millisecond, P99: 300 * time.Millisecond, PerMiB: time.Millisecond}},
		{Ops: []objectstore.Op{objectstore.OpPut, objectstore.OpStat}, Prefix: "l0/", Skip: 1, Every: 3, Count: 9, Probability: 0.5, Error: faults.Throttled},
		{Ops: reads, Truncate: true, Keep: 0.25},
		{Ops: []objectstore.Op{objectstore.OpPut}, Error: faults.Late, LateBy: 2 * time.Second},
	}, faults.S3Like()...)}
	if !reflect.DeepEqual(plan, want) {
		t.Errorf("got  %+v\nwant %+v", plan, want)
	}
	for spec, want := range map[string]string{
		"bogus":                           "want seed=N",
		"seed=x":                          "invalid syntax",
		"profile=gcs":                     "want seed=N",
		"write:error=503":                 "unknown operation",
		"put:error=504":                   "unknown kind",
		"put:error=":                      "unknown kind",
		"put:error=late":                  "unknown kind",
		"put:error=late(soon)":            "invalid duration",
		"put:error=late(0s)":              "LateBy",
		"put:error":                       "want NAME=VALUE",
		"put:":                            "want NAME=VALUE",
		"put:every=3":                     "does nothing",
		"put:every=-1:error=503":          "below 0",
		"put:p=0:error=503":               "above 0",
		"put:p=2:error=503":               "0 to 1",
		"put:p=NaN:error=503":             "0 to 1",
		"get:error=409":                   "cannot befall",
		"get:error=lost":                  "cannot befall",
		"*:error=409":                     "cannot befall",
		"put:truncate=0.5":                "only reads",
		"get:truncate=1":                  "below 1",
		"get:truncate=0.1:error=404":      "one of them",
		"put:latency=fast":                "want a duration",
		"put:latency=lognormal(1ms)":      "want a duration",
		"put:latency=lognormal(3ms,1ms)":  "P50 <= P99",
		"put:latency=lognormal(0ms,1ms)":  "P50 <= P99",
		"put:latency=-1ms":                "negative",
		"put:latency=1ms+1ms":             "given twice",
		"put:latency=size(1ms":            "want a duration",
		"put:frequency=3":                 "unknown item",
		"bogus;put:error=504":             "unknown kind",
		"put:error=504;bogus;seed=1;nope": "want seed=N",
	} {
		if _, err := faults.Parse(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", spec, err, want)
		}
	}
}

// FuzzParse: what is taken is valid, and its text means the same.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{"", "seed=1", "put:error=503", "put,get:every=3:p=0.5:latency=lognormal(1ms,2ms)+size(3ms)+4ms:error=500",
		"read:truncate=0.5", "put:prefix=l0/:error=late(3s)", "*:latency=1h", "profile=s3", "put:latency=1ms:error=412:skip=1:count=2"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		plan, err := faults.Parse(spec)
		if err != nil {
			return
		}
		if err := (faults.Options{Plan: plan}).Validate(); err != nil {
			t.Fatalf("%q is taken and invalid: %v", spec, err)
		}
		for _, r := range plan.Rules {
			again, err := faults.Parse(r.String())
			if err != nil || len(again.Rules) != 1 || !reflect.DeepEqual(again.Rules[0], r) {
				t.Fatalf("%+v prints as %q, which is %+v, %v", r, r.String(), again.Rules, err)
			}
		}
	})
}
