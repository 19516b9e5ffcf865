package localstack

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/forebaymq/forebay/objectstore/minio"
	"github.com/forebaymq/forebay/objectstore/s3"
)

type composeFile struct {
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Image       string
	Build       map[string]string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Profiles    []string
	Privileged  bool
	NetworkMode string                                `yaml:"network_mode"`
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct {
		Test              []string
		Interval, Timeout string
		Retries           int
		Disable           bool
	}
}

// build builds forebay once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "forebay-localstack-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "forebay")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/forebay").CombinedOutput(); err != nil {
		return path, fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if path, _ := build(); path != "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// TestCompose holds the compose files to what makes a local run safe and repeatable, since no engine runs them here.
func TestCompose(t *testing.T) {
	forebay := binary(t)
	for _, name := range []string{"compose.minio.yaml", "compose.localstack.yaml"} {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var f composeFile
			if err := yaml.Unmarshal(b, &f); err != nil {
				t.Fatal(err)
			}
			var etcds, plain, three int
			used := map[string]bool{}
			for name, s := range f.Services {
				s.check(t, f, name, used)
				switch {
				case strings.HasPrefix(name, "etcd"):
					etcds++
					checkEtcd(t, name, s)
				case strings.HasPrefix(name, "node"):
					checkNode(t, forebay, name, s)
					if slices.Equal(s.Profiles, []string{"three"}) {
						three++
					} else if len(s.Profiles) == 0 {
						plain++
					}
				}
			}
			if etcds != 3 || plain != 1 || three != 2 {
				t.Errorf("%d etcd members, %d nodes and %d more in the profile, want 3, 1 and 2", etcds, plain, three)
			}
			if _, ok := f.Services["redis"]; !ok {
				t.Error("no redis")
			}
			for v := range f.Volumes {
				if !used[v] {
					t.Errorf("volume %s is not used", v)
				}
			}
		})
	}
}

func (s service) check(t *testing.T, f composeFile, name string, used map[string]bool) {
	t.Helper()
	image, tag, found := strings.Cut(s.Image, ":")
	if s.Build == nil && (!found || tag == "latest" || !regexp.MustCompile(`\d+\.\d+|\d{4}-\d\d-\d\d`).MatchString(tag)) {
		t.Errorf("%s: image %s is not pinned by a version (%s)", name, s.Image, image)
	}
	h := s.Healthcheck
	if h.Disable || len(h.Test) < 2 || h.Test[0] != "CMD" || h.Interval == "" || h.Timeout == "" || h.Retries == 0 {
		t.Errorf("%s: no full healthcheck: %+v", name, h)
	}
	for _, p := range s.Ports {
		if !strings.HasPrefix(p, "127.0.0.1:") || strings.Count(p, ":") != 2 {
			t.Errorf("%s: port %s is not open on 127.0.0.1 only", name, p)
		}
	}
	if s.Privileged || s.NetworkMode != "" {
		t.Errorf("%s: privileged or on the host's network", name)
	}
	if len(s.Volumes) == 0 {
		t.Errorf("%s: no volume: its state ends with its container", name)
	}
	for _, v := range s.Volumes {
		volume, path, _ := strings.Cut(v, ":")
		if _, declared := f.Volumes[volume]; !declared || !strings.HasPrefix(path, "/") {
			t.Errorf("%s: %s is no named volume", name, v)
		}
		used[volume] = true
	}
	for on, d := range s.DependsOn {
		if _, ok := f.Services[on]; !ok || d.Condition != "service_healthy" {
			t.Errorf("%s: depends on %s: %s", name, on, d.Condition)
		}
	}
}

// checkEtcd holds the image to the version that the module is built with, and the members to one list of them.
func checkEtcd(t *testing.T, name string, s service) {
	t.Helper()
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(s.Image, ":")
	if !strings.Contains(string(mod), "go.etcd.io/etcd/server/v3 "+version) {
		t.Errorf("%s: image %s is not the version of go.mod", name, s.Image)
	}
	for _, want := range []string{"--name=" + name, "--advertise-client-urls=http://" + name + ":2379", "--initial-advertise-peer-urls=http://" + name + ":2380",
		"--initial-cluster=etcd1=http://etcd1:2380,etcd2=http://etcd2:2380,etcd3=http://etcd3:2380"} {
		if !slices.Contains(s.Command, want) {
			t.Errorf("%s: no %s in %q", name, want, s.Command)
		}
	}
}

// checkNode has the real command line take a node's flags, and the driver its store.
func checkNode(t *testing.T, forebay, name string, s service) {
	t.Helper()
	if s.Build["dockerfile"] != "localstack/Dockerfile" || s.Build["context"] != ".." {
		t.Errorf("%s: built from %v", name, s.Build)
	}
	if len(s.Command) == 0 || s.Command[0] != "serve" {
		t.Fatalf("%s: command %q, want serve", name, s.Command)
	}
	cmd := exec.Command(forebay, append([]string{"config"}, s.Command...)...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: forebay does not take %q: %v\n%s", name, s.Command, err, out)
	}
	for _, arg := range s.Command {
		raw, found := strings.CutPrefix(arg, "--object-store=")
		if !found {
			continue
		}
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		needs := []string{"MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"}
		if u.Scheme == "s3" {
			needs = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
			o, parseErr := s3.FromURL(u, u.Query())
			err = parseErr
			if err == nil {
				err = o.WithDefaults().Validate()
			}
		} else {
			o, parseErr := minio.FromURL(u, u.Query())
			err = parseErr
			if err == nil {
				err = o.WithDefaults().Validate()
			}
		}
		if err != nil {
			t.Errorf("%s: %s: %v", name, raw, err)
		}
		for _, variable := range needs {
			if s.Environment[variable] == "" {
				t.Errorf("%s: no %s for %s", name, variable, raw)
			}
		}
	}
}
