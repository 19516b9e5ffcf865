package config

import "regexp"

// A tag `secret:"url"` says that a setting is a URL, or a list of them, whose credentials are secret and whose rest is not.
const secretURL = "url"

var (
	// userInfo takes everything up to the last @: a password may hold one, and what it hides too much does no harm.
	userInfo = regexp.MustCompile(`//.*@`)
	// secretQuery are parameters that are named after a secret.
	secretQuery = regexp.MustCompile(`(?i)([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&,]*`)
)

// RedactURL hides the user, the password and parameters named after a secret in a URL or a list of URLs.
func RedactURL(s string) string {
	s = userInfo.ReplaceAllString(s, "//"+Redacted+"@")
	return secretQuery.ReplaceAllString(s, "${1}"+Redacted)
}
