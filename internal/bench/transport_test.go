package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forebaymq/forebay/client"
)

func lean(t *testing.T, h http.HandlerFunc) (*http.Client, string, *atomic.Int32) {
	t.Helper()
	var conns atomic.Int32
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	c := &http.Client{Transport: &Transport{}}
	t.Cleanup(func() { c.CloseIdleConnections(); s.Close() })
	return c, s.URL, &conns
}

// TestTransport: requests and answers of all sizes and forms, on few connections.
func TestTransport(t *testing.T) {
	c, base, conns := lean(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("X-A") != "1" || r.URL.Query().Get("q") != "a b" {
			t.Errorf("%v %v %s", err, r.Header, r.URL)
		}
		switch r.URL.Path {
		case "/chunked":
			_, _ = w.Write(body[:len(body)/2])
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(body[len(body)/2:])
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/close":
			w.Header().Set("Connection", "close")
			_, _ = w.Write(body)
		default:
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write(body)
		}
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, path := range []string{"/", "/chunked", "/none", "/", "/close", "/chunked"} {
				for _, size := range []int{0, 1, 5000, 1 << 20} {
					sent := bytes.Repeat([]byte("x"), size)
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+path+"?q=a%20b", bytes.NewReader(sent))
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("X-A", "1")
					resp, err := c.Do(req)
					if err != nil {
						t.Errorf("%s %d: %v", path, size, err)
						return
					}
					got, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					switch {
					case path == "/none" && (resp.StatusCode != 204 || len(got) != 0), path == "/" && resp.StatusCode != 418,
						err != nil, path != "/none" && !bytes.Equal(got, sent):
						t.Errorf("%s %d: status %d, %d bytes, %v", path, size, resp.StatusCode, len(got), err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := conns.Load(); n > 4+4*4 {
		t.Errorf("%d connections", n)
	}
}

// TestTransportEndsWithItsContext: whoever waits for an answer is woken, and the connection is not used again.
func TestTransportEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, base, conns := lean(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			cancel()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "ok")
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := c.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", resp, err)
	}
	for range 3 {
		resp, err := c.Get(base)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "ok" || err != nil {
			t.Errorf("%s, %v", body, err)
		}
		_ = resp.Body.Close()
	}
	if conns.Load() != 2 {
		t.Errorf("%d connections", conns.Load())
	}
}

// TestTransportRefuses: an answer that is not whole, or not one, is an error.
func TestTransportRefuses(t *testing.T) {
	for _, answer := range []string{
		"", "HTTP/1.1 200", "HTTP/1.1 2x0 OK\r\n\r\n", "nonsense and more\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", wireBuffer) + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 70) + "\r\n",
	} {
		client, server := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			buf := make([]byte, 4096)
			_, _ = server.Read(buf)
			_, _ = io.WriteString(server, answer)
			_ = server.Close()
		}()
		tr := &Transport{Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
		resp, err := (&http.Client{Transport: tr}).Get("http://x/")
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%.60q is accepted", answer)
		}
		_ = client.Close()
		<-done
	}
	if _, err := (&http.Client{Transport: &Transport{}}).Get("https://x/"); err == nil {
		t.Error("TLS is accepted")
	}
}

// TestTransportCarriesTheClient: what is not a connection at all is still told apart.
func TestTransportCarriesTheClient(t *testing.T) {
	refused := errors.New("refused")
	tr := &Transport{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: refused}
	}}
	c, err := client.New("http://127.0.0.1:1", client.WithHTTPClient(&http.Client{Transport: tr}), client.WithRetry(client.RetryPolicy{Attempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.GetTopic(t.Context(), "t")
	if outcome, _ := client.Classify(err); outcome != client.Retriable || !errors.Is(err, refused) {
		t.Errorf("%s: %v", outcome, err)
	}
}

// TestTransportKeepsFewIdleConnections: a wave of requests needs many connections, and leaves no more of them than it is told.
func TestTransportKeepsFewIdleConnections(t *testing.T) {
	const all, keep = 8, 3
	var here sync.WaitGroup
	here.Add(all)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		here.Done()
		here.Wait() // all are under way at once
	}))
	defer s.Close()
	tr := &Transport{MaxIdle: keep}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	var wg sync.WaitGroup
	for range all {
		wg.Go(func() {
			resp, err := c.Get(s.URL)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
	}
	wg.Wait()
	if n := len(tr.mu.idle); n != keep {
		t.Errorf("%d connections are idle", n)
	}
}
