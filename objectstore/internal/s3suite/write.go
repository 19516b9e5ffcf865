package s3suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
)

// lostAnswer is case S1: the object is stored, the answer is lost, and the repetition meets 412 from its own object.
func lostAnswer(s *suite) {
	s.server.SetScript(on("PUT", 1, s3fake.Fault{DropAfter: true}))
	_, err := s.driver().PutIfAbsent(s.ctx, "bare", []byte("x"), "w1")
	s.want(err, objectstore.ErrUnavailable, true, "put whose answer is lost")
	s.wantCount("PUT", 1) // neither the library nor its transport has tried again
	s.wantBody("bare", "x")

	n := s.server.Count("PUT")
	s.server.SetScript(on("PUT", n+2, s3fake.Fault{DropAfter: true})) // twice
	info, err := s.retrying().PutIfAbsent(s.ctx, "wrapped", []byte("ours"), "writer 2 ~ %41")
	s.want(err, nil, false, "put under the retry wrapper")
	if info.ID != "writer 2 ~ %41" || info.Size != 4 || info.ETag == "" {
		s.Errorf("info %+v", info)
	}
	s.wantCount("PUT", n+3)
	s.wantCount("HEAD", 1) // the second PUT met 412 as well, and that answer was dropped
	s.wantBody("wrapped", "ours")
}

// rival: the key is somebody else's, which is final.
func rival(s *suite) {
	s.server.Put("k", "theirs", "other")
	_, err := s.retrying().PutIfAbsent(s.ctx, "k", []byte("ours"), "me")
	s.want(err, objectstore.ErrExists, false, "put over a rival's object")
	if !mentions(err, `"other"`) {
		s.Errorf("error %q does not name the rival", err)
	}
	s.wantCount("PUT", 1)
	s.wantBody("k", "theirs")
}

// rivalAfterLostAnswer: our request was lost on the way, and a rival came before the repetition.
func rivalAfterLostAnswer(s *suite) {
	s.server.SetScript(func(r s3fake.Request) s3fake.Fault {
		if r.Op == "PUT" && r.N == 0 {
			s.server.Put("k", "theirs", "other")
			return s3fake.Fault{DropBefore: true}
		}
		return s3fake.Fault{}
	})
	_, err := s.retrying().PutIfAbsent(s.ctx, "k", []byte("ours"), "me")
	s.want(err, objectstore.ErrExists, false, "put that lost to a rival")
	s.wantBody("k", "theirs")
}

// lostHead: whose object it is cannot be told at first.
func lostHead(s *suite) {
	s.server.SetScript(func(r s3fake.Request) s3fake.Fault {
		switch {
		case r.Op == "PUT" && r.N == 0:
			return s3fake.Fault{DropAfter: true}
		case r.Op == "HEAD" && r.N == 0:
			return s3fake.Fault{DropBefore: true}
		case r.Op == "HEAD" && r.N == 1:
			return s3fake.Fault{Status: 503}
		}
		return s3fake.Fault{}
	})
	_, err := s.retrying().PutIfAbsent(s.ctx, "k", []byte("ours"), "me")
	s.want(err, nil, false, "put whose own object is recognised late")
	s.wantCount("HEAD", 3)
}

// errorsAfterEffect: answers that do not say that nothing happened.
func errorsAfterEffect(s *suite) {
	store := s.driver()
	for i, f := range []s3fake.Fault{{ErrorAfter: 500, Code: "InternalError"}, {ErrorAfter: 502}, {ErrorAfter: 504}, {ErrorAfter: 503}, {ErrorAfter: 520}} {
		key := fmt.Sprint("k", i)
		s.server.SetScript(on("PUT", s.server.Count("PUT")+1, f))
		_, err := store.PutIfAbsent(s.ctx, key, []byte("x"), "w")
		if !objectstore.IsIndefinite(err) {
			s.Errorf("put answered %d: %v, want indefinite", f.ErrorAfter, err)
		}
		info, err := store.PutIfAbsent(s.ctx, key, []byte("x"), "w")
		s.want(err, nil, false, "the same put again")
		if info.ID != "w" {
			s.Errorf("info %+v", info)
		}
	}
}

