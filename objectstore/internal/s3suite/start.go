package s3suite

import (
	"errors"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
)

// ignoresConditions is case S4: a store that takes the header and does not act on it.
func ignoresConditions(s *suite) {
	s.server.IgnoreConditions = true
	s.wantLacks("conditional create (If-None-Match: *)")
}

// forgetsMetadata: without it, an own object cannot be told from a rival's.
func forgetsMetadata(s *suite) {
	s.server.DropMetadata = true
	s.wantLacks("writers' IDs kept with objects (user metadata)")
}

func (s *suite) wantLacks(feature string) {
	s.Helper()
	err := objectstore.Probe(s.ctx, s.retrying(), "probe/")
	var lacks *objectstore.ProbeError
	if !errors.As(err, &lacks) || lacks.Feature != feature {
		s.Fatalf("probe: %v, want one that misses %q", err, feature)
	}
}

// knowsNoConditions: a store that refuses the header as unknown is refused as well, by name of what is missing.
func knowsNoConditions(s *suite) {
	s.server.SetScript(on("PUT", 1000, s3fake.Fault{Status: 501, Code: "NotImplemented"}))
	err := objectstore.Probe(s.ctx, s.retrying(), "probe/")
	s.want(err, objectstore.ErrUnsupported, false, "probe")
	s.wantCount("PUT", 1)
}

// absentBucket: the error names the bucket and what to do, and create=true does it.
func absentBucket(s *suite) {
	s.server.NoBucket = true
	_, err := s.open(s.ctx, s.server, Setup{})
	if !mentions(err, s3fake.Bucket, "does not exist", "make it", "create=true") {
		s.Fatalf("open: %v, want an error that names the bucket and the remedy", err)
	}
	s.wantCount("CREATE", 0)
}

func deniedBucket(s *suite) {
	s.server.SetScript(on("BUCKET", 1, s3fake.Fault{Status: 403, Code: "AccessDenied"}))
	_, err := s.open(s.ctx, s.server, Setup{})
	if !mentions(err, s3fake.Bucket, "denied", "s3:PutObject") {
		s.Fatalf("open: %v, want an error that names the bucket and the permissions", err)
	}
}

// bucketGoneLater: that a bucket is gone must not look like an absent object.
func bucketGoneLater(s *suite) {
	store := s.driver()
	_, err := store.PutIfAbsent(s.ctx, "k", []byte("x"), "w")
	s.want(err, nil, false, "put")
	s.server.SetScript(func(r s3fake.Request) s3fake.Fault { return s3fake.Fault{Status: 404, Code: "NoSuchBucket"} })
	_, _, err = store.Get(s.ctx, "k")
	if err == nil || errors.Is(err, objectstore.ErrNotFound) || !mentions(err, s3fake.Bucket, "does not exist") {
		s.Errorf("get: %v, want an error about the bucket", err)
	}
	_, err = store.List(s.ctx, "", "", 10)
	if err == nil || errors.Is(err, objectstore.ErrNotFound) || !mentions(err, s3fake.Bucket, "does not exist") {
		s.Errorf("list: %v, want an error about the bucket", err)
	}
	err = store.Delete(s.ctx, "k")
	if err == nil || errors.Is(err, objectstore.ErrNotFound) || !mentions(err, s3fake.Bucket, "does not exist") {
		s.Errorf("delete: %v, want an error about the bucket", err)
	}
}

// storeAwayAtStart: a store that throttles when the node starts keeps it waiting, not from starting.
func storeAwayAtStart(s *suite) {
	s.server.SetScript(on("BUCKET", 1, s3fake.Fault{Status: 503, Code: "SlowDown"}))
	store := s.driver()
	_, err := store.PutIfAbsent(s.ctx, "k", []byte("x"), "w")
	s.want(err, nil, false, "put")
}
