package minio_test

import (
	"context"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
	"github.com/forebaymq/forebay/objectstore/internal/s3suite"
	"github.com/forebaymq/forebay/objectstore/minio"
)

func options(server *s3fake.Server) minio.Options {
	return minio.Options{
		Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: s3fake.Bucket, Plain: true,
		Credentials: credentials.NewStaticV4("access", "secret", ""),
	}
}

func openFake(ctx context.Context, server *s3fake.Server) (objectstore.Store, error) {
	s, err := minio.Open(ctx, options(server))
	if err != nil {
		return nil, err
	}
	return s, nil
}

func TestFaults(t *testing.T) { s3suite.Run(t, openFake) }
