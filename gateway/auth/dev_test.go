package auth

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

func TestLoadOrCreateDevKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if _, err := LoadDevKey(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no key yet: %v", err)
	}
	// Processes that start at once agree on one key.
	keys := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			key, err := LoadOrCreateDevKey(dir)
			if err != nil {
				t.Error(err)
			}
			keys[i] = key
		})
	}
	wg.Wait()
	for _, key := range keys {
		if len(key) != 32 || !bytes.Equal(key, keys[0]) || bytes.Equal(key, make([]byte, 32)) {
			t.Fatalf("%x", keys)
		}
	}
	path := filepath.Join(dir, "dev.key")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	other, err := LoadOrCreateDevKey(t.TempDir())
	if err != nil || bytes.Equal(other, keys[0]) {
		t.Errorf("another folder has the same key: %v", err)
	}

	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateDevKey(dir); err == nil {
		t.Error("a key that others may read is accepted")
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 16); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateDevKey(dir); err == nil {
		t.Error("half a key is accepted")
	}
	if err := errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path)); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateDevKey(dir); err == nil {
		t.Error("a link is accepted")
	}
}

func TestSignDev(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	clock := clockwork.NewFakeClockAt(start)
	v, err := NewVerifier(Options{Clock: clock, Development: true, Issuers: []Issuer{DevIssuer(key)}})
	if err != nil {
		t.Fatal(err)
	}
	token, err := SignDev(key, Claims{Tenant: "demo", Subject: "me", Scope: "admin", NotBefore: start, Expires: start.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Authenticate(t.Context(), token)
	if err != nil || p.Tenant != "demo" || p.Subject != "me" || len(p.Scopes) != 1 || p.Scopes[0] != "admin" || p.Issuer != DevIssuerName {
		t.Errorf("%+v, %v", p, err)
	}
	foreign, err := SignDev(bytes.Repeat([]byte{8}, 32), Claims{Tenant: "demo", Subject: "me", Expires: start.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "another key", v, foreign)
	if _, err := SignDev(nil, Claims{}); err == nil {
		t.Error("signed with an empty key")
	}
}
