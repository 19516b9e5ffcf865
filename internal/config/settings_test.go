package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

type testCLI struct {
	Config string `name:"config"`
	Serve  struct {
		Listen string        `default:"127.0.0.1:1"`
		Linger time.Duration `default:"50ms"`
		Size   Bytes         `default:"8MiB"`
		Etcd   []string
		Token  string `secret:""`
		Faults string `hidden:""`
	} `cmd:""`
	Other struct {
		Elsewhere int
	} `cmd:""`
}

func parse(t *testing.T, environ []string, file string, args ...string) (*testCLI, *Settings, *kong.Context, error) {
	t.Helper()
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "forebay.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load(environ, path, "FOREBAY_FAILPOINTS")
	if err != nil {
		return nil, nil, nil, err
	}
	cli := &testCLI{}
	k, err := kong.New(cli, kong.Resolvers(s), kong.Exit(func(int) { t.Fatal("exit") }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := k.Parse(append([]string{"serve"}, args...))
	return cli, s, ctx, err
}

func TestPrecedence(t *testing.T) {
	const file = "listen: file:1\nlinger: 1s\nsize: 010KiB\netcd: [a:1, 'b,c:2']\nelsewhere: 3\n"
	cli, s, ctx, err := parse(t, []string{"FOREBAY_LINGER=2s", "FOREBAY_LISTEN=env:1", "HOME=/", "FOREBAY_FAILPOINTS=x"}, file, "--listen=flag:1", "--token=hush")
	if err != nil {
		t.Fatal(err)
	}
	if cli.Serve.Listen != "flag:1" || cli.Serve.Linger != 2*time.Second || cli.Serve.Size != 10<<10 {
		t.Errorf("got %+v", cli.Serve)
	}
	if diff := cmp.Diff([]string{"a:1", "b,c:2"}, cli.Serve.Etcd); diff != "" {
		t.Error(diff)
	}
	want := []Value{
		{"listen", "FOREBAY_LISTEN", "flag:1", FromFlag},
		{"linger", "FOREBAY_LINGER", "2s", FromEnv},
		{"size", "FOREBAY_SIZE", "10KiB", FromFile},
		{"etcd", "FOREBAY_ETCD", []string{"a:1", "b,c:2"}, FromFile},
		{"token", "FOREBAY_TOKEN", Redacted, FromFlag},
	}
	if diff := cmp.Diff(want, s.Effective(ctx)); diff != "" {
		t.Error(diff)
	}
}

func TestDefaults(t *testing.T) {
	_, s, ctx, err := parse(t, nil, "# nothing\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range s.Effective(ctx) {
		if v.Source != FromDefault {
			t.Errorf("%s comes from %s", v.Name, v.Source)
		}
		if v.Name == "faults" {
			t.Error("a hidden flag that nobody set is shown")
		}
	}
}

func TestUnknownSettingsAreNamed(t *testing.T) {
	cases := []struct {
		name    string
		environ []string
		file    string
		want    []string
	}{
		{"key", nil, "lingr: 1s\n", []string{`unknown key "lingr"`, "did you mean linger?"}},
		{"variable", []string{"FOREBAY_LISTN=x"}, "", []string{"unknown variable FOREBAY_LISTN", "did you mean FOREBAY_LISTEN?"}},
		{"both at once", []string{"FOREBAY_A_THING_OF_ITS_OWN=x"}, "zzz: 1\n", []string{"FOREBAY_A_THING_OF_ITS_OWN", `"zzz"`}},
		{"the file cannot name a file", nil, "config: other.yaml\n", []string{`unknown key "config"`}},
		{"nested", nil, "serve:\n  listen: x\n", []string{"line 2", "not nested"}},
		{"null", nil, "linger:\n", []string{"linger", "no value"}},
		{"twice", nil, "linger: 1s\nlinger: 2s\n", []string{"line 2", "set twice"}},
		{"not a mapping", nil, "- a\n", []string{"want a mapping"}},
		{"not YAML", nil, "a: [\n", []string{"yaml"}},
		{"bad value", nil, "linger: soon\n", []string{"linger", "soon"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, _, err := parse(t, c.environ, c.file)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := Load(nil, filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Fatal("a file that is not there was accepted")
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "1": 1, "8MiB": 8 << 20, "8mb": 8e6, "1.5KiB": 1536} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%s: got %d, %v", text, b, err)
		}
	}
	for _, text := range []string{"", "-1", "many", "99999999999999999999"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was accepted as %d", text, b)
		}
	}
	for _, b := range []Bytes{0, 1, 1023, 1024, 1025, 8 << 20, 3 << 40} {
		var back Bytes
		if err := back.UnmarshalText([]byte(b.String())); err != nil || back != b {
			t.Errorf("%d is written %s and read %d, %v", b, b, back, err)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"linger", "lingr", 1}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%s to %s: %d", c.a, c.b, got)
		}
	}
}
