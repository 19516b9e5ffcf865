package minio_test

import (
	"testing"

	"github.com/forebaymq/forebay/internal/s3test"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

func TestConformance(t *testing.T) {
	s3test.Conformance(t, (*s3test.Server).MinioURL, func(lacks *storetest.Options) {
		lacks.NoBlankKey = true // of the library
	})
}

func TestLifecycleRules(t *testing.T) { s3test.LifecycleRules(t, (*s3test.Server).MinioURL) }

func BenchmarkStore(b *testing.B) { s3test.BenchmarkStore(b, (*s3test.Server).MinioURL) }
