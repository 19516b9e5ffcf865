// Package auth says who sends a request and what they may do.
//
// # Concepts
//
//   - A token is a JWT in the Authorization header (FromHeader). Its issuer is configured with its audiences, its keys and the name of
//     the claim that holds the tenant. Whatever of that is not met is UNAUTHENTICATED.
//   - A Principal is what a verified token says: tenant, issuer, subject, scopes. The tenant of a request is always the
//     principal's, never something in a path, a header or a body.
//   - An Operation on a Resource is permitted or refused by an Authorizer: FORBIDDEN.
//
// # Keys and algorithms
//
// A key carries the one algorithm that it is used with. The algorithm in a token's header only has to agree with it: a public key can
// never be taken for an HMAC secret, and "none" is no key's algorithm. HMAC keys (HS256) exist for development alone; a verifier
// refuses them unless Options.Development is set. A KeySource is where keys come from: a fixed list today, a JWKS document later.
//
// # Scopes
//
// The claim "scope" (names separated by spaces) restricts a token; see TenantAuthorizer for what each scope permits.
//
// # Concurrency
//
// A TokenVerifier and a TenantAuthorizer may be used by many goroutines at once, and start none. Principals are shared: read only.
package auth