// conflicts is case S2.
func conflicts(s *suite) {
	store := s.retrying()
	conflict := s3fake.Fault{Status: 409, Code: "ConditionalRequestConflict"}
	s.server.SetScript(on("PUT", 2, conflict))
	_, err := s.retrying().PutIfAbsent(s.ctx, "twice", []byte("x"), "w")
	s.want(err, nil, false, "409 twice, then 200")
	s.wantCount("PUT", 3)

	s.server.Put("lost", "theirs", "other")
	s.server.SetScript(on("PUT", 4, conflict))
	_, err = store.PutIfAbsent(s.ctx, "lost", []byte("x"), "w")
	s.want(err, objectstore.ErrExists, false, "409, then 412")
	s.wantCount("PUT", 5)

	s.server.SetScript(on("PUT", 1000, conflict))
	_, err = store.PutIfAbsent(s.ctx, "endless", []byte("x"), "w")
	s.want(err, objectstore.ErrConflict, true, "409 without end")
	s.wantCount("PUT", 10)
	_, err = s.driver().PutIfAbsent(s.ctx, "bare", []byte("x"), "w")
	s.want(err, objectstore.ErrConflict, false, "a single 409")
}

// throttled: refused at the door, by the codes of several stores.
func throttled(s *suite) {
	store, retrying := s.driver(), s.retrying()
	for i, f := range []s3fake.Fault{{Status: 503, Code: "SlowDown"}, {Status: 429, Code: "TooManyRequests"}, {Status: 429}, {Status: 503, Code: "SlowDownWrite"}, {Status: 400, Code: "RequestLimitExceeded"}} {
		key := fmt.Sprint("k", i)
		s.server.SetScript(on("PUT", 1000, f))
		_, err := store.PutIfAbsent(s.ctx, key, []byte("x"), "w")
		s.want(err, objectstore.ErrThrottled, false, fmt.Sprintf("put answered %d %s", f.Status, f.Code))
		s.server.SetScript(on("PUT", s.server.Count("PUT")+3, f)) // a storm that passes
		_, err = retrying.PutIfAbsent(s.ctx, key, []byte("x"), "w")
		s.want(err, nil, false, "put through a storm")
		s.server.SetScript(on("GET", 1000, f))
		_, _, err = store.Get(s.ctx, key)
		s.want(err, objectstore.ErrThrottled, false, fmt.Sprintf("get answered %d %s", f.Status, f.Code))
		s.server.SetScript(nil)
	}
}

// definite: answers that say that nothing happened.
func definite(s *suite) {
	store := s.driver()
	for _, tc := range []struct {
		f     s3fake.Fault
		class error // nil: none of the contract's
	}{
		{s3fake.Fault{Status: 400, Code: "RequestTimeout"}, objectstore.ErrUnavailable},
		{s3fake.Fault{Status: 400, Code: "IncompleteBody"}, objectstore.ErrUnavailable},
		{s3fake.Fault{Status: 400, Code: "BadDigest"}, objectstore.ErrUnavailable},
		{s3fake.Fault{Status: 408}, objectstore.ErrUnavailable},
		{s3fake.Fault{Status: 507, Code: "XMinioStorageFull"}, objectstore.ErrUnavailable},
		{s3fake.Fault{Status: 501, Code: "NotImplemented"}, objectstore.ErrUnsupported},
		{s3fake.Fault{Status: 400, Code: "KeyTooLongError"}, objectstore.ErrInvalidKey},
		{s3fake.Fault{Status: 400, Code: "InvalidArgument"}, nil},
		{s3fake.Fault{Status: 403, Code: "AccessDenied"}, nil},
		{s3fake.Fault{Status: 404, Code: "NoSuchBucket"}, nil},
		{s3fake.Fault{Status: 413, Code: "EntityTooLarge"}, nil},
		{s3fake.Fault{Status: 301, Code: "PermanentRedirect"}, nil},
	} {
		s.server.SetScript(on("PUT", 1000, tc.f))
		_, err := store.PutIfAbsent(s.ctx, "k", []byte("x"), "w")
		if err == nil || objectstore.IsIndefinite(err) || tc.class != nil && !errors.Is(err, tc.class) {
			s.Errorf("put answered %d %s: %v, want definite, of class %v", tc.f.Status, tc.f.Code, err, tc.class)
		}
		if outcome := objectstore.OutcomeOf(err); tc.class == nil && outcome != objectstore.Other {
			s.Errorf("put answered %d %s: outcome %s, want other: trying again is of no use", tc.f.Status, tc.f.Code, outcome)
		}
	}
}

