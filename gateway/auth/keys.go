package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

// Key verifies the signatures of one algorithm. Made by ParsePublicKey or DevKey; the zero value verifies nothing.
type Key struct {
	ID        string // "kid"; "" = the key has none
	Algorithm string // "RS256", "PS512", "ES384", "EdDSA", ...: of the key, whatever a token says
	material  jwt.VerificationKey
}

// KeySource is where the keys of one issuer come from.
type KeySource interface {
	// Keys returns the keys that may have signed a token which names kid ("" = it names none): few, since each is tried. No key is no
	// error. An error that is an *api.Error goes to the client as it is; any other becomes UNAUTHENTICATED.
	Keys(ctx context.Context, kid string) ([]Key, error)
}

// StaticKeys is a fixed list of keys. A token with a kid is verified by the key of that ID, or by keys without one.
type StaticKeys []Key

var _ KeySource = StaticKeys{}

// Keys implements KeySource.
func (s StaticKeys) Keys(_ context.Context, kid string) ([]Key, error) {
	if kid == "" {
		return s, nil
	}
	var named, unnamed []Key
	for _, k := range s {
		switch k.ID {
		case kid:
			named = append(named, k)
		case "":
			unnamed = append(unnamed, k)
		}
	}
	if named != nil {
		return named, nil
	}
	return unnamed, nil
}

// minRSABits is what RFC 7518 section 3.3 requires.
const minRSABits = 2048

// ParsePublicKey reads one public key, or a certificate, in PEM (PKIX or PKCS#1). algorithm "" takes what goes with the key: RS256 for RSA, ES256,
// ES384 or ES512 by the curve, EdDSA for Ed25519. An RSA key may be given any RS or PS algorithm. kid may be "".
func ParsePublicKey(text []byte, algorithm, kid string) (Key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return Key{}, errors.New("parse public key: no PEM block")
	}
	public, err := publicKey(block)
	if err != nil {
		return Key{}, fmt.Errorf("parse public key: %w", err)
	}
	var fits []string // the first is the default
	switch k := public.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return Key{}, fmt.Errorf("parse public key: an RSA key needs at least %d bits, this one has %d", minRSABits, k.N.BitLen())
		}
		fits = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			fits = []string{"ES256"}
		case elliptic.P384():
			fits = []string{"ES384"}
		case elliptic.P521():
			fits = []string{"ES512"}
		}
	case ed25519.PublicKey:
		fits = []string{"EdDSA"}
	}
	if fits == nil {
		return Key{}, errors.New("parse public key: use RSA, ECDSA on P-256, P-384 or P-521, or Ed25519")
	}
	if algorithm == "" {
		algorithm = fits[0]
	}
	if !slices.Contains(fits, algorithm) {
		return Key{}, fmt.Errorf("parse public key: algorithm %s does not go with the key; use one of %v", algorithm, fits)
	}
	return Key{ID: kid, Algorithm: algorithm, material: public}, nil
}

func publicKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	default:
		return nil, fmt.Errorf("a PEM block of type %q is not a public key", block.Type)
	}
}
