package minio

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/jonboulle/clockwork"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/forebaymq/forebay/objectstore/internal/s3bucket"
)

// Sources of credentials.
const (
	FromEnvironment = "env"  // MINIO_ACCESS_KEY and MINIO_SECRET_KEY, else AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN
	FromSTS         = "sts"  // a role assumed with those of the environment, at the store's STS or another, and again before it ends
	FromMachine     = "iam"  // web identity token file, container or instance, and again before they end
	Anonymous       = "none" // requests are not signed
)

// Options of Open. Endpoint and Bucket are required; the zero value of everything else is the default.
type Options struct {
	// Endpoint is host:port of the store.
	Endpoint string
	// Bucket is the bucket's name.
	Bucket string
	// Prefix is put before every key; it ends in a slash. Default: none.
	Prefix string
	// Plain uses HTTP without TLS.
	Plain bool
	// Region for signatures. Default: us-east-1.
	Region string
	// VirtualHost puts the bucket into the host name, not into the path.
	VirtualHost bool
	// Create makes the bucket if it is absent: for local runs.
	Create bool
	// Source of the credentials. Default: FromEnvironment.
	Source string
	// RoleARN is the role of FromSTS. Default: none, which MinIO does not need.
	RoleARN string
	// STSEndpoint is the URL of the token service of FromSTS and of FromMachine's web identity. Default: the store itself for FromSTS,
	// Amazon's for FromMachine.
	STSEndpoint string
	// Credentials replace Source, for tests.
	Credentials *credentials.Credentials
	// Getenv reads the environment. Default: os.Getenv.
	Getenv func(string) string
	// Transport replaces the connections, for tests; the store does not close it. Default: the store's own.
	Transport http.RoundTripper
	// Clock is used where the store does not tell the time. Default: the real clock.
	Clock clockwork.Clock
	// Logger is told of what is odd at the start. Default: discards.
	Logger *slog.Logger
}

// Validate reports every fault by field. It expects the defaults to be set.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("options."+format, args...))
		}
	}
	check(o.Endpoint != "" && !strings.ContainsAny(o.Endpoint, "/@?# "), "Endpoint: %q is not host:port", o.Endpoint)
	check(o.Bucket != "" && !strings.ContainsAny(o.Bucket, "/:@? "), "Bucket: %q is no name of a bucket", o.Bucket)
	check(!strings.HasSuffix(o.Bucket, "--x-s3"), "Bucket: %s is a directory bucket of Amazon: use s3://%s", o.Bucket, o.Bucket)
	if err := s3bucket.ValidatePrefix(o.Prefix); err != nil {
		errs = append(errs, fmt.Errorf("options.Prefix: %w", err))
	}
	switch o.Source {
	case FromEnvironment, FromSTS, FromMachine, Anonymous:
	default:
		check(false, "Source: %q, want %s, %s, %s or %s", o.Source, FromEnvironment, FromSTS, FromMachine, Anonymous)
	}
	if o.STSEndpoint != "" {
		u, err := url.Parse(o.STSEndpoint)
		check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "STSEndpoint: %q is not http://host:port or https://host", o.STSEndpoint)
	}
	check(o.Source == FromSTS || o.RoleARN == "", "RoleARN: is for credentials=%s only", FromSTS)
	check(o.Source == FromSTS || o.Source == FromMachine || o.STSEndpoint == "", "STSEndpoint: is for credentials=%s and %s only", FromSTS, FromMachine)
	return errors.Join(errs...)
}

// FromURL reads minio://host:port/bucket/prefix?secure=false&create=true&region=R&virtual-host=true&credentials=env.
func FromURL(u *url.URL, query url.Values) (Options, error) {
	if u.User != nil {
		return Options{}, errors.New("credentials come from the environment (MINIO_ACCESS_KEY and the like), not from the URL")
	}
	bucket, path, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Host == "" || bucket == "" {
		return Options{}, errors.New("no bucket: want minio://host:port/bucket or minio://host:port/bucket/prefix")
	}
	prefix, err := s3bucket.PrefixOf(path)
	if err != nil {
		return Options{}, fmt.Errorf("prefix: %w", err)
	}
	q := s3bucket.NewSettings(query)
	o := Options{
		Endpoint: u.Host, Bucket: bucket, Prefix: prefix, Plain: !q.Bool("secure", true), Region: q.Text("region"),
		VirtualHost: q.Bool("virtual-host", false), Create: q.Bool("create", false),
		Source: q.Text("credentials"), RoleARN: q.Text("role-arn"), STSEndpoint: q.Text("sts-endpoint"),
	}
	return o, q.Err()
}
