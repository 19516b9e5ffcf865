// Package metatest is the conformance suite of metadata.Driver. A driver's test calls Run; each subtest takes a fresh, empty store, and gets
// several connections to it where the driver can make them.
package metatest
