package auth

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// What development tokens carry.
const (
	DevIssuerName = "forebay-dev"
	DevAudience   = "forebay"
)

const (
	devKeyFile  = "dev.key"
	devKeyBytes = 32
)

// DevIssuer accepts the tokens that SignDev makes with key. Its verifier needs Options.Development.
func DevIssuer(key []byte) Issuer {
	return Issuer{Name: DevIssuerName, Audiences: []string{DevAudience}, Keys: StaticKeys{DevKey(key)}}
}

// DevKey is an HS256 key. Whoever can verify with it can sign with it too, hence for development only.
func DevKey(secret []byte) Key {
	if len(secret) == 0 {
		return Key{Algorithm: "HS256"} // an empty secret verifies nothing
	}
	return Key{Algorithm: "HS256", material: append([]byte(nil), secret...)}
}

// LoadOrCreateDevKey returns the development key of dir, 32 random bytes in a file that only its owner may read. It is made, durably,
// when it is not there; of several processes that do so at once, all get the same key. A file of another length, or one that others
// may read, is an error.
func LoadOrCreateDevKey(dir string) ([]byte, error) {
	key, err := LoadDevKey(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create development key: %w", err)
	}
	if err := createDevKey(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create development key: %w", err)
	}
	return LoadDevKey(dir) // ours, or that of the process which was first
}

// LoadDevKey returns the development key of dir; errors.Is(err, fs.ErrNotExist) where there is none.
func LoadDevKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, devKeyFile)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("load development key: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("load development key: %s must be a file that only its owner may read (mode 0600)", path)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load development key: %w", err)
	}
	if len(key) != devKeyBytes {
		return nil, fmt.Errorf("load development key: %s has %d bytes instead of %d; remove it to have a new one made", path, len(key), devKeyBytes)
	}
	return key, nil
}

// createDevKey writes the whole key under another name and links it into place, which fails where a key exists: no reader ever sees half
// a key, and nobody replaces one.
func createDevKey(dir string) (err error) {
	tmp, err := os.CreateTemp(dir, devKeyFile+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(tmp.Name())) }()
	key := make([]byte, devKeyBytes)
	_, err = rand.Read(key)
	if err == nil {
		_, err = tmp.Write(key)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), filepath.Join(dir, devKeyFile)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Claims are what a development token says.
type Claims struct {
	Tenant    string
	Subject   string
	Scope     string    // names separated by spaces, "" = not restricted
	NotBefore time.Time // zero = none
	Expires   time.Time
}

// SignDev makes a development token.
func SignDev(key []byte, c Claims) (string, error) {
	if len(key) == 0 {
		return "", errors.New("sign development token: the key is empty")
	}
	claims := jwt.MapClaims{
		"iss":              DevIssuerName,
		"aud":              DevAudience,
		"sub":              c.Subject,
		DefaultTenantClaim: c.Tenant,
		"exp":              c.Expires.Unix(),
	}
	if c.Scope != "" {
		claims["scope"] = c.Scope
	}
	if !c.NotBefore.IsZero() {
		claims["nbf"] = c.NotBefore.Unix()
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign development token: %w", err)
	}
	return token, nil
}
