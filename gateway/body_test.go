package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// dial opens a bare connection to the REST port.
func (n *node) dial() net.Conn {
	n.t.Helper()
	var d net.Dialer
	c, err := d.DialContext(n.t.Context(), "tcp", n.Addr())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

const publishHead = "POST /v1/topics/orders/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + tenantA + "\r\nContent-Type: application/json\r\n"

func TestSlowSendersAreDropped(t *testing.T) {
	// H3: each sends the beginning of a body and then nothing.
	n := start(t, func(o *Options) { o.Timeouts.Grace = time.Second })
	n.f.topic("orders", nil)
	var wg sync.WaitGroup
	for i := range 300 {
		c := n.dial()
		if i%2 == 0 {
			fmt.Fprint(c, publishHead+"Content-Length: 1000\r\n\r\n{")
		} else {
			fmt.Fprint(c, publishHead+"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
		}
		wg.Go(func() {
			all, _ := io.ReadAll(c) // returns when the server has closed
			if !strings.Contains(string(all), "REQUEST_TIMEOUT") {
				t.Errorf("sender %d got %q", i, all)
			}
		})
	}
	wg.Wait()
	n.inFlight.wait()
	if n.f.count("Append") != 0 || n.bodies.used.Load() != 0 {
		t.Error("a half body was appended or is still counted")
	}
}

func TestSlowHeadsAreDropped(t *testing.T) {
	n := start(t, func(o *Options) { o.Timeouts.ReadHeader = 200 * time.Millisecond })
	var wg sync.WaitGroup
	for range 100 {
		c := n.dial()
		fmt.Fprint(c, "POST /v1/topics/orders/reco")
		wg.Go(func() {
			if _, err := io.ReadAll(c); err != nil { // the server closes, or the connection's own deadline passes
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestSlowSenderWithoutATokenIsDropped(t *testing.T) {
	// The answer to an unread body waits for net/http, which reads the rest of it: that has a deadline too.
	n := start(t, func(o *Options) { o.Timeouts.Grace = 200 * time.Millisecond })
	c := n.dial()
	fmt.Fprint(c, "POST /v1/records HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
	all, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(all), "UNAUTHENTICATED") {
		t.Errorf("got %q, %v", all, err)
	}
}

func TestSteadySenderIsNotDropped(t *testing.T) {
	// Slower than the grace time allows, but above the minimum rate.
	n := start(t, func(o *Options) { o.Timeouts.Grace, o.Timeouts.MinRate = 200*time.Millisecond, 1000 })
	n.f.topic("orders", nil)
	c := n.dial()
	body := `{"records":[{"text":"` + strings.Repeat("x", 3000) + `"}]}`
	fmt.Fprintf(c, publishHead+"Content-Length: %d\r\n\r\n", len(body))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for len(body) > 0 {
		k := min(600, len(body))
		if _, err := io.WriteString(c, body[:k]); err != nil {
			t.Fatalf("dropped: %v", err)
		}
		body = body[k:]
		<-tick.C
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v, %v", res, err)
	}
	_ = res.Body.Close()
}

func TestLongPollOutlivesTheTimeoutsOfItsConnection(t *testing.T) {
	for _, proto := range []string{"HTTP/1", "HTTP/2"} {
		t.Run(proto, func(t *testing.T) {
			n := start(t, func(o *Options) {
				o.Timeouts.Grace, o.Timeouts.ReadHeader, o.Timeouts.Idle = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
			})
			if proto == "HTTP/2" {
				n.useH2()
			}
			n.fill("orders", 1)
			begin := time.Now()
			var got readJSON
			n.call("GET", "/v1/topics/orders/partitions/0/records?offset=latest&wait=1s", "").ok(200, &got)
			if took := time.Since(begin); took < time.Second || got.NextOffset != 1 {
				t.Errorf("answered after %s: %+v", took, got)
			}
			// The same connection, after a request with a body on it.
			n.fill("orders", 1)
			n.call("GET", "/v1/topics/orders/partitions/0/records?offset=latest&wait=300ms", "").ok(200, &got)
		})
	}
}

// useH2 makes the client speak HTTP/2 without TLS.
func (n *node) useH2() {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	n.hc = &http.Client{Transport: tr}
	n.t.Cleanup(tr.CloseIdleConnections)
}

func TestHTTP2WithoutTLS(t *testing.T) {
	n := start(t, nil)
	n.useH2()
	n.fill("orders", 3)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.Addr()+"/healthz", nil)
	res, err := n.hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.ProtoMajor != 2 {
		t.Errorf("spoke %s", res.Proto)
	}
}

func TestHTTP2RapidReset(t *testing.T) {
	// H3: 10,000 streams opened and reset. The node answers others meanwhile, and nothing is left of them.
	n := start(t, nil)
	n.fill("orders", 1)
	c := n.dial()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(c)
	fr := http2.NewFramer(w, c)
	if err := fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() { // or the node could not write to us
		defer close(drained)
		_, _ = io.Copy(io.Discard, c)
	}()
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	opened := 0
	for i := range 10_000 {
		block.Reset()
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"},
			{":path", "/v1/topics/orders/partitions/0/records?offset=latest&wait=30s"}, {"authorization", "Bearer " + tenantA}} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		id := uint32(2*i + 1)
		if err := errors.Join(
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true}),
			fr.WriteRSTStream(id, http2.ErrCodeCancel), w.Flush()); err != nil {
			break // the node has had enough of us: that is right too
		}
		opened++
	}
	n.call("GET", "/healthz", "").ok(200, nil)
	_ = c.Close()
	<-drained
	n.inFlight.wait()
	t.Logf("%d of 10,000 streams were opened before the node closed the connection", opened)
}

func TestConnectionLimit(t *testing.T) {
	n := start(t, func(o *Options) { o.Limits.MaxConnections = 2 })
	a, b := n.dial(), n.dial()
	for _, c := range []net.Conn{a, b} {
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
	}
	third := n.dial() // in the kernel's queue
	fmt.Fprint(third, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = third.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Fatal("a third connection is served")
	}
	_ = a.Close()
	_ = third.SetReadDeadline(time.Now().Add(10 * time.Second))
	if res, err := http.ReadResponse(bufio.NewReader(third), nil); err != nil || res.StatusCode != 200 {
		t.Errorf("after one has left: %v, %v", res, err)
	}
}

func TestRequestLimit(t *testing.T) {
	n := start(t, func(o *Options) { o.Limits.MaxRequests = 1 })
	n.f.topic("orders", nil)
	inside, leave := make(chan struct{}), make(chan struct{})
	n.f.onCall("Sync", func() { inside <- struct{}{}; <-leave })
	done := make(chan *answer)
	go func() { done <- n.call("GET", "/v1/topics/orders", "") }()
	<-inside
	n.call("GET", "/healthz", "").problem(503, "OVERLOADED")
	close(leave)
	(<-done).ok(200, nil)
}

func TestHeadersAreBounded(t *testing.T) {
	// A2: a token of a million dots, and two tokens.
	n := start(t, nil)
	c := n.dial()
	go fmt.Fprint(c, "GET /v1/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+strings.Repeat(".", 1_000_000)+"\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 431 {
		t.Errorf("%v, %v", res, err)
	}
	n.call("GET", "/v1/topics", "", token(strings.Repeat(".", 20_000))).problem(401, "UNAUTHENTICATED")
	n.call("GET", "/v1/topics", "", func(r *http.Request) { r.Header.Add("Authorization", "Bearer "+tenantB) }).problem(401, "UNAUTHENTICATED")
}

func TestBodiesThatLie(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	for name, c := range map[string]struct{ send, want string }{
		"ends early":      {publishHead + "Content-Length: 100\r\n\r\n{}", "INVALID_REQUEST"},
		"no end of chunk": {publishHead + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", "INVALID_REQUEST"},
		"bad chunk":       {publishHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", "INVALID_REQUEST"},
		"claims much":     {publishHead + "Content-Length: 99999999999\r\n\r\n{}", "TOO_LARGE"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := n.dial()
			fmt.Fprint(conn, c.send)
			_ = conn.(*net.TCPConn).CloseWrite()
			all, _ := io.ReadAll(conn)
			// One that has closed its side may not wait for the answer; where there is one it is right.
			if len(all) > 0 && !strings.Contains(string(all), c.want) {
				t.Errorf("got %q", all)
			}
		})
	}
	n.inFlight.wait()
	if n.f.count("Append") != 0 || n.bodies.used.Load() != 0 {
		t.Error("a broken body was appended or is still counted")
	}
}

func TestUnauthenticatedBodyIsNotRead(t *testing.T) {
	// 401 before a byte of the body: the client waits for 100 Continue and gets the refusal instead.
	n := start(t, nil)
	c := n.dial()
	fmt.Fprint(c, "POST /v1/records HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 401 {
		t.Errorf("%v, %v", res, err)
	}
	c2 := n.dial()
	n.f.topic("orders", nil)
	body := `{"records":[{"text":"a"}]}`
	fmt.Fprintf(c2, publishHead+"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	br := bufio.NewReader(c2)
	if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(c2, body)
	_, _ = br.ReadString('\n')
	if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != 200 {
		t.Errorf("%v, %v", res, err)
	}
}
