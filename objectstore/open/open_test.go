package open_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/objectstore/file"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/objectstore/open"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, tc := range []struct{ url, folder string }{
		{"file://" + dir + "/abs", dir + "/abs"},
		{"file://localhost" + dir + "/host", dir + "/host"},
		{"file:" + dir + "/one-slash", dir + "/one-slash"},
		{"file:rel/ative", dir + "/rel/ative"},
		{"file:with%20space", dir + "/with space"},
		{"mem:", ""},
	} {
		s, err := open.Open(t.Context(), tc.url, open.Options{})
		if err != nil {
			t.Errorf("%s: %v", tc.url, err)
			continue
		}
		if _, err := s.PutIfAbsent(t.Context(), "x", []byte("y"), "w"); err != nil {
			t.Errorf("%s: %v", tc.url, err)
		}
		switch s.(type) {
		case *file.Store:
			if got, err := os.ReadFile(filepath.Join(tc.folder, "x")); err != nil || string(got) != "y" {
				t.Errorf("%s: object is not in %s: %v", tc.url, tc.folder, err)
			}
		case *mem.Store:
			if tc.folder != "" {
				t.Errorf("%s opened a memory store", tc.url)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", tc.url, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	for url, want := range map[string]string{
		"":                                     "file, mem, minio, s3",
		"/tmp/x":                               "file, mem, minio, s3",
		"ftp://x":                              `unknown scheme "ftp", want one of file, mem, minio, s3`,
		"ftp://u:secret@x":                     "u:xxxxx@x",
		"file:":                                "no folder",
		"file://":                              "no folder",
		"file://tmp/x":                         "three slashes",
		"file://me@/tmp/x":                     "no user",
		"file:///tmp/x?sync=no":                "unknown settings: sync",
		"file:///tmp/x#y":                      "unexpected #y",
		"mem:?a=1&b=2":                         "unknown settings: a, b",
		"mem://host":                           "no address",
		"mem:x":                                "no address",
		"mem:/x":                               "no address",
		"mem:?a=%zz":                           "invalid URL escape",
		"%zz":                                  "invalid URL escape",
		"file:///dev/null/x":                   "not a directory",
		"s3:":                                  "no bucket",
		"s3:///key":                            "no bucket",
		"s3://k:s@b":                           "credentials come from the environment",
		"s3://b/a//b":                          "empty element",
		"s3://b?regoin=x&a=1":                  "unknown settings: a, regoin; known are create, endpoint, path-style, region",
		"s3://b?path-style=ja":                 "path-style=ja: want true or false",
		"s3://b?region=":                       "region is empty",
		"s3://b?region=a&region=b":             "region is given 2 times",
		"s3://b?endpoint=localhost:9000":       "not http://host:port",
		"s3://b?endpoint=http://k:s@h":         "credentials come from the environment",
		"s3://b--x--x-s3?region=r&create=true": "a directory bucket is not made here",
		"minio:":                               "no bucket",
		"minio://host:9000":                    "no bucket",
		"minio://k:s@host/b":                   "credentials come from the environment",
		"minio://host/b/../c":                  `element ".."`,
		"minio://host/b?tls=no":                "unknown settings: tls; known are create, credentials, region, role-arn, secure, sts-endpoint, virtual-host",
		"minio://host/b?credentials=file":      `"file", want env, sts, iam or none`,
		"minio://host/b?role-arn=r&credentials=none":    "RoleARN: is for credentials=sts only",
		"minio://host/b?credentials=sts&sts-endpoint=x": "not http://host:port",
		"minio://host/b--x--x-s3":                       "use s3://b--x--x-s3",
		"minio://127.0.0.1:1/b?secure=false":            "set MINIO_ACCESS_KEY",
	} {
		s, err := open.Open(t.Context(), url, open.Options{})
		if err == nil {
			s.Close()
			t.Errorf("%q opened", url)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %q does not say %q", url, err, want)
		}
	}
}

// TestSettingsAreDocumented compares the tables of docs/object-stores.md with what the drivers take.
func TestSettingsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/object-stores.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, url := range map[string]string{"### `s3://`": "s3://b?none=1", "### `minio://`": "minio://h/b?none=1"} {
		_, section, found := strings.Cut(string(b), heading+"\n")
		if !found {
			t.Fatalf("no section %s", heading)
		}
		section, _, _ = strings.Cut(section, "\n#")
		var documented []string
		for line := range strings.Lines(section) {
			if name, ok := strings.CutPrefix(line, "| `"); ok {
				name, _, _ = strings.Cut(name, "`")
				documented = append(documented, name)
			}
		}
		slices.Sort(documented)
		_, err := open.Open(t.Context(), url, open.Options{})
		if err == nil {
			t.Fatalf("%s opened", url)
		}
		if _, known, _ := strings.Cut(err.Error(), "known are "); known != strings.Join(documented, ", ") {
			t.Errorf("%s documents %q, known are %q", heading, documented, known)
		}
	}
}
