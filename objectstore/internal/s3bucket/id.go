package s3bucket

import "net/url"

// MetaID is the name of the user metadata that holds the writer's ID, escaped: header x-amz-meta-forebay-id.
const MetaID = "forebay-id"

// escapeID makes a value that survives as a header: no spaces, which headers lose at the ends and signatures fold inside. ULIDs and the
// like stay as they are.
func escapeID(id string) string { return url.QueryEscape(id) }

// unescapeID gives "" for what is not ours.
func unescapeID(value string) string {
	id, err := url.QueryUnescape(value)
	if err != nil {
		return ""
	}
	return id
}
