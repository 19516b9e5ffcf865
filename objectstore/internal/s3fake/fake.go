package s3fake

import (
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bucket is the only bucket that there is.
const Bucket = "bucket"

// Request is what a Script sees of a request.
type Request struct {
	Op     string // PUT, GET, HEAD, LIST, DELETE (of many), BUCKET (HEAD of the bucket), CREATE, SESSION, LIFECYCLE
	Key    string
	N      int // how many requests of this Op came before
	Header http.Header
	Query  map[string][]string
}

// Fault is what a Script makes of a request. The zero value does what was asked.
type Fault struct {
	Status       int    // answer this status instead, with Code
	Code         string // of the error document
	Inside       bool   // with Code: answer 200, with the error document as body
	DropBefore   bool   // close the connection without effect and without answer
	DropAfter    bool   // do it, then close the connection without answer
	ErrorAfter   int    // do it, then answer this status
	CutBody      int    // of a GET or LIST: send this many bytes, then close; negative: none
	WrongLength  bool   // with CutBody: announce the cut length instead of closing early, as a proxy might
	IgnoreRange  bool   // answer all of the object
	KeyErrors    map[string]string
	OmitKeys     bool // of a DELETE: do not mention any key in the answer
	ShortPage    int  // of a LIST: at most this many keys, and say that there is more
	WrongSum     bool // of a GET: a checksum that does not fit
	Hang         bool // answer nothing until the client gives up
	NoEffectOK   bool // of a DELETE: say that the keys are gone and keep them
	EmptyAnswer  bool // 200 without a body
	ExtraHeaders http.Header
}

// Server is the fake. Fields may be set before the first request.
type Server struct {
	*httptest.Server
	IgnoreConditions bool   // store whatever comes
	DropMetadata     bool   // forget user metadata
	NoBucket         bool   // the bucket is absent until it is created
	Region           string // answer 301 to those that sign for another
	Unordered        bool   // lists in the order of insertion, and refuses start-after, as directory buckets do
	RequireSession   bool   // refuse requests on objects without a session token

	mu struct {
		sync.Mutex
		script    func(Request) Fault
		objects   map[string]*object
		order     []string
		counts    map[string]int
		log       []Request
		lifecycle []byte
		version   int
		hung      chan struct{}
	}
}

type object struct {
	body     []byte
	etag     string
	meta     string
	crc      string
	modified time.Time
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	return start(t, httptest.NewServer)
}

// NewTLS is New over TLS; its Client has the certificate.
func NewTLS(t testing.TB) *Server {
	t.Helper()
	return start(t, httptest.NewTLSServer)
}

func start(t testing.TB, listen func(http.Handler) *httptest.Server) *Server {
	t.Helper()
	s := &Server{}
	s.mu.objects, s.mu.counts, s.mu.hung = map[string]*object{}, map[string]int{}, make(chan struct{})
	s.Server = listen(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		close(s.mu.hung)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// SetScript says what becomes of the requests from now on; nil: what they ask for.
func (s *Server) SetScript(script func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.script = script
}

// Count says how many requests of an Op came.
func (s *Server) Count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.counts[op]
}

// Log gives the requests so far.
func (s *Server) Log() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.mu.log...)
}

// Body gives an object's bytes and whether it is there.
func (s *Server) Body(key string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.mu.objects[key]
	if o == nil {
		return "", false
	}
	return string(o.body), true
}

// Put puts an object by another writer.
func (s *Server) Put(key, body, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeLocked(key, &object{body: []byte(body), meta: id})
}

func (s *Server) storeLocked(key string, o *object) {
	s.mu.version++
	o.etag = strings.Repeat("0", 8) + "-" + string(rune('a'+s.mu.version%26)) + strings.Repeat("x", s.mu.version%50)
	o.modified = time.Now()
	if s.mu.objects[key] == nil {
		s.mu.order = append(s.mu.order, key)
	}
	s.mu.objects[key] = o
}

func (s *Server) deleteLocked(key string) {
	if s.mu.objects[key] == nil {
		return
	}
	delete(s.mu.objects, key)
	for i, k := range s.mu.order {
		if k == key {
			s.mu.order = append(s.mu.order[:i:i], s.mu.order[i+1:]...)
			return
		}
	}
}

func (s *Server) keysLocked(prefix string) []string {
	var keys []string
	for _, k := range s.mu.order {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	if !s.Unordered {
		sort.Strings(keys)
	}
	return keys
}

// SetRules sets the bucket's lifecycle rules, as XML.
func (s *Server) SetRules(xml string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lifecycle = []byte(xml)
}

// Rules gives the bucket's lifecycle rules, as XML.
func (s *Server) Rules() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.mu.lifecycle)
}
