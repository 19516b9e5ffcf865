package s3bucket

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"github.com/forebaymq/forebay/objectstore"
)

// maxXMLAnswer bounds the answers to lists and deletes that are read whole: 1000 keys of 1 KiB, escaped threefold, and what is said of each.
const maxXMLAnswer = 16 << 20

// NewHTTPTransport gives the connections that a store uses by default.
func NewHTTPTransport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	Tune(t)
	return t
}

// Tune sets connections up for a store: enough of them kept for many uploads at once, and HTTP/1.1 as the S3 APIs speak it. There is no
// limit on the time of a request: its context has one.
func Tune(t *http.Transport) {
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 10 * time.Second
	t.ExpectContinueTimeout = time.Second
	t.IdleConnTimeout = 60 * time.Second // below what stores and balancers keep, so that they rarely close first
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = 512, 256, 0
	t.DisableCompression = true // ranges and checksums are of the stored bytes
	t.WriteBufferSize, t.ReadBufferSize = 64<<10, 64<<10
	t.ForceAttemptHTTP2 = false
}

// Transport notes in the context's Call what goes over the wire. Answers 200 that hold an error, or that end early, become the error
// that they are before the library sees them.
type Transport struct {
	Next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	call := callOf(r.Context())
	if call == nil || !call.counts(r) {
		return t.Next.RoundTrip(r)
	}
	resp, err := t.Next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), call.trace())))
	if err == nil {
		err = call.read(resp)
	}
	if err != nil {
		call.note(func(o *observed) { o.err, o.status, o.fault = err, 0, fault{} })
		call.failed()
		return nil, err
	}
	call.note(func(o *observed) {
		o.status, o.err = resp.StatusCode, nil
		o.answers++
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			o.date = date
		}
	})
	if resp.StatusCode >= 300 {
		call.failed()
	}
	return resp, nil
}

// read looks into answers that libraries do not look at closely enough: errors, lists and deletes. Lists and deletes that end early are
// errors, and those of status 200 that hold an error get the status that they should have. The body of what was read is replaced.
func (c *Call) read(resp *http.Response) error {
	failed := resp.StatusCode >= 300
	if !failed && c.op != objectstore.OpList && c.op != objectstore.OpDelete {
		return nil // the body of an object is read by who wants it
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxXMLAnswer+1))
	_ = resp.Body.Close() // the read's error says more
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if resp.Request == nil || resp.Request.Method != http.MethodHead {
		resp.ContentLength = int64(len(body))
	}
	if failed {
		c.noteFault(body) // whatever could be read of it: the status says enough
		return nil
	}
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if len(body) > maxXMLAnswer {
		return fmt.Errorf("answer is larger than %d bytes", maxXMLAnswer)
	}
	root, err := xmlRoot(body)
	if err != nil {
		return err
	}
	if root == "Error" {
		resp.StatusCode = http.StatusInternalServerError
		if isThrottle(c.noteFault(body).Code) {
			resp.StatusCode = http.StatusServiceUnavailable
		}
		resp.Status = strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)
	}
	more := c.op == objectstore.OpList && truncated(body)
	c.note(func(o *observed) { o.more = more })
	return nil
}

// noteFault takes note of an error document. What is not one, such as a proxy's page, leaves it empty.
func (c *Call) noteFault(body []byte) fault {
	var f fault
	if err := xml.Unmarshal(body, &f); err != nil {
		f = fault{}
	}
	c.note(func(o *observed) { o.fault = f })
	return f
}

// xmlRoot gives the name of the root element, and checks that the document ends with its end.
func xmlRoot(body []byte) (string, error) {
	for dec := xml.NewDecoder(bytes.NewReader(body)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return "", errors.New("answer is empty, want XML")
		}
		if err != nil {
			return "", fmt.Errorf("answer is not XML: %w", err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		end := bytes.TrimRight(body, " \t\r\n")
		if !bytes.HasSuffix(end, []byte("/>")) && !bytes.HasSuffix(end, []byte(start.Name.Local+">")) {
			return "", fmt.Errorf("answer ends early: <%s> is not closed", start.Name.Local)
		}
		return start.Name.Local, nil
	}
}

// truncated looks for <IsTruncated>true</IsTruncated>. Keys cannot fake it: their "<" is escaped.
func truncated(body []byte) bool {
	_, after, found := bytes.Cut(body, []byte("<IsTruncated>"))
	if !found {
		return false
	}
	value, _, _ := strings.Cut(string(after[:min(len(after), 32)]), "<")
	return strings.EqualFold(strings.TrimSpace(value), "true")
}
