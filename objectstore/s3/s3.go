package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3bucket"
)

var _ objectstore.Store = (*Store)(nil)

// Store is a bucket, or a prefix of one. Made by Open.
type Store struct{ *s3bucket.Store }

// Open finds the credentials and looks at the bucket. An absent or forbidden bucket, or one of another region, is an error; a store that
// cannot be reached now is not: the first operations will tell, and they are tried again.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open s3 bucket: %w", err)
	}
	api, release, err := connect(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open s3 bucket: %w", err)
	}
	err = checkBucket(ctx, api, o)
	if err != nil {
		release()
		return nil, fmt.Errorf("open s3 bucket: %w", err)
	}
	c := &client{api: api, bucket: o.Bucket}
	inner, err := s3bucket.New(s3bucket.Options{
		Client: c, Rules: c, Bucket: o.Bucket, Prefix: o.Prefix, Remedy: remedy(o),
		Unordered: o.directory(), Release: release, Clock: o.Clock,
	})
	if err != nil {
		release()
		return nil, fmt.Errorf("open s3 bucket: %w", err)
	}
	return &Store{inner}, nil
}

// noRedirect leaves a redirect to its caller: a signed request is good for one host only.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// connect makes the client. release closes its connections.
func connect(ctx context.Context, o Options) (api *awss3.Client, release func(), err error) {
	// The configuration may add to the transport (AWS_CA_BUNDLE), so it gets the library's kind of client, set as ours are.
	load := []func(*config.LoadOptions) error{config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(s3bucket.Tune))}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(o.Credentials))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, nil, errors.New("no region: add region= to the URL, or set AWS_REGION")
	}
	next, release := o.Transport, func() {}
	if next == nil {
		own, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
		if !ok {
			return nil, nil, fmt.Errorf("load AWS configuration: it brings an HTTP client %T of its own", cfg.HTTPClient)
		}
		transport := own.GetTransport()
		next, release = transport, transport.CloseIdleConnections
	}
	api = awss3.NewFromConfig(cfg, func(s *awss3.Options) {
		s.HTTPClient = &http.Client{Transport: &s3bucket.Transport{Next: next}, CheckRedirect: noRedirect}
		s.Retryer = aws.NopRetryer{}
		s.UsePathStyle = o.PathStyle
		if o.Endpoint != "" {
			s.BaseEndpoint = aws.String(o.Endpoint)
		}
		// Checksums are computed and compared in s3bucket: once, and for both drivers alike.
		s.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		s.DisableLogOutputChecksumValidationSkipped = true
	})
	return api, release, nil
}

func remedy(o Options) string {
	create := fmt.Sprintf("make it (aws s3 mb s3://%s) or correct the name in the URL", o.Bucket)
	if !o.directory() {
		create += "; create=true in the URL makes it, for local runs"
	}
	return create
}

// checkBucket asks for the bucket, and makes it where that is wanted.
func checkBucket(ctx context.Context, api *awss3.Client, o Options) error {
	_, err := api.HeadBucket(ctx, &awss3.HeadBucketInput{Bucket: aws.String(o.Bucket)})
	var resp *smithyhttp.ResponseError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err
	case !errors.As(err, &resp):
		var status interface{ HTTPStatusCode() int }
		if !errors.As(err, &status) && isLocal(err) {
			return err
		}
		o.Logger.Warn("the bucket cannot be checked now", slog.String("bucket", o.Bucket), slog.Any("error", err))
		return nil
	}
	switch status := resp.HTTPStatusCode(); {
	case status == http.StatusNotFound && o.Create:
		return createBucket(ctx, api, o)
	case status == http.StatusNotFound:
		return fmt.Errorf("bucket %q does not exist: %s", o.Bucket, remedy(o))
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return fmt.Errorf("access to bucket %q is denied: check the credentials, and that they allow s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject", o.Bucket)
	case status == http.StatusMovedPermanently, status == http.StatusBadRequest:
		if there := resp.Response.Header.Get("X-Amz-Bucket-Region"); there != "" && there != api.Options().Region {
			return fmt.Errorf("bucket %q is in region %s, not in %s: set region=%s in the URL", o.Bucket, there, api.Options().Region, there)
		}
		return fmt.Errorf("bucket %q: the store answered %s to HeadBucket: check the region, the endpoint and path-style", o.Bucket, resp.Response.Status)
	default:
		o.Logger.Warn("the bucket cannot be checked now", slog.String("bucket", o.Bucket), slog.String("status", resp.Response.Status))
		return nil
	}
}

// isLocal says whether a request failed before it was sent, for a reason that does not pass: no credentials, an impossible endpoint.
func isLocal(err error) bool {
	var send *smithyhttp.RequestSendError
	return !errors.As(err, &send)
}

func createBucket(ctx context.Context, api *awss3.Client, o Options) error {
	in := &awss3.CreateBucketInput{Bucket: aws.String(o.Bucket)}
	if region := api.Options().Region; region != "us-east-1" {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(region)}
	}
	_, err := api.CreateBucket(ctx, in)
	var owned *types.BucketAlreadyOwnedByYou
	if err == nil || errors.As(err, &owned) { // another node was first
		return nil
	}
	return fmt.Errorf("create bucket %q: %w", o.Bucket, err)
}
