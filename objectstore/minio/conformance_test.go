package minio_test

import (
	"testing"

	"github.com/forebaymq/forebay/internal/s3test"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/open"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

func TestConformance(t *testing.T) {
	server := s3test.Start(t)
	lacks := server.Lacks()
	lacks.NoBlankKey = true // of the library
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		s, err := open.Open(t.Context(), server.MinioURL(server.Bucket()), open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, lacks)
}
