package s3bucket

import (
	"context"
	"io"
	"time"
)

// Client makes single requests to one bucket. Keys are full keys, prefix included. Errors are the library's own; what they mean Store reads
// from the Call that Transport filled.
type Client interface {
	// Put writes an object if Put.Match allows it, and gives its ETag without quotes.
	Put(ctx context.Context, in Put) (etag string, err error)
	// Get reads an object or, with a Range header such as "bytes=0-9", a part of it.
	Get(ctx context.Context, key, byteRange string) (*Object, error)
	// Head reads what Get says about the object, without the body.
	Head(ctx context.Context, key string) (Meta, error)
	// List reads one page.
	List(ctx context.Context, in List) (ListPage, error)
	// Delete removes at most 1000 keys in one request and gives the store's answer for each key.
	Delete(ctx context.Context, keys []string) ([]Deleted, error)
}

// Put is one conditional PUT.
type Put struct {
	Key   string
	Body  []byte
	CRC   string // CRC-32C of Body, as in the header x-amz-checksum-crc32c
	ID    string // for the metadata MetaID
	Match string // ETag without quotes for If-Match; "" is If-None-Match: *
}

// Meta describes an object as its response headers do.
type Meta struct {
	Size     int64 // of what the answer carries: for a range, of the range; -1 = not said
	ETag     string
	Modified time.Time
	ID       string // value of the metadata MetaID
	CRC      string // CRC-32C of the whole object, "" = not said
}

// Object is an open answer to Get. Body must be closed.
type Object struct {
	Meta
	ContentRange string // header; "" = the whole object
	Body         io.ReadCloser
}

// List asks for one page.
type List struct {
	Prefix, StartAfter, Token string
	Limit                     int
}

// ListPage is the answer.
type ListPage struct {
	Objects []Listed
	Token   string // of the next page; "" = the last one
}

// Listed is one object of a list. Size -1 and a zero time mean that the store did not say.
type Listed struct {
	Key      string
	Size     int64
	ETag     string
	Modified time.Time
}

// Deleted is what the store said about one key of a delete.
type Deleted struct {
	Key           string
	Code, Message string // "" = gone
}
