package s3

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/forebaymq/forebay/objectstore/internal/s3bucket"
)

var _ s3bucket.Client = (*client)(nil)

// client makes single requests through the SDK.
type client struct {
	api    *awss3.Client
	bucket string
}

// Put implements s3bucket.Client.
func (c *client) Put(ctx context.Context, in s3bucket.Put) (string, error) {
	req := &awss3.PutObjectInput{
		Bucket: aws.String(c.bucket), Key: aws.String(in.Key),
		Body: bytes.NewReader(in.Body), ContentLength: aws.Int64(int64(len(in.Body))), ContentType: aws.String("application/octet-stream"),
		ChecksumCRC32C: aws.String(in.CRC), Metadata: map[string]string{s3bucket.MetaID: in.ID},
	}
	if in.Match == "" {
		req.IfNoneMatch = aws.String("*")
	} else {
		req.IfMatch = aws.String(`"` + in.Match + `"`)
	}
	out, err := c.api.PutObject(ctx, req, awss3.WithAPIOptions(v4.UseDynamicPayloadSigningMiddleware))
	if err != nil {
		return "", err
	}
	return unquote(out.ETag), nil
}

// Get implements s3bucket.Client.
func (c *client) Get(ctx context.Context, key, byteRange string) (*s3bucket.Object, error) {
	in := &awss3.GetObjectInput{Bucket: aws.String(c.bucket), Key: aws.String(key)}
	if byteRange != "" {
		in.Range = aws.String(byteRange)
	} else {
		in.ChecksumMode = types.ChecksumModeEnabled // the answer then carries it; s3bucket compares
	}
	out, err := c.api.GetObject(ctx, in)
	if err != nil {
		return nil, err
	}
	o := &s3bucket.Object{
		Meta:         meta(out.ContentLength, out.ETag, out.LastModified, out.Metadata),
		ContentRange: aws.ToString(out.ContentRange), Body: out.Body,
	}
	if out.ChecksumType != types.ChecksumTypeComposite {
		o.CRC = aws.ToString(out.ChecksumCRC32C)
	}
	return o, nil
}

// Head implements s3bucket.Client.
func (c *client) Head(ctx context.Context, key string) (s3bucket.Meta, error) {
	out, err := c.api.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: aws.String(c.bucket), Key: aws.String(key)})
	if err != nil {
		return s3bucket.Meta{}, err
	}
	return meta(out.ContentLength, out.ETag, out.LastModified, out.Metadata), nil
}

func meta(size *int64, etag *string, modified *time.Time, user map[string]string) s3bucket.Meta {
	m := s3bucket.Meta{Size: -1, ETag: unquote(etag), Modified: aws.ToTime(modified), ID: user[s3bucket.MetaID]}
	if size != nil {
		m.Size = *size
	}
	return m
}

// List implements s3bucket.Client.
func (c *client) List(ctx context.Context, in s3bucket.List) (s3bucket.ListPage, error) {
	req := &awss3.ListObjectsV2Input{
		Bucket: aws.String(c.bucket), Prefix: optional(in.Prefix), StartAfter: optional(in.StartAfter), ContinuationToken: optional(in.Token),
		MaxKeys: aws.Int32(int32(in.Limit)), EncodingType: types.EncodingTypeUrl, // XML cannot carry every character of a key
	}
	out, err := c.api.ListObjectsV2(ctx, req)
	if err != nil {
		return s3bucket.ListPage{}, err
	}
	page := s3bucket.ListPage{Objects: make([]s3bucket.Listed, 0, len(out.Contents))}
	for _, o := range out.Contents {
		key := aws.ToString(o.Key)
		if out.EncodingType == types.EncodingTypeUrl {
			if key, err = url.QueryUnescape(key); err != nil {
				return s3bucket.ListPage{}, err
			}
		}
		l := s3bucket.Listed{Key: key, Size: -1, ETag: unquote(o.ETag), Modified: aws.ToTime(o.LastModified)}
		if o.Size != nil {
			l.Size = *o.Size
		}
		page.Objects = append(page.Objects, l)
	}
	if aws.ToBool(out.IsTruncated) {
		if page.Token = aws.ToString(out.NextContinuationToken); page.Token == "" {
			return s3bucket.ListPage{}, errors.New("a list says that there is more, and not how to go on")
		}
	}
	return page, nil
}

// Delete implements s3bucket.Client.
func (c *client) Delete(ctx context.Context, keys []string) ([]s3bucket.Deleted, error) {
	objects := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		objects[i].Key = &keys[i]
	}
	// Not quiet: only a key that the answer names is known to be gone.
	out, err := c.api.DeleteObjects(ctx, &awss3.DeleteObjectsInput{Bucket: aws.String(c.bucket), Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(false)}})
	if err != nil {
		return nil, err
	}
	answers := make([]s3bucket.Deleted, 0, len(keys))
	for _, e := range out.Errors {
		d := s3bucket.Deleted{Key: aws.ToString(e.Key), Code: aws.ToString(e.Code), Message: aws.ToString(e.Message)}
		if d.Code == "" {
			d.Code = "Unknown" // an error without a code is one all the same
		}
		answers = append(answers, d)
	}
	for _, d := range out.Deleted {
		answers = append(answers, s3bucket.Deleted{Key: aws.ToString(d.Key)})
	}
	return answers, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func unquote(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }
