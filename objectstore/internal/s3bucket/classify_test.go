package s3bucket

import (
	"errors"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
)

// TestAnswerClass has a row for each answer that is treated by itself. What the drivers make of them is tested in package s3suite.
func TestAnswerClass(t *testing.T) {
	for _, tc := range []struct {
		status   int
		code     string
		ofKey    bool
		class    error
		definite bool
	}{
		{400, "", true, nil, true},
		{400, "RequestTimeout", true, objectstore.ErrUnavailable, true},
		{400, "BadDigest", true, objectstore.ErrUnavailable, true},
		{400, "SlowDown", true, objectstore.ErrThrottled, true},
		{401, "", true, errDenied, true},
		{403, "SignatureDoesNotMatch", true, errDenied, true},
		{404, "NoSuchKey", true, objectstore.ErrNotFound, true},
		{404, "", true, objectstore.ErrNotFound, true}, // HEAD
		{404, "", false, errNoBucket, true},
		{404, "NoSuchBucket", true, errNoBucket, true},
		{408, "", true, objectstore.ErrUnavailable, true},
		{409, "ConditionalRequestConflict", true, objectstore.ErrConflict, true},
		{412, "PreconditionFailed", true, objectstore.ErrPreconditionFailed, true},
		{416, "InvalidRange", true, objectstore.ErrInvalidRange, true},
		{429, "", true, objectstore.ErrThrottled, true},
		{500, "InternalError", true, objectstore.ErrUnavailable, false},
		{501, "NotImplemented", true, objectstore.ErrUnsupported, true},
		{502, "", true, objectstore.ErrUnavailable, false},
		{503, "SlowDown", true, objectstore.ErrThrottled, true},
		{503, "ServiceUnavailable", true, objectstore.ErrThrottled, false},
		{503, "", true, objectstore.ErrThrottled, false}, // a balancer's
		{504, "", true, objectstore.ErrUnavailable, false},
		{507, "XMinioStorageFull", true, objectstore.ErrUnavailable, true},
		{599, "", true, objectstore.ErrUnavailable, false},
	} {
		class, definite := answerClass(tc.status, tc.code, tc.ofKey)
		if !errors.Is(class, tc.class) || tc.class == nil && class != nil || definite != tc.definite {
			t.Errorf("%d %s (of a key: %v): %v, definite %v; want %v, %v", tc.status, tc.code, tc.ofKey, class, definite, tc.class, tc.definite)
		}
	}
}
