package gateway

import "sync"

// inflight counts the requests being served and lets Stop wait for the last one. A sync.WaitGroup will not do: requests may begin
// while Stop waits.
type inflight struct {
	max int
	mu  struct {
		sync.Mutex
		n    int
		zero chan struct{} // closed when n falls to 0; made by wait
	}
}

// enter counts one more request, or says that there are too many.
func (f *inflight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.n >= f.max {
		return false
	}
	f.mu.n++
	return true
}

func (f *inflight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.n--
	if f.mu.n == 0 && f.mu.zero != nil {
		close(f.mu.zero)
		f.mu.zero = nil
	}
}

// wait returns when no request is being served.
func (f *inflight) wait() {
	f.mu.Lock()
	if f.mu.n == 0 {
		f.mu.Unlock()
		return
	}
	if f.mu.zero == nil {
		f.mu.zero = make(chan struct{})
	}
	zero := f.mu.zero
	f.mu.Unlock()
	<-zero
}
