package s3test

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/objectstore/storetest"
)

// Versitygw is the name of the server that Start starts by itself.
const Versitygw = "versitygw"

// Server is a running S3 server.
type Server struct {
	Name           string // versitygw, moto, localstack, ...
	URL            string // http://host:port
	Access, Secret string
}

// Start gives a server for the length of the test, and puts its credentials into the environment.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{Name: Versitygw, Access: rootAccess, Secret: rootSecret}
	if s.URL = os.Getenv("FOREBAY_TEST_S3"); s.URL != "" {
		s.Name = env("FOREBAY_TEST_S3_NAME", "unnamed")
		s.Access, s.Secret = env("AWS_ACCESS_KEY_ID", "test"), env("AWS_SECRET_ACCESS_KEY", "test")
	} else {
		s.URL = startVersity(t, t.TempDir())
	}
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": s.Access, "AWS_SECRET_ACCESS_KEY": s.Secret, "AWS_SESSION_TOKEN": "",
		"MINIO_ACCESS_KEY": s.Access, "MINIO_SECRET_KEY": s.Secret,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	return s
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// Bucket gives a name that no other test has, nor had in an earlier run on the same server.
func (s *Server) Bucket() string {
	return "forebay-" + strings.ToLower(rand.Text())
}

// S3URL is the URL of a bucket for the s3 driver. The bucket is made when it is opened.
func (s *Server) S3URL(bucket string) string {
	return fmt.Sprintf("s3://%s?region=us-east-1&path-style=true&create=true&endpoint=%s", bucket, url.QueryEscape(s.URL))
}

// MinioURL is the same for the minio driver.
func (s *Server) MinioURL(bucket string) string {
	return fmt.Sprintf("minio://%s/%s?secure=false&create=true", strings.TrimPrefix(s.URL, "http://"), bucket)
}

// Lacks says what a server is known to lack, for the conformance suite; docs/object-stores.md has the same as a table.
func (s *Server) Lacks() storetest.Options {
	switch s.Name {
	case Versitygw:
		return storetest.Options{NoKeyBelowKey: true}
	case "minio":
		return storetest.Options{HidesKeyBelowKey: true, NoDotPrefix: true}
	case "moto":
		return storetest.Options{RacyConditions: true}
	case "localstack":
		return storetest.Options{PlainKeys: true}
	}
	return storetest.Options{}
}
