package s3_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
	"github.com/forebaymq/forebay/objectstore/internal/s3suite"
	"github.com/forebaymq/forebay/objectstore/s3"
)

func options(server *s3fake.Server) s3.Options {
	return s3.Options{
		Bucket: s3fake.Bucket, Endpoint: server.URL, Region: "eu-north-1", PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("access", "secret", ""),
	}
}

func openFake(ctx context.Context, server *s3fake.Server, setup s3suite.Setup) (objectstore.Store, error) {
	o := options(server)
	o.Create, o.Transport = setup.Create, setup.Transport
	s, err := s3.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func TestFaults(t *testing.T) { s3suite.Run(t, openFake) }
