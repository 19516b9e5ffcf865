package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestStartAndStopAreIdempotent(t *testing.T) {
	s, err := New(testOptions(newFabric(), &logBuffer{}))
	if err != nil {
		t.Fatal(err)
	}
	if s.Addr() != "" || s.OpsAddr() != "" {
		t.Error("an address before Start")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	addr := s.Addr()
	for range 8 {
		wg.Go(func() {
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := s.Start(t.Context()); err == nil {
		t.Error("started again after Stop")
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Error("the port is still open")
	}
}

func TestStopWithoutStart(t *testing.T) {
	s, err := New(testOptions(newFabric(), &logBuffer{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartSaysWhichPortIsTaken(t *testing.T) {
	n := start(t, nil)
	for _, c := range []struct{ main, ops, want string }{
		{n.Addr(), "127.0.0.1:0", "bind REST port"},
		{"127.0.0.1:0", n.OpsAddr(), "bind ops port"},
	} {
		o := testOptions(newFabric(), &logBuffer{})
		o.Listen, o.OpsListen = c.main, c.ops
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestStopLetsPublishesFinish(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	inside, leave := make(chan struct{}), make(chan struct{})
	n.f.onCall("Append", func() { inside <- struct{}{}; <-leave })
	done := make(chan *answer, 1)
	go func() { done <- n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`) }()
	<-inside
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop(context.Background()) }()
	<-n.drain.Done()
	if err := n.ready(); err == nil {
		t.Error("ready while draining")
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped before the publish was answered: %v", err)
	default:
	}
	close(leave)
	(<-done).ok(200, nil)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 1)
	inside := make(chan struct{})
	left := make(chan struct{})
	n.f.onCall("Append", func() {
		close(inside)
		<-n.hard.Done() // what an Appender does when the context of its request ends
		close(left)
	})
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+n.Addr()+"/v1/topics/orders/records", strings.NewReader(`{"records":[{"text":"a"}]}`))
		req.Header.Set("Authorization", "Bearer "+tenantA)
		if res, err := n.hc.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := n.Stop(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v", err)
	}
	<-left
	n.mu.Lock()
	n.mu.stopErr = nil // said; the cleanup's Stop would repeat it
	n.mu.Unlock()
}
