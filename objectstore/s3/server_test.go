package s3_test

import (
	"testing"

	"github.com/forebaymq/forebay/internal/s3test"
)

func TestConformance(t *testing.T) {
	s3test.Conformance(t, (*s3test.Server).S3URL)
}

func TestLifecycleRules(t *testing.T) { s3test.LifecycleRules(t, (*s3test.Server).S3URL) }

func BenchmarkStore(b *testing.B) { s3test.BenchmarkStore(b, (*s3test.Server).S3URL) }
