package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Encoding is the content encoding of request bodies.
type Encoding string

// The encodings that every Forebay takes.
const (
	Identity Encoding = ""
	Gzip     Encoding = "gzip"
	Zstd     Encoding = "zstd"
)

// maxAnswerBytes bounds what is read of one answer: the largest read of the contract, 16 MiB of records, which JSON escapes may make six
// times as long.
const maxAnswerBytes = 128 << 20

// maxProblemBytes bounds what is read of an answer that is not a success.
const maxProblemBytes = 1 << 20

// errNotSent marks requests that could not even be built.
var errNotSent = errors.New("request not sent")

// errNoToken marks requests whose token source failed.
var errNoToken = errors.New("get token")

// TokenSource gives the token for one request. It is called for each attempt and should keep what it gets.
type TokenSource func(ctx context.Context) (string, error)

// Client speaks to one server, or to one address in front of many. It is safe for concurrent use.
type Client struct {
	base    string
	http    *http.Client
	token   TokenSource
	agent   string
	enc     Encoding
	zstd    *zstd.Encoder
	policy  RetryPolicy
	timeout time.Duration
}

type options struct {
	token       TokenSource
	http        *http.Client
	tls         *tls.Config
	h2c         bool
	connections int
	agent       string
	enc         Encoding
	policy      RetryPolicy
	timeout     time.Duration
}

// Option changes one setting of a Client.
type Option func(*options)

// WithToken sends this bearer token, overriding the default of none.
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource asks for a token before each request, overriding the default of none.
func WithTokenSource(source TokenSource) Option { return func(o *options) { o.token = source } }

// WithHTTPClient uses this client, overriding the default of one with many idle connections a host. WithTLS, WithH2C and
// WithConnections have no effect then.
func WithHTTPClient(c *http.Client) Option { return func(o *options) { o.http = c } }

// WithTLS overrides the default TLS configuration (the system's roots, TLS 1.2 or newer).
func WithTLS(c *tls.Config) Option { return func(o *options) { o.tls = c } }

// WithH2C speaks HTTP/2 without TLS to http:// addresses, overriding the default of HTTP/1.1: many requests on one connection.
func WithH2C() Option { return func(o *options) { o.h2c = true } }

// WithConnections keeps up to n idle connections, overriding the default of 256.
func WithConnections(n int) Option { return func(o *options) { o.connections = n } }

// WithUserAgent overrides the default of "forebay-go".
func WithUserAgent(s string) Option { return func(o *options) { o.agent = s } }

// WithEncoding compresses the bodies of publishes, overriding the default of Identity.
func WithEncoding(e Encoding) Option { return func(o *options) { o.enc = e } }

// WithRetry overrides the default retry policy.
func WithRetry(p RetryPolicy) Option { return func(o *options) { o.policy = p } }

// WithTimeout bounds each attempt, overriding the default of 60 s; the wait of a long poll comes on top.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// New makes a client for the server at baseURL, such as "http://127.0.0.1:8080". It does not connect.
func New(baseURL string, opts ...Option) (*Client, error) {
	o := options{agent: "forebay-go", connections: 256, timeout: time.Minute}
	for _, opt := range opts {
		opt(&o)
	}
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("server address %q: want http://host:port or https://host:port", baseURL)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("server address %q: want no user, query or fragment", u.Redacted())
	}
	c := &Client{
		base:    strings.TrimRight(u.String(), "/"),
		http:    o.http,
		token:   o.token,
		agent:   o.agent,
		enc:     o.enc,
		policy:  o.policy.withDefaults(),
		timeout: o.timeout,
	}
	switch o.enc {
	case Identity, Gzip:
	case Zstd:
		if c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(4)); err != nil {
			return nil, fmt.Errorf("zstd encoder: %w", err)
		}
	default:
		return nil, fmt.Errorf("content encoding %q: want none, gzip or zstd", o.enc)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport(&o), CheckRedirect: refuseRedirect}
	}
	return c, nil
}

// refuseRedirect: a redirected publish would be sent twice, or as a GET, and the token would travel to who knows where.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newTransport(o *options) *http.Transport {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       o.tls,
		TLSHandshakeTimeout:   10 * time.Second,
		MaxIdleConns:          o.connections,
		MaxIdleConnsPerHost:   o.connections,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
		// Answers are compressed segments' contents in the clear; compressing them again on the wire costs more than it saves on the
		// networks that brokers live in.
		DisableCompression: true,
	}
	t.Protocols = new(http.Protocols)
	if o.h2c {
		t.Protocols.SetUnencryptedHTTP2(true)
		t.Protocols.SetHTTP2(true)
	} else {
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
	}
	return t
}

