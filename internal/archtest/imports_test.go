// Package archtest holds the import table of the design: imports go down only.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/forebaymq/forebay"

// allowed lists, per package (a prefix: subpackages are included), the packages of this module that its shipped code may import.
// Keep it in step with the file map in DESIGN.md. The longest matching prefix decides.
var allowed = map[string][]string{
	"api":                   {},
	"internal/failpoint":    {},
	"segment":               {},
	"objectstore":           {"objectstore", "internal/failpoint"},
	"metadata":              {"api", "internal/failpoint", "objectstore", "segment", "metadata"},
	"ingest":                {"api", "internal/failpoint", "segment", "objectstore", "metadata"},
	"fetch":                 {"api", "internal/failpoint", "segment", "objectstore", "metadata"},
	"leases":                {"api", "internal/failpoint", "segment", "metadata", "leases"},
	"compactor":             {"api", "internal/failpoint", "segment", "objectstore", "metadata"},
	"regions":               {"api", "internal/failpoint", "segment", "objectstore", "metadata", "client"},
	"client":                {"api"},
	"client/outbox":         {"api", "client"},
	"client/inbox":          {"api", "client"},
	"gateway":               {"api", "internal/failpoint", "gateway", "segment", "metadata", "ingest", "fetch", "leases"},
	"gateway/auth":          {"api"},
	"gateway/wire":          {"api", "segment", "metadata", "leases"},
	"metadata/metatest":     {"api", "metadata", "segment", "objectstore"},
	"internal/archtest":     {},
	"internal/proof":        {"*"},
	"internal":              {"*"}, // wiring and its helpers: nothing below imports them
	"cmd/forebay":           {"*"},
	"infra":                 {},
	"localstack":            {},
	"objectstore/storetest": {"objectstore"},
}

// external lists third-party packages that only the named packages may import, with what to use elsewhere.
var external = []struct {
	prefix string
	only   []string
	use    string
}{
	{"go.etcd.io/etcd/", []string{"metadata/etcd"}, "the metadata.Driver contract"},
	{"github.com/redis/go-redis", []string{"leases/store"}, "the lease store contract"},
	{"github.com/aws/aws-sdk-go-v2", []string{"objectstore"}, "objectstore.Store"},
	{"github.com/minio/minio-go", []string{"objectstore"}, "objectstore.Store"},
	{"github.com/labstack/echo", []string{"gateway"}, "the gateway's own interfaces"},
	{"github.com/golang-jwt/jwt", []string{"gateway/auth"}, "auth.Authenticator"},
	{"github.com/jackc/pgx", []string{"internal/pgtest", "client/examples"}, "database/sql: whoever uses the package brings the driver"},
	{"github.com/alecthomas/kong", []string{"cmd/forebay", "internal/config"}, "a config struct"},
}

// bytesOnly packages may import the standard library and these modules only.
var bytesOnly = map[string][]string{
	"segment": {"github.com/klauspost/compress", "github.com/oklog/ulid"},
	"api":     {"google.golang.org/protobuf"}, // generated code in api/forebay/v1; the test below keeps api itself bare
}

type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
	ForTest    string
	Module     *struct{ Path string }
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Standard,Module", module+"/...")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(out); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	return pkgs
}

func within(p, prefix string) bool { return p == prefix || strings.HasPrefix(p, prefix+"/") }

// rule gives the longest key of the table that covers p.
func rule(p string) (string, bool) {
	best, found := "", false
	for k := range allowed {
		if within(p, k) && len(k) >= len(best) {
			best, found = k, true
		}
	}
	return best, found
}

func TestImportsGoDownOnly(t *testing.T) {
	ours := 0
	for _, p := range list(t) {
		rel, ok := strings.CutPrefix(p.ImportPath, module+"/")
		if !ok {
			continue
		}
		ours++
		key, known := rule(rel)
		if !known {
			t.Errorf("package %s is not in the import table: add it to internal/archtest and to the file map in DESIGN.md", rel)
			continue
		}
		for _, imp := range p.Imports {
			if dep, isOurs := strings.CutPrefix(imp, module+"/"); isOurs {
				if !permitted(rel, key, dep) {
					t.Errorf("%s imports %s: %s may import only %v; declare a small interface where it is consumed and wire it in cmd/forebay", rel, dep, key, allowed[key])
				}
				continue
			}
			checkExternal(t, rel, imp)
		}
	}
	if ours < 5 {
		t.Fatalf("go list found only %d of our packages: the test sees nothing", ours)
	}
}

func permitted(rel, key, dep string) bool {
	if within(dep, key) && key != "gateway" {
		return true // a package and its own subpackages
	}
	for _, a := range allowed[key] {
		if a == "*" || within(dep, a) {
			// metadata's drivers and test suites are wired, not imported, by the packages above.
			if a == "metadata" && !within(rel, "metadata") && dep != "metadata" {
				return false
			}
			return true
		}
	}
	return false
}

func checkExternal(t *testing.T, rel, imp string) {
	t.Helper()
	if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
		return // standard library
	}
	for _, e := range external {
		if strings.HasPrefix(imp, e.prefix) && !slices.ContainsFunc(e.only, func(o string) bool { return within(rel, o) }) {
			t.Errorf("%s imports %s: only %v may; use %s", rel, imp, e.only, e.use)
		}
	}
	for root, mods := range bytesOnly {
		if within(rel, root) && !slices.ContainsFunc(mods, func(m string) bool { return strings.HasPrefix(imp, m) }) {
			t.Errorf("%s imports %s: it may import the standard library and %v only", rel, imp, mods)
		}
	}
	if rel == "api" {
		t.Errorf("api imports %s: it may import the standard library only", imp)
	}
}
