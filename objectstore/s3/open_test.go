package s3_test

import (
	"strings"
	"testing"

	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
	"github.com/forebaymq/forebay/objectstore/internal/s3suite"
	"github.com/forebaymq/forebay/objectstore/s3"
)

// cleanEnv keeps what the machine has configured for AWS out of a test.
func cleanEnv(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "",
	} {
		t.Setenv(name, value)
	}
}

// TestEnvironment: credentials, region and endpoint come from where the SDK's users expect them.
func TestEnvironment(t *testing.T) {
	cleanEnv(t)
	server := s3fake.New(t)
	if _, err := s3.Open(t.Context(), s3.Options{Bucket: s3fake.Bucket}); err == nil || !strings.Contains(err.Error(), "no region") {
		t.Errorf("open without a region: %v", err)
	}
	t.Setenv("AWS_REGION", "eu-west-3")
	if _, err := s3.Open(t.Context(), s3.Options{Bucket: s3fake.Bucket, Endpoint: server.URL, PathStyle: true}); err == nil {
		t.Error("open without credentials succeeded")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "KEYOFENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	t.Setenv("AWS_ENDPOINT_URL_S3", server.URL)
	s, err := s3.Open(t.Context(), s3.Options{Bucket: s3fake.Bucket, PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.PutIfAbsent(t.Context(), "k", []byte("x"), "w"); err != nil {
		t.Fatal(err)
	}
	for _, r := range server.Log() {
		if r.Op != "PUT" {
			continue
		}
		if auth := r.Header.Get("Authorization"); !strings.Contains(auth, "KEYOFENV/") || !strings.Contains(auth, "/eu-west-3/s3/") || r.Header.Get("X-Amz-Security-Token") != "session" {
			t.Errorf("headers of a put: %v", r.Header)
		}
	}
}

func TestWrongRegion(t *testing.T) {
	server := s3fake.New(t)
	server.Region = "ap-south-1"
	_, err := openFake(t.Context(), server, s3suite.Setup{})
	if err == nil || !strings.Contains(err.Error(), "region=ap-south-1") {
		t.Errorf("open of a bucket elsewhere: %v, want the region to set", err)
	}
}
