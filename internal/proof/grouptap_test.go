package proof

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// errDead is what a process that was killed gets: nobody is there.
var errDead = errors.New("the process was killed")

// groupTap is a transport that notes what a process asks of a group and is answered, whatever client it uses, in a history. It can kill the process, as far as
// the network is concerned, and hold it up.
type groupTap struct {
	h     *GroupHistory
	who   string
	group string
	base  http.RoundTripper

	mu struct {
		sync.Mutex
		dead bool
		held chan struct{} // closed when the process goes on; nil = it was never held up
	}
}

// kill ends the process: nothing that it says is heard any more, and it hears nothing.
func (g *groupTap) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.dead = true
}

func (g *groupTap) dead() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.dead
}

// stall holds up whatever the process is about to ask until goOn is called.
func (g *groupTap) stall() (goOn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := make(chan struct{})
	g.mu.held = held
	return sync.OnceFunc(func() { close(held) })
}

// RoundTrip sends a request.
func (g *groupTap) RoundTrip(req *http.Request) (*http.Response, error) {
	g.mu.Lock()
	dead, held := g.mu.dead, g.mu.held
	g.mu.Unlock()
	if dead {
		return nil, errDead
	}
	if held != nil {
		select {
		case <-held:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	what, ok := strings.CutPrefix(req.URL.Path, "/v1/groups/"+g.group+"/")
	if !ok {
		return g.base.RoundTrip(req)
	}
	c := &groupCall{who: g.who, op: what}
	if what == "offsets" && req.Method == http.MethodPut {
		c.op = "commit"
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		c.asks(body)
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	c.began = g.h.now()
	resp, err := g.base.RoundTrip(req)
	var body []byte
	if err == nil && (resp.StatusCode != http.StatusOK || c.op != "poll") { // records are of no interest here
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	c.ended = g.h.now()
	if err == nil && g.dead() {
		resp.Body.Close()
		err = errDead
	}
	switch {
	case err != nil:
		c.fate = groupUnknown
		if !maybe(err) {
			c.fate = groupRefused
		}
	default:
		c.answered(resp.StatusCode, body)
	}
	g.h.add(c)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// groupBody has the members of all requests and answers that matter to a history.
type groupBody struct {
	MemberID   string
	Generation int64
	Code       string
	Owned      *[]groupPlace
	Revoke     []groupPlace
	Offsets    []groupPlace
	Assignment []groupPlace
}

// groupPlace is a partition, with an offset where there is one. Topics are not told apart: a group of these tests reads one.
type groupPlace struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
}

func groupPlaces(all []groupPlace) map[int]int64 {
	out := make(map[int]int64, len(all))
	for _, p := range all {
		out[p.Partition] = p.Offset
	}
	return out
}

func groupSet(all []groupPlace) map[int]bool {
	out := make(map[int]bool, len(all))
	for _, p := range all {
		out[p.Partition] = true
	}
	return out
}

// asks notes a request.
func (c *groupCall) asks(body []byte) {
	var b groupBody
	if json.Unmarshal(body, &b) != nil {
		return
	}
	c.member, c.generation = b.MemberID, b.Generation
	if c.op == "commit" {
		c.offsets = groupPlaces(b.Offsets)
	}
	if c.op == "heartbeat" && b.Owned != nil {
		c.says, c.holds = true, groupSet(*b.Owned)
	}
}

// answered notes an answer.
func (c *groupCall) answered(status int, body []byte) {
	var b groupBody
	wrong := json.Unmarshal(body, &b) != nil
	switch {
	case status/100 == 2:
		c.fate = groupOK
	case status == 504 || status == 500 || wrong || b.Code == "":
		c.fate = groupUnknown
		return
	default:
		c.fate, c.code = groupRefused, b.Code
		return
	}
	switch c.op {
	case "join", "heartbeat":
		c.told, c.assigned, c.revoked = b.Generation, groupPlaces(b.Assignment), groupSet(b.Revoke)
		if c.op == "join" {
			c.member = b.MemberID
		}
	case "offsets":
		c.offsets = groupPlaces(b.Offsets)
	}
}
