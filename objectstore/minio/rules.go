package minio

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"

	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3bucket"
)

var _ s3bucket.Ruler = (*ruler)(nil)

// ruler reads and writes lifecycle rules as XML. The library's own form of a rule has room for one transition where a rule may have
// several, so that writing back what it read would change the rules of others.
type ruler struct {
	api  *miniogo.Client
	http http.RoundTripper
	o    Options
}

// rule is a <Rule>. Inner is all of it.
type rule struct {
	Inner  string `xml:",innerxml"`
	ID     string
	Prefix *string // where there is no Filter
	Filter *struct {
		Prefix string
		Tag    *struct{}
		And    *struct {
			Prefix string
			Tag    []struct{}
		}
	}
	Expiration *struct {
		Days int
		Date string
	}
	Transition []struct {
		Days         int
		Date         string
		StorageClass string
	}
	Status string
}

// tagged says whether a rule is about objects with tags. Ours have none.
func (r rule) tagged() bool {
	f := r.Filter
	return f != nil && (f.Tag != nil || f.And != nil && len(f.And.Tag) > 0)
}

// archive gives the first archive class that a rule moves objects such as ours to, and the age at which it does; a date is told as one day.
// Tiers of MinIO have names of their own and can be read from.
func (r rule) archive() (class string, days int) {
	for _, t := range r.Transition {
		d := t.Days
		if t.Date != "" {
			d = 1
		}
		if objectstore.Archive(t.StorageClass) && !r.tagged() && (class == "" || d < days) {
			class, days = t.StorageClass, d
		}
	}
	return class, days
}

func (r rule) prefix() string {
	switch {
	case r.Filter == nil && r.Prefix != nil:
		return *r.Prefix
	case r.Filter == nil:
		return ""
	case r.Filter.And != nil:
		return r.Filter.And.Prefix
	}
	return r.Filter.Prefix
}

// days gives the age at which a rule deletes objects such as ours. Rules about tags are not about ours, which have none. A date is told
// as one day: such a rule deletes everything, from that date on.
func (r rule) days() int {
	if r.tagged() {
		return 0
	}
	switch e := r.Expiration; {
	case e == nil:
		return 0
	case e.Date != "":
		return 1
	default:
		return e.Days
	}
}

// Rules implements s3bucket.Ruler.
func (r *ruler) Rules(ctx context.Context) ([]objectstore.LifecycleRule, error) {
	body, err := r.request(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	var config struct {
		Rules []rule `xml:"Rule"`
	}
	if err := xml.Unmarshal(body, &config); err != nil {
		return nil, fmt.Errorf("lifecycle rules: %w", err)
	}
	rules := make([]objectstore.LifecycleRule, len(config.Rules))
	for i, r := range config.Rules {
		rules[i] = objectstore.LifecycleRule{ID: r.ID, Prefix: r.prefix(), Days: r.days(), Enabled: r.Status == "Enabled", Native: r.Inner}
		rules[i].Archive, rules[i].ArchiveDays = r.archive()
	}
	return rules, nil
}

// PutRules implements s3bucket.Ruler.
func (r *ruler) PutRules(ctx context.Context, rules []objectstore.LifecycleRule) error {
	if len(rules) == 0 {
		_, err := r.request(ctx, http.MethodDelete, nil)
		return err
	}
	var b bytes.Buffer
	b.WriteString(`<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
	for _, rule := range rules {
		inner, ok := rule.Native.(string)
		if !ok {
			status := "Disabled"
			if rule.Enabled {
				status = "Enabled"
			}
			inner = fmt.Sprintf("<ID>%s</ID><Filter><Prefix>%s</Prefix></Filter><Status>%s</Status><Expiration><Days>%d</Days></Expiration>",
				escape(rule.ID), escape(rule.Prefix), status, rule.Days)
		}
		b.WriteString("<Rule>" + inner + "</Rule>")
	}
	b.WriteString(`</LifecycleConfiguration>`)
	_, err := r.request(ctx, http.MethodPut, b.Bytes())
	return err
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// request makes one signed request about the bucket's rules.
func (r *ruler) request(ctx context.Context, method string, body []byte) ([]byte, error) {
	target := *r.api.EndpointURL()
	target.Path, target.RawQuery = "/"+r.o.Bucket+"/", "lifecycle="
	if r.o.VirtualHost {
		target.Host, target.Path = r.o.Bucket+"."+target.Host, "/"
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	if method == http.MethodPut {
		digest := md5.Sum(body) // the API asks for it
		req.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(digest[:]))
		req.Header.Set("Content-Type", "application/xml")
	}
	creds, err := r.api.GetCreds()
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if creds.SignerType != credentials.SignatureAnonymous {
		req = signer.SignV4(*req, creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken, r.o.Region)
	}
	resp, err := r.http.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("the store answered %s", resp.Status)
	}
	return answer, nil
}
