package wire

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

// What a real server hands over when a client frames its body badly, stops in the middle, or does not finish in time.
func TestReadBodyOverHTTP(t *testing.T) {
	reader := NewBodyReader()
	type result struct {
		body string
		err  error
	}
	results := make(chan result, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait, err := time.ParseDuration(r.URL.Query().Get("deadline")); err == nil {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(wait)); err != nil {
				t.Error(err)
			}
		}
		body, release, err := reader.Read(r, 1000)
		results <- result{string(body), err}
		release()
	}))
	defer server.Close()
	for name, c := range map[string]struct {
		query, framing, body string
		keep                 bool // the client holds the connection open
		code                 api.Code
		want                 string
	}{
		"exact":             {"", "Content-Length: 2", "{}", true, "", "{}"},
		"bytes beyond":      {"", "Content-Length: 2", "{}xyz", false, "", "{}"},
		"short":             {"", "Content-Length: 20", "{}", false, api.CodeInvalidRequest, ""},
		"too long":          {"", "Content-Length: 1001", "", true, api.CodeTooLarge, ""},
		"slow":              {"?deadline=20ms", "Content-Length: 20", "{}", true, api.CodeRequestTimeout, ""},
		"chunked":           {"", "Transfer-Encoding: chunked", "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", true, "", "{}"},
		"chunked short":     {"", "Transfer-Encoding: chunked", "5\r\n{}", false, api.CodeInvalidRequest, ""},
		"chunked no end":    {"", "Transfer-Encoding: chunked", "2\r\n{}\r\n", false, api.CodeInvalidRequest, ""},
		"chunked malformed": {"", "Transfer-Encoding: chunked", "zz\r\n{}\r\n0\r\n\r\n", true, api.CodeInvalidRequest, ""},
		"chunked limit":     {"", "Transfer-Encoding: chunked", "3e8\r\n" + strings.Repeat("x", 1000) + "\r\n0\r\n\r\n", true, "", strings.Repeat("x", 1000)},
		"chunked beyond":    {"", "Transfer-Encoding: chunked", "3e9\r\n" + strings.Repeat("x", 1001) + "\r\n0\r\n\r\n", true, api.CodeTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, "POST /%s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", c.query, c.framing, c.body); err != nil {
				t.Fatal(err)
			}
			if !c.keep {
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			got := <-results
			if got.body != c.want || api.CodeOf(got.err) != c.code || (got.err == nil) != (c.code == "") {
				t.Errorf("%q, %v", got.body, got.err)
			}
			if c.keep && c.code == "" {
				if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200"))); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
