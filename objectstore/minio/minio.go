package minio

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/jonboulle/clockwork"
	miniogo "github.com/minio/minio-go/v7"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3bucket"
)

var _ objectstore.Store = (*Store)(nil)

// Store is a bucket, or a prefix of one. Made by Open.
type Store struct{ *s3bucket.Store }

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Source == "" {
		o.Source = FromEnvironment
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Open finds the credentials and looks at the bucket. An absent or forbidden bucket is an error; a store that cannot be reached now is
// not: the first operations will tell, and they are tried again.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open minio bucket: %w", err)
	}
	creds, err := o.credentials()
	if err != nil {
		return nil, fmt.Errorf("open minio bucket: %w", err)
	}
	release := func() {}
	next := o.Transport
	if next == nil {
		own := s3bucket.NewHTTPTransport()
		next, release = own, own.CloseIdleConnections
	}
	lookup := miniogo.BucketLookupPath
	if o.VirtualHost {
		lookup = miniogo.BucketLookupDNS
	}
	watched := &s3bucket.Transport{Next: next}
	api, err := miniogo.New(o.Endpoint, &miniogo.Options{
		Creds: creds, Secure: !o.Plain, Region: o.Region, BucketLookup: lookup,
		Transport:  watched,
		MaxRetries: 1, // one request a call
	})
	if err == nil {
		err = checkBucket(ctx, api, o)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("open minio bucket: %w", err)
	}
	inner, err := s3bucket.New(s3bucket.Options{
		Client: &client{core: miniogo.Core{Client: api}, bucket: o.Bucket, plain: o.Plain},
		Rules:  &ruler{api: api, http: watched, o: o}, Bucket: o.Bucket, Prefix: o.Prefix,
		Remedy: remedy(o), Release: release, Clock: o.Clock,
	})
	if err != nil {
		release()
		return nil, fmt.Errorf("open minio bucket: %w", err)
	}
	return &Store{inner}, nil
}

func remedy(o Options) string {
	return fmt.Sprintf("make it (mc mb STORE/%s) or correct the name in the URL; create=true in the URL makes it, for local runs", o.Bucket)
}

// checkBucket asks for the bucket, and makes it where that is wanted.
func checkBucket(ctx context.Context, api *miniogo.Client, o Options) error {
	found, err := api.BucketExists(ctx, o.Bucket)
	switch {
	case err == nil && found:
		return nil
	case err == nil && o.Create:
		err := api.MakeBucket(ctx, o.Bucket, miniogo.MakeBucketOptions{Region: o.Region})
		if err == nil || miniogo.ToErrorResponse(err).Code == "BucketAlreadyOwnedByYou" { // another node was first
			return nil
		}
		return fmt.Errorf("create bucket %q: %w", o.Bucket, err)
	case err == nil:
		return fmt.Errorf("bucket %q does not exist at %s: %s", o.Bucket, o.Endpoint, remedy(o))
	case ctx.Err() != nil:
		return err
	}
	switch answer := miniogo.ToErrorResponse(err); answer.StatusCode {
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Errorf("access to bucket %q at %s is denied: check the credentials, and that they allow s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject",
			o.Bucket, o.Endpoint)
	case http.StatusMovedPermanently, http.StatusBadRequest:
		return fmt.Errorf("bucket %q: check the region, the endpoint and virtual-host: %w", o.Bucket, err)
	}
	o.Logger.Warn("the bucket cannot be checked now", slog.String("bucket", o.Bucket), slog.Any("error", err))
	return nil
}
