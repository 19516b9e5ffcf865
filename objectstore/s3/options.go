package s3

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/objectstore/internal/s3bucket"
)

// Options of Open. Bucket is required; the zero value of everything else is the default.
type Options struct {
	// Bucket is the bucket's name.
	Bucket string
	// Prefix is put before every key; it ends in a slash. Default: none.
	Prefix string
	// Region of the bucket. Default: what the SDK finds (AWS_REGION, shared configuration); with an Endpoint, us-east-1.
	Region string
	// Endpoint is the URL of a store other than Amazon's. Default: Amazon's of the region, or AWS_ENDPOINT_URL_S3.
	Endpoint string
	// PathStyle puts the bucket into the path, not into the host name: for stores whose host has no wildcard name.
	PathStyle bool
	// Create makes the bucket if it is absent: for local runs.
	Create bool
	// Credentials replace the default chain, for tests.
	Credentials aws.CredentialsProvider
	// Transport replaces the connections, for tests; the store does not close it. Default: the store's own.
	Transport http.RoundTripper
	// Clock is used where the store does not tell the time. Default: the real clock.
	Clock clockwork.Clock
	// Logger is told of what is odd at the start. Default: discards.
	Logger *slog.Logger
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.Region == "" && o.Endpoint != "" {
		o.Region = "us-east-1"
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every fault by field.
func (o Options) Validate() error {
	var errs []error
	if o.Bucket == "" {
		errs = append(errs, errors.New("options.Bucket: is required"))
	}
	if strings.ContainsAny(o.Bucket, "/:@? ") {
		errs = append(errs, fmt.Errorf("options.Bucket: %q is no name of a bucket", o.Bucket))
	}
	if err := s3bucket.ValidatePrefix(o.Prefix); err != nil {
		errs = append(errs, fmt.Errorf("options.Prefix: %w", err))
	}
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("options.Endpoint: %q is not http://host:port or https://host", o.Endpoint))
		} else if u.User != nil {
			errs = append(errs, errors.New("options.Endpoint: credentials come from the environment, not from the URL"))
		}
	}
	if o.Create && o.directory() {
		errs = append(errs, errors.New("options.Create: a directory bucket is not made here; make it with its zone beforehand"))
	}
	return errors.Join(errs...)
}

// directory says whether the bucket is a directory bucket (S3 Express One Zone), which its name tells.
func (o Options) directory() bool { return strings.HasSuffix(o.Bucket, "--x-s3") }

// FromURL reads s3://bucket/prefix?region=R&endpoint=URL&path-style=true&create=true.
func FromURL(u *url.URL, query url.Values) (Options, error) {
	if u.User != nil {
		return Options{}, errors.New("credentials come from the environment (AWS_ACCESS_KEY_ID and the like), not from the URL")
	}
	if u.Host == "" || u.Opaque != "" {
		return Options{}, errors.New("no bucket: want s3://bucket or s3://bucket/prefix")
	}
	prefix, err := s3bucket.PrefixOf(u.Path)
	if err != nil {
		return Options{}, fmt.Errorf("prefix: %w", err)
	}
	q := s3bucket.NewSettings(query)
	o := Options{
		Bucket: u.Host, Prefix: prefix, Region: q.Text("region"), Endpoint: q.Text("endpoint"),
		PathStyle: q.Bool("path-style", false), Create: q.Bool("create", false),
	}
	return o, q.Err()
}
