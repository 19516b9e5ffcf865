package proof

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/internal/s3test"
)

// single is a fabric with one node that is killed and started again on the same data.
type single struct {
	rest, ops string // addresses of the node
	tokenFile string
	boot      func(failpoints string) *process // starts the node and waits until it is ready
}

// client speaks to the node.
func (s *single) client(t *testing.T) *rest {
	t.Helper()
	return newRest("http://"+s.rest, token(t, s.tokenFile))
}

// onFiles is the embedded fabric.
func onFiles(ctx context.Context, t *testing.T) *single {
	dir := t.TempDir()
	addrs := ports(t, 2)
	return &single{rest: addrs[0], ops: addrs[1], tokenFile: filepath.Join(dir, "token"),
		boot: func(failpoints string) *process { return startDev(ctx, t, dir, addrs, failpoints) }}
}

// onServer is a node and an etcd member, over a real S3 server that lives on when the node is killed. url makes the URL of a new bucket.
func onServer(ctx context.Context, t *testing.T, url func(*s3test.Server, string) string) *single {
	t.Helper()
	server := s3test.Start(t)
	store := url(server, server.Bucket())
	env := []string{"AWS_ACCESS_KEY_ID=" + server.Access, "AWS_SECRET_ACCESS_KEY=" + server.Secret, "AWS_EC2_METADATA_DISABLED=true"}
	dir := t.TempDir()
	addrs := ports(t, 4)
	s := &single{rest: addrs[0], ops: addrs[1], tokenFile: filepath.Join(dir, "token")}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "token", "--data", dir, "--tenant", "proof", "--subject", "checker")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // not the settings of this test: forebay refuses variables that it does not know
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("make token: %v", err)
	}
	if err := os.WriteFile(s.tokenFile, []byte(strings.TrimSpace(string(out))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "etcd", "", nil, "etcd", "--name", "m0", "--data", filepath.Join(dir, "etcd"), "--listen-client", addrs[2], "--listen-peer", addrs[3])
	s.boot = func(failpoints string) *process {
		t.Helper()
		p := start(t, "node", s.ops, append([]string{"FOREBAY_FAILPOINTS=" + failpoints}, env...), "serve", "--node-id", "n0", "--listen", s.rest,
			"--ops-listen", s.ops, "--object-store", store, "--etcd", addrs[2], "--dev-key", filepath.Join(dir, "dev.key"))
		if err := p.ready(ctx); err != nil {
			t.Fatal(err)
		}
		return p
	}
	return s
}