// putHangs: the deadline passes while the store is silent.
func putHangs(s *suite) {
	store := s.driver()
	s.server.SetScript(func(s3fake.Request) s3fake.Fault { return s3fake.Fault{Hang: true} })
	ctx, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancel()
	_, err := store.PutIfAbsent(ctx, "k", []byte("x"), "w")
	s.want(err, context.DeadlineExceeded, true, "put that hangs")
	_, _, err = store.Get(ctx, "k")
	s.want(err, context.DeadlineExceeded, false, "get after the deadline")
	ctx, cancel = context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancel()
	_, _, err = store.Get(ctx, "k")
	s.want(err, context.DeadlineExceeded, false, "get that hangs")
	ctx, cancel = context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancel()
	err = store.Delete(ctx, "k", "l")
	s.want(err, context.DeadlineExceeded, true, "delete that hangs")
}

// serverGone: no connection, so no effect.
func serverGone(s *suite) {
	store := s.driver()
	s.server.CloseClientConnections()
	s.server.Listener.Close()
	_, err := store.PutIfAbsent(s.ctx, "k", []byte("x"), "w")
	for objectstore.IsIndefinite(err) { // a kept connection that ended under the request
		_, err = store.PutIfAbsent(s.ctx, "k", []byte("x"), "w")
	}
	s.want(err, objectstore.ErrUnavailable, false, "put without a server")
	_, err = store.Stat(s.ctx, "k")
	s.want(err, objectstore.ErrUnavailable, false, "stat without a server")
	err = store.Delete(s.ctx, "k")
	s.want(err, objectstore.ErrUnavailable, false, "delete without a server")
	_, err = store.List(s.ctx, "", "", 10)
	s.want(err, objectstore.ErrUnavailable, false, "list without a server")
}

// deletedMeanwhile: the object that was in the way is gone when it is looked at.
func deletedMeanwhile(s *suite) {
	s.server.SetScript(on("PUT", 1, s3fake.Fault{Status: 412, Code: "PreconditionFailed"}))
	_, err := s.driver().PutIfAbsent(s.ctx, "k", []byte("x"), "w")
	s.want(err, objectstore.ErrConflict, false, "put beside an object that goes away")
	s.server.SetScript(on("PUT", 2, s3fake.Fault{Status: 412, Code: "PreconditionFailed"}))
	_, err = s.retrying().PutIfAbsent(s.ctx, "k", []byte("x"), "w")
	s.want(err, nil, false, "the same under the retry wrapper")
}

// matchAfterLostAnswer: a replacement whose answer was lost is recognised, and a 412 for an absent key is told apart.
func matchAfterLostAnswer(s *suite) {
	store := s.retrying()
	first, err := store.PutIfAbsent(s.ctx, "k", []byte("one"), "w1")
	s.want(err, nil, false, "put")
	s.server.SetScript(on("PUT", 2, s3fake.Fault{DropAfter: true}))
	second, err := store.PutIfMatch(s.ctx, "k", first.ETag, []byte("two"), "w2")
	s.want(err, nil, false, "replace whose answer is lost")
	if second.ID != "w2" || second.ETag == first.ETag {
		s.Errorf("info %+v after %+v", second, first)
	}
	s.wantBody("k", "two")
	_, err = store.PutIfMatch(s.ctx, "k", first.ETag, []byte("three"), "w3")
	s.want(err, objectstore.ErrPreconditionFailed, false, "replace of an old version")
	s.server.SetScript(on("PUT", 1000, s3fake.Fault{Status: 412, Code: "PreconditionFailed"}))
	_, err = store.PutIfMatch(s.ctx, "absent", first.ETag, []byte("x"), "w")
	s.want(err, objectstore.ErrNotFound, false, "replace of an absent object in a store that answers 412")
}