// Close closes idle connections. Requests in flight go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request describes one call of the REST API.
type request struct {
	op              string // for errors: "publish to orders"
	method          string
	path            string // from /v1, escaped
	query           url.Values
	body            []byte
	contentType     string
	contentEncoding string
	accept          string
	twice           repeatable
	wait            time.Duration // on top of the client's timeout
	lastEventID     string        // of a stream
	attempts        int           // overrides the policy where not 0
	appends         bool          // a publish: see Error.Unsure
}

// once gives r without the permission to be sent again, for callers that bring their own retry loop.
func (r *request) once() *request {
	c := *r
	c.attempts = 1
	return &c
}

// call sends r, again where the policy and r.twice allow it, and hands the body of a success to decode.
func (c *Client) call(ctx context.Context, r *request, decode func(status int, body []byte) error) error {
	policy := c.policy
	if r.attempts > 0 {
		policy.Attempts = r.attempts
	}
	unsure := false
	err := retry(ctx, policy, r.twice, func(ctx context.Context) error {
		err := c.attempt(ctx, r, decode)
		if outcome, _ := Classify(err); outcome == Indefinite {
			unsure = true
		}
		return err
	})
	var e *Error
	if r.appends && unsure && errors.As(err, &e) {
		outcome, _ := Classify(err)
		e.Unsure = outcome != Indefinite
	}
	return err
}

// attempt sends r once and hands the body of a success to decode.
func (c *Client) attempt(ctx context.Context, r *request, decode func(status int, body []byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+r.wait)
	defer cancel()
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := readBody(resp)
	if err != nil {
		return &Error{Op: r.op, Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id"), Cause: fmt.Errorf("read answer: %w", err)}
	}
	if decode == nil {
		return nil
	}
	if err := decode(resp.StatusCode, body); err != nil {
		return &Error{Op: r.op, Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id"), Cause: fmt.Errorf("decode answer: %w", err)}
	}
	return nil
}

// send makes one attempt. An answer that is not 2xx becomes an *Error and its body is closed.
func (c *Client) send(ctx context.Context, r *request) (*http.Response, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, &Error{Op: r.op, Cause: errors.Join(errNotSent, err)}
	}
	req.Header.Set("User-Agent", c.agent)
	if c.token != nil {
		token, err := c.token(ctx)
		if err != nil {
			return nil, &Error{Op: r.op, Cause: fmt.Errorf("%w: %w", errNoToken, err)}
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.contentEncoding != "" {
		req.Header.Set("Content-Encoding", r.contentEncoding)
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.lastEventID != "" {
		req.Header.Set("Last-Event-ID", r.lastEventID)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		// The URL in *url.Error repeats Op; what lies beneath says why.
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, &Error{Op: r.op, Cause: err}
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	problem, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes)) // half a problem document still has its status
	return nil, responseError(r.op, resp, problem, time.Now())
}

// readBody reads an answer whole, in one allocation where its length is known.
func readBody(resp *http.Response) ([]byte, error) {
	if n := resp.ContentLength; n > maxAnswerBytes {
		return nil, fmt.Errorf("%d bytes are more than the %d that a client takes", n, maxAnswerBytes)
	} else if n >= 0 {
		body := make([]byte, n)
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			return body, err
		}
		// The end itself, too: closed before it, a stream of HTTP/2 is reset, and the server takes the answer for lost.
		if _, err := io.ReadFull(resp.Body, make([]byte, 1)); !errors.Is(err, io.EOF) {
			return body, fmt.Errorf("the answer does not end where it said: %w", err)
		}
		return body, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err == nil && len(body) > maxAnswerBytes {
		err = fmt.Errorf("more than the %d bytes that a client takes", maxAnswerBytes)
	}
	return body, err
}

// compress applies the client's content encoding.
func (c *Client) compress(body []byte) ([]byte, string, error) {
	switch c.enc {
	case Zstd:
		return c.zstd.EncodeAll(body, make([]byte, 0, len(body)/2+64)), string(Zstd), nil
	case Gzip:
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		if err != nil {
			return nil, "", fmt.Errorf("gzip encoder: %w", err)
		}
		if _, err := w.Write(body); err != nil {
			return nil, "", fmt.Errorf("gzip: %w", err)
		}
		if err := w.Close(); err != nil {
			return nil, "", fmt.Errorf("gzip: %w", err)
		}
		return b.Bytes(), string(Gzip), nil
	}
	return body, "", nil
}
