package minio_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
	"github.com/forebaymq/forebay/objectstore/minio"
)

// keyOf opens a store with credentials from an environment and gives the key and session token that a put was signed with.
func keyOf(t *testing.T, o minio.Options, env map[string]string) (key, session string) {
	t.Helper()
	server := s3fake.New(t)
	o.Endpoint, o.Bucket, o.Plain = server.Listener.Addr().String(), s3fake.Bucket, true
	o.Getenv = func(name string) string { return env[name] }
	s, err := minio.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.PutIfAbsent(t.Context(), "k", []byte("x"), "w"); err != nil {
		t.Fatal(err)
	}
	for _, r := range server.Log() {
		if r.Op == "PUT" {
			_, after, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
			key, _, _ = strings.Cut(after, "/")
			return key, r.Header.Get("X-Amz-Security-Token")
		}
	}
	t.Fatal("no put arrived")
	return "", ""
}

// sts is a token service that gives keys named after who asks.
func sts(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		action := r.Form.Get("Action")
		fmt.Fprintf(w, `<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials><AccessKeyId>%[2]s</AccessKeyId>`+
			`<SecretAccessKey>s</SecretAccessKey><SessionToken>token of %[2]s</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></%[1]sResult></%[1]sResponse>`,
			action, "KEYOF"+strings.ToUpper(action))
	}))
	t.Cleanup(server.Close)
	return server
}

func TestCredentials(t *testing.T) {
	aws := map[string]string{"AWS_ACCESS_KEY_ID": "AWSKEY", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "aws session"}
	both := map[string]string{"MINIO_ACCESS_KEY": "MINIOKEY", "MINIO_SECRET_KEY": "s"}
	for name, value := range aws {
		both[name] = value
	}
	service := sts(t)
	for _, tc := range []struct {
		name         string
		o            minio.Options
		env          map[string]string
		key, session string
	}{
		{"MinIO's variables first", minio.Options{}, both, "MINIOKEY", ""},
		{"Amazon's variables", minio.Options{}, aws, "AWSKEY", "aws session"},
		{"nobody", minio.Options{Source: minio.Anonymous}, both, "", ""},
		{"a role", minio.Options{Source: minio.FromSTS, STSEndpoint: service.URL, RoleARN: "arn:x"}, both, "KEYOFASSUMEROLE", "token of KEYOFASSUMEROLE"},
	} {
		if key, session := keyOf(t, tc.o, tc.env); key != tc.key || session != tc.session {
			t.Errorf("%s: key %q, session %q, want %q, %q", tc.name, key, session, tc.key, tc.session)
		}
	}
	// The library reads the variables of the machine's identity itself.
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("web identity"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:x")
	if key, session := keyOf(t, minio.Options{Source: minio.FromMachine, STSEndpoint: service.URL}, nil); key != "KEYOFASSUMEROLEWITHWEBIDENTITY" || session != "token of "+key {
		t.Errorf("web identity: key %q, session %q", key, session)
	}
}
