// Package s3fake is a small S3 server for tests that misbehaves on demand: it drops connections before or after the effect of a request,
// answers errors, cuts bodies, hides errors in answers 200, ignores conditions. It keeps one bucket in memory and checks no signature.
package s3fake
