// Package open opens an object store by its URL: file:///dir (an absolute folder), file:dir (relative to the working directory), mem:,
// s3://bucket/prefix?region=R, minio://host:port/bucket/prefix. docs/object-stores.md lists the settings of the last two.
package open

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/file"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/objectstore/minio"
	"github.com/forebaymq/forebay/objectstore/s3"
)

// Options of Open. The zero value is the default.
type Options struct {
	// Clock is the driver's clock. Default: the real clock.
	Clock clockwork.Clock
	// Logger is the driver's logger. Default: discards.
	Logger *slog.Logger
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate finds nothing: every value is allowed.
func (o Options) Validate() error { return nil }

// driver opens a store of one scheme. query is what it may take of the URL's query; what it leaves is an unknown setting.
type driver func(ctx context.Context, u *url.URL, query url.Values, o Options) (objectstore.Store, error)

// drivers is the table of schemes: a new driver is a line here.
func drivers() map[string]driver {
	return map[string]driver{
		"file":  openFile,
		"mem":   openMem,
		"minio": openMinio,
		"s3":    openS3,
	}
}

// Schemes lists what Open knows.
func Schemes() []string { return slices.Sorted(maps.Keys(drivers())) }

// Open opens the store that a URL names. The caller closes it.
func Open(ctx context.Context, rawURL string, o Options) (objectstore.Store, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	open := drivers()[u.Scheme]
	if open == nil {
		return nil, fmt.Errorf("open object store %q: unknown scheme %q, want one of %s", u.Redacted(), u.Scheme, strings.Join(Schemes(), ", "))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("open object store %q: %w", u.Redacted(), err)
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("open object store %q: unexpected #%s", u.Redacted(), u.Fragment)
	}
	store, err := open(ctx, u, query, o.WithDefaults())
	if err != nil {
		return nil, fmt.Errorf("open object store %q: %w", u.Redacted(), err)
	}
	return store, nil
}

// unknown refuses settings that a driver did not take.
func unknown(query url.Values) error {
	if len(query) > 0 {
		return fmt.Errorf("unknown settings: %s", strings.Join(slices.Sorted(maps.Keys(query)), ", "))
	}
	return nil
}

func openFile(_ context.Context, u *url.URL, query url.Values, o Options) (objectstore.Store, error) {
	if err := unknown(query); err != nil {
		return nil, err
	}
	dir := u.Path
	switch {
	case u.Host != "" && u.Host != "localhost":
		return nil, fmt.Errorf("a file has no host %q: want file:///%s%s (three slashes) or file:%s%s", u.Host, u.Host, u.Path, u.Host, u.Path)
	case u.User != nil:
		return nil, fmt.Errorf("a file has no user")
	case u.Opaque != "":
		var err error
		if dir, err = url.PathUnescape(u.Opaque); err != nil {
			return nil, err
		}
	}
	if dir == "" {
		return nil, fmt.Errorf("no folder: want one like file:///dir")
	}
	return file.Open(dir, file.Options{Clock: o.Clock, Logger: o.Logger})
}

func openMem(_ context.Context, u *url.URL, query url.Values, o Options) (objectstore.Store, error) {
	if err := unknown(query); err != nil {
		return nil, err
	}
	if u.Opaque != "" || u.Host != "" || u.Path != "" {
		return nil, fmt.Errorf("memory has no address: want %q", "mem:")
	}
	return mem.New(mem.Options{Clock: o.Clock}), nil
}

func openS3(ctx context.Context, u *url.URL, query url.Values, o Options) (objectstore.Store, error) {
	opt, err := s3.FromURL(u, query)
	if err != nil {
		return nil, err
	}
	opt.Clock, opt.Logger = o.Clock, o.Logger
	store, err := s3.Open(ctx, opt)
	if err != nil {
		return nil, err
	}
	return store, nil
}

func openMinio(ctx context.Context, u *url.URL, query url.Values, o Options) (objectstore.Store, error) {
	opt, err := minio.FromURL(u, query)
	if err != nil {
		return nil, err
	}
	opt.Clock, opt.Logger = o.Clock, o.Logger
	store, err := minio.Open(ctx, opt)
	if err != nil {
		return nil, err
	}
	return store, nil
}
