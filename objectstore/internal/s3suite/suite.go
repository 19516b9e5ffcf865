// Package s3suite is what every S3 driver must make of a store that misbehaves, beside the conformance suite of objectstore/storetest.
package s3suite

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
	"github.com/forebaymq/forebay/objectstore/retry"
)

// Open opens the fake's bucket with the driver under test. The scheme of the server's URL says whether it speaks TLS.
type Open func(ctx context.Context, s *s3fake.Server, o Setup) (objectstore.Store, error)

// Setup is what some cases set. The zero value means the driver's default.
type Setup struct {
	Create    bool // make the bucket if it is absent
	Transport http.RoundTripper
}

// Run runs all cases.
func Run(t *testing.T, open Open) {
	for _, tc := range []struct {
		name string
		run  func(s *suite)
	}{
		{"PutHeaders", putHeaders},
		{"PutHeadersTLS", putHeadersTLS},
		{"CreatesBucket", createsBucket},
		{"LostAnswer", lostAnswer},
		{"Rival", rival},
		{"RivalAfterLostAnswer", rivalAfterLostAnswer},
		{"LostHead", lostHead},
		{"ErrorsAfterEffect", errorsAfterEffect},
		{"Conflicts", conflicts},
		{"Throttled", throttled},
		{"Definite", definite},
		{"PutHangs", putHangs},
		{"ServerGone", serverGone},
		{"DeletedMeanwhile", deletedMeanwhile},
		{"MatchAfterLostAnswer", matchAfterLostAnswer},
		{"IgnoresConditions", ignoresConditions},
		{"ForgetsMetadata", forgetsMetadata},
		{"KnowsNoConditions", knowsNoConditions},
		{"ReadFaults", readFaults},
		{"ReadResetOnce", readResetOnce},
		{"DeleteErrorsInside", deleteErrorsInside},
		{"ListErrorInside", listErrorInside},
		{"ListEdges", listEdges},
		{"ListCut", listCut},
		{"KeyBelowKey", keyBelowKey},
		{"AbsentBucket", absentBucket},
		{"DeniedBucket", deniedBucket},
		{"BucketGoneLater", bucketGoneLater},
		{"StoreAwayAtStart", storeAwayAtStart},
		{"Rules", rules},
		{"Storm", storm},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := s3fake.New(t)
			tc.run(&suite{T: t, ctx: t.Context(), server: server, open: open})
		})
	}
}

type suite struct {
	*testing.T
	ctx    context.Context
	server *s3fake.Server
	open   Open
}

// driver opens the driver as it is.
func (s *suite) driver() objectstore.Store {
	s.Helper()
	store, err := s.open(s.ctx, s.server, Setup{})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := store.Close(); err != nil {
			s.Errorf("close: %v", err)
		}
	})
	return store
}

// retrying opens the driver under the retry wrapper, without long waits.
func (s *suite) retrying() objectstore.Store {
	s.Helper()
	store, err := retry.New(s.driver(), retry.Options{Attempts: 5, Base: time.Millisecond, Max: 2 * time.Millisecond, PerTry: 5 * time.Second})
	if err != nil {
		s.Fatal(err)
	}
	return store
}

// want fails the test unless err is of the class (nil: no error), and indefinite or not as said.
func (s *suite) want(err, class error, indefinite bool, what string) {
	s.Helper()
	if class == nil && err != nil || class != nil && !errors.Is(err, class) {
		s.Fatalf("%s: got error %v, want %v", what, err, class)
	}
	if objectstore.IsIndefinite(err) != indefinite {
		s.Fatalf("%s: %v; indefinite must be %v", what, err, indefinite)
	}
}

func (s *suite) wantBody(key, want string) {
	s.Helper()
	if got, there := s.server.Body(key); !there || got != want {
		s.Fatalf("object %s is %q (there: %v), want %q", key, got, there, want)
	}
}

func (s *suite) wantCount(op string, want int) {
	s.Helper()
	if got := s.server.Count(op); got != want {
		s.Fatalf("%d requests %s, want %d", got, op, want)
	}
}

// on makes a script that acts on the requests of one Op whose number is below n.
func on(op string, n int, f s3fake.Fault) func(s3fake.Request) s3fake.Fault {
	return func(r s3fake.Request) s3fake.Fault {
		if r.Op == op && r.N < n {
			return f
		}
		return s3fake.Fault{}
	}
}

func mentions(err error, parts ...string) bool {
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			return false
		}
	}
	return true
}
