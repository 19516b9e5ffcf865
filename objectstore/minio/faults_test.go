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
		Endpoint: server.Listener.Addr().String(), Bucket: s3fake.Bucket, Plain: strings.HasPrefix(server.URL, "http://"),
		Credentials: credentials.NewStaticV4("access", "secret", ""),
	}
}

func openFake(ctx context.Context, server *s3fake.Server, setup s3suite.Setup) (objectstore.Store, error) {
	o := options(server)
	o.Create, o.Transport = setup.Create, setup.Transport
	s, err := minio.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func TestFaults(t *testing.T) { s3suite.Run(t, openFake) }
