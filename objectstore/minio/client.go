package minio

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	miniogo "github.com/minio/minio-go/v7"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3bucket"
)

var _ s3bucket.Client = (*client)(nil)

// client makes single requests through minio-go.
type client struct {
	core   miniogo.Core
	bucket string
	plain  bool // no TLS: the signature covers the body
}

// Put implements s3bucket.Client.
func (c *client) Put(ctx context.Context, in s3bucket.Put) (string, error) {
	if strings.TrimSpace(in.Key) == "" {
		return "", fmt.Errorf("%w: minio-go takes no key of spaces only", objectstore.ErrInvalidKey)
	}
	o := miniogo.PutObjectOptions{
		UserMetadata: map[string]string{s3bucket.MetaID: in.ID, "x-amz-checksum-crc32c": in.CRC},
		// The library would otherwise cut the body into signed chunks, or add a checksum of its own behind it.
		DisableContentSha256: true, DisableMultipart: true,
	}
	if in.Match == "" {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(in.Match)
	}
	ctx, cancel := s3bucket.StopAtFailure(ctx)
	defer cancel()
	sum := "" // over TLS the body is not signed
	if c.plain {
		digest := sha256.Sum256(in.Body)
		sum = hex.EncodeToString(digest[:])
	}
	out, err := c.core.PutObject(ctx, c.bucket, in.Key, bytes.NewReader(in.Body), int64(len(in.Body)), "", sum, o)
	return out.ETag, err
}

// Get implements s3bucket.Client.
func (c *client) Get(ctx context.Context, key, byteRange string) (*s3bucket.Object, error) {
	var o miniogo.GetObjectOptions
	if byteRange != "" {
		o.Set("Range", byteRange)
	} else {
		o.Set("X-Amz-Checksum-Mode", "ENABLED") // the answer then carries it; s3bucket compares
	}
	ctx, cancel := s3bucket.StopAtFailure(ctx)
	body, info, header, err := c.core.GetObject(ctx, c.bucket, key, o)
	if err != nil {
		cancel()
		return nil, err
	}
	obj := &s3bucket.Object{Meta: meta(info), ContentRange: header.Get("Content-Range"), Body: cancelling{body, cancel}}
	if info.ChecksumMode != "COMPOSITE" {
		obj.CRC = info.ChecksumCRC32C
	}
	return obj, nil
}

// cancelling ends the context of a body with it.
type cancelling struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b cancelling) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// Head implements s3bucket.Client.
func (c *client) Head(ctx context.Context, key string) (s3bucket.Meta, error) {
	ctx, cancel := s3bucket.StopAtFailure(ctx)
	defer cancel()
	info, err := c.core.StatObject(ctx, c.bucket, key, miniogo.StatObjectOptions{})
	if err != nil {
		return s3bucket.Meta{}, err
	}
	return meta(info), nil
}

func meta(i miniogo.ObjectInfo) s3bucket.Meta {
	m := s3bucket.Meta{Size: i.Size, ETag: i.ETag, Modified: i.LastModified}
	// The library keeps the header's spelling, which is Go's: Forebay-Id.
	if values := i.Metadata.Values("X-Amz-Meta-" + s3bucket.MetaID); len(values) > 0 {
		m.ID = values[0]
	}
	return m
}

// List implements s3bucket.Client. The library pages by itself and gives objects one by one; a list that is not whole ends with the last
// of them, from where the next page starts.
func (c *client) List(ctx context.Context, in s3bucket.List) (s3bucket.ListPage, error) {
	start := in.StartAfter
	if in.Token != "" {
		start = in.Token
	}
	listCtx, cancel := s3bucket.StopAtFailure(ctx)
	defer cancel()
	var page s3bucket.ListPage
	for o := range c.core.ListObjectsIter(listCtx, c.bucket, miniogo.ListObjectsOptions{Prefix: in.Prefix, StartAfter: start, MaxKeys: in.Limit, Recursive: true}) {
		if o.Err != nil {
			return s3bucket.ListPage{}, o.Err
		}
		if len(page.Objects) == in.Limit {
			page.Token = page.Objects[in.Limit-1].Key
			return page, nil
		}
		page.Objects = append(page.Objects, s3bucket.Listed{Key: o.Key, Size: o.Size, ETag: o.ETag, Modified: o.LastModified})
		if len(page.Objects) < in.Limit {
			continue
		}
		// Full. If this took one answer, the answer says whether there is more; else the next object will tell.
		more, answers := s3bucket.More(ctx)
		if answers == 1 {
			if more {
				page.Token = o.Key
			}
			return page, nil
		}
	}
	return page, listCtx.Err() // the library ends without a word when the context does
}

// Delete implements s3bucket.Client.
func (c *client) Delete(ctx context.Context, keys []string) ([]s3bucket.Deleted, error) {
	ctx, cancel := s3bucket.StopAtFailure(ctx)
	defer cancel()
	results, err := c.core.RemoveObjectsWithIter(ctx, c.bucket, objects(keys), miniogo.RemoveObjectsOptions{})
	if err != nil {
		return nil, err
	}
	answers := make([]s3bucket.Deleted, 0, len(keys))
	for r := range results {
		d := s3bucket.Deleted{Key: r.ObjectName}
		if r.Err != nil {
			answer := miniogo.ToErrorResponse(r.Err)
			if s3bucket.Answered(ctx) != 200 || r.ObjectName == "" {
				return nil, r.Err // of the whole request: the library tells it for each key
			}
			if d.Code, d.Message = answer.Code, answer.Message; d.Code == "" {
				d.Code = "Unknown" // an error without a code is one all the same
			}
		}
		answers = append(answers, d)
	}
	return answers, nil
}

func objects(keys []string) iter.Seq[miniogo.ObjectInfo] {
	return func(yield func(miniogo.ObjectInfo) bool) {
		for key := range slices.Values(keys) {
			if !yield(miniogo.ObjectInfo{Key: key}) {
				return
			}
		}
	}
}
