package etcd

import (
	"strings"
	"testing"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metatest"
)

func startServer(t testing.TB, c ServerConfig) *Server {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := StartServer(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
	})
	return s
}

func dial(t testing.TB, c ClientConfig) *Driver {
	t.Helper()
	d, err := Dial(t.Context(), c, DriverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEmbeddedConforms(t *testing.T) {
	metatest.Run(t, func(t *testing.T) metatest.Cluster {
		s := startServer(t, ServerConfig{})
		return metatest.ClusterFunc(func(t *testing.T) metadata.Driver { return s.Driver(t.Context(), DriverOptions{}) })
	})
}

func TestDialledConforms(t *testing.T) {
	metatest.Run(t, func(t *testing.T) metatest.Cluster {
		s := startServer(t, ServerConfig{ListenClient: "127.0.0.1:0"})
		return metatest.ClusterFunc(func(t *testing.T) metadata.Driver { return dial(t, ClientConfig{Endpoints: s.Endpoints()}) })
	})
}

func mentions(err error, what string) bool { return err != nil && strings.Contains(err.Error(), what) }
