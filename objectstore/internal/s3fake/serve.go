package s3fake

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

func opOf(r *http.Request, key string) string {
	q := r.URL.Query()
	switch {
	case q.Has("session"):
		return "SESSION"
	case q.Has("lifecycle"):
		return "LIFECYCLE"
	case q.Has("delete"):
		return "DELETE"
	case q.Has("list-type"):
		return "LIST"
	case key == "" && r.Method == http.MethodPut:
		return "CREATE"
	case key == "":
		return "BUCKET"
	}
	return r.Method
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	req := Request{Op: opOf(r, key), Key: key, Header: r.Header.Clone(), Query: r.URL.Query()}
	s.mu.Lock()
	req.N = s.mu.counts[req.Op]
	s.mu.counts[req.Op]++
	s.mu.log = append(s.mu.log, req)
	script := s.mu.script
	s.mu.Unlock()
	var f Fault
	if script != nil {
		f = script(req)
	}
	switch {
	case f.Hang:
		select {
		case <-r.Context().Done():
		case <-s.mu.hung:
		}
		return
	case f.DropBefore:
		drop(w)
		return
	case f.Inside:
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>inside</Message></Error>`, f.Code)
		return
	case f.EmptyAnswer:
		return
	case f.Status != 0:
		for name, values := range f.ExtraHeaders {
			w.Header()[name] = values
		}
		fault(w, r, f.Status, f.Code)
		return
	case f.DropAfter, f.ErrorAfter != 0:
		s.do(&discard{header: http.Header{}}, r, req, body, Fault{})
		if f.DropAfter {
			drop(w)
			return
		}
		fault(w, r, f.ErrorAfter, f.Code)
		return
	}
	s.do(w, r, req, body, f)
}

// drop closes the connection in such a way that the client sees a reset or an end.
func drop(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

// abort sends what was written and closes the connection.
func abort(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func fault(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead && code != "" {
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>as the script says</Message></Error>`, code)
	}
}

func (s *Server) do(w http.ResponseWriter, r *http.Request, req Request, body []byte, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Region != "" && !strings.Contains(r.Header.Get("Authorization"), "/"+s.Region+"/") {
		w.Header().Set("X-Amz-Bucket-Region", s.Region)
		fault(w, r, http.StatusMovedPermanently, "PermanentRedirect")
		return
	}
	if s.NoBucket && req.Op != "CREATE" {
		fault(w, r, http.StatusNotFound, "NoSuchBucket")
		return
	}
	if s.RequireSession && req.Op != "SESSION" && req.Op != "BUCKET" && r.Header.Get("X-Amz-S3session-Token") != "session-token" {
		fault(w, r, http.StatusForbidden, "AccessDenied")
		return
	}
	switch req.Op {
	case "CREATE":
		s.NoBucket = false
	case "BUCKET":
	case "SESSION":
		fmt.Fprint(w, `<CreateSessionResult><Credentials><SessionToken>session-token</SessionToken><SecretAccessKey>s</SecretAccessKey>`+
			`<AccessKeyId>a</AccessKeyId><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>`)
	case "LIFECYCLE":
		s.doLifecycle(w, r, body)
	case "PUT":
		s.doPut(w, r, req.Key, body)
	case "GET", "HEAD":
		s.doGet(w, r, req.Key, f)
	case "LIST":
		s.doList(w, r, f)
	case "DELETE":
		s.doDelete(w, body, f)
	default:
		fault(w, r, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (s *Server) doPut(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	old := s.mu.objects[key]
	if !s.IgnoreConditions {
		if r.Header.Get("If-None-Match") == "*" && old != nil {
			fault(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		if match := r.Header.Get("If-Match"); match != "" {
			if old == nil {
				fault(w, r, http.StatusNotFound, "NoSuchKey")
				return
			}
			if match != `"`+old.etag+`"` {
				fault(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
				return
			}
		}
	}
	o := &object{body: body, meta: r.Header.Get("X-Amz-Meta-Forebay-Id"), crc: r.Header.Get("X-Amz-Checksum-Crc32c")}
	if s.DropMetadata {
		o.meta = ""
	}
	s.storeLocked(key, o)
	w.Header().Set("ETag", `"`+o.etag+`"`)
}

func (s *Server) doGet(w http.ResponseWriter, r *http.Request, key string, f Fault) {
	o := s.mu.objects[key]
	if o == nil {
		fault(w, r, http.StatusNotFound, "NoSuchKey")
		return
	}
	h := w.Header()
	h.Set("ETag", `"`+o.etag+`"`)
	h.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	h.Set("Content-Type", "application/octet-stream")
	if o.meta != "" {
		h.Set("X-Amz-Meta-Forebay-Id", o.meta)
	}
	body, status := o.body, http.StatusOK
	if spec := r.Header.Get("Range"); spec != "" && !f.IgnoreRange {
		first, last, ok := parseRange(spec, len(body))
		if !ok {
			fault(w, r, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(body)))
		body, status = body[first:last+1], http.StatusPartialContent
	} else if r.Header.Get("X-Amz-Checksum-Mode") != "" && o.crc != "" {
		h.Set("X-Amz-Checksum-Crc32c", o.crc)
		h.Set("X-Amz-Checksum-Type", "FULL_OBJECT")
		if f.WrongSum {
			h.Set("X-Amz-Checksum-Crc32c", "AAAAAA==")
		}
	}
	if f.CutBody != 0 {
		cut := body[:max(0, min(f.CutBody, len(body)))]
		n := len(body)
		if f.WrongLength {
			n = len(cut)
		}
		h.Set("Content-Length", strconv.Itoa(n))
		w.WriteHeader(status)
		_, _ = w.Write(cut) // the client sees what came of it
		if !f.WrongLength {
			abort(w)
		}
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body)
	}
}

func parseRange(spec string, size int) (first, last int, ok bool) {
	from, to, _ := strings.Cut(strings.TrimPrefix(spec, "bytes="), "-")
	if from == "" {
		n, err := strconv.Atoi(to)
		if err != nil || n == 0 || size == 0 {
			return 0, 0, false
		}
		return size - min(n, size), size - 1, true
	}
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || first >= size {
		return 0, 0, false
	}
	return first, min(last, size-1), true
}

func (s *Server) doList(w http.ResponseWriter, r *http.Request, f Fault) {
	q := r.URL.Query()
	if s.Unordered && (q.Get("start-after") != "" || q.Get("prefix") != "" && !strings.HasSuffix(q.Get("prefix"), "/")) {
		fault(w, r, http.StatusBadRequest, "InvalidRequest")
		return
	}
	limit, err := strconv.Atoi(q.Get("max-keys"))
	if err != nil || limit > 1000 {
		limit = 1000
	}
	if f.ShortPage > 0 {
		limit = min(limit, f.ShortPage)
	}
	keys := s.keysLocked(q.Get("prefix"))
	from := 0
	if token := q.Get("continuation-token"); token != "" {
		if from, err = strconv.Atoi(strings.TrimPrefix(token, "token-")); err != nil {
			fault(w, r, http.StatusBadRequest, "InvalidArgument")
			return
		}
	} else {
		for from < len(keys) && !s.Unordered && keys[from] <= q.Get("start-after") {
			from++
		}
	}
	to := min(from+limit, len(keys))
	var b strings.Builder
	b.WriteString(`<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType>`)
	fmt.Fprintf(&b, "<KeyCount>%d</KeyCount><IsTruncated>%t</IsTruncated>", to-from, to < len(keys))
	if to < len(keys) {
		fmt.Fprintf(&b, "<NextContinuationToken>token-%d</NextContinuationToken>", to)
	}
	for _, k := range keys[from:to] {
		o := s.mu.objects[k]
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>&quot;%s&quot;</ETag><Size>%d</Size></Contents>",
			url.QueryEscape(k), o.modified.UTC().Format("2006-01-02T15:04:05.000Z"), o.etag, len(o.body))
	}
	b.WriteString("</ListBucketResult>")
	answer := b.String()
	if f.CutBody != 0 {
		answer = answer[:max(0, min(f.CutBody, len(answer)))]
		if !f.WrongLength {
			w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
		}
		_, _ = io.WriteString(w, answer)
		if !f.WrongLength {
			abort(w)
		}
		return
	}
	_, _ = io.WriteString(w, answer)
}

func (s *Server) doDelete(w http.ResponseWriter, body []byte, f Fault) {
	var in struct {
		Quiet  bool
		Object []struct{ Key string }
	}
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Object) > 1000 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, `<?xml version="1.0"?><DeleteResult>`)
	for _, o := range in.Object {
		var key strings.Builder
		_ = xml.EscapeText(&key, []byte(o.Key)) // a Builder never fails
		if code, bad := f.KeyErrors[o.Key]; bad {
			fmt.Fprintf(w, "<Error><Key>%s</Key><Code>%s</Code><Message>as the script says</Message></Error>", key.String(), code)
			continue
		}
		if !f.NoEffectOK {
			s.deleteLocked(o.Key)
		}
		if !in.Quiet && !f.OmitKeys {
			fmt.Fprintf(w, "<Deleted><Key>%s</Key></Deleted>", key.String())
		}
	}
	fmt.Fprint(w, `</DeleteResult>`)
}

func (s *Server) doLifecycle(w http.ResponseWriter, r *http.Request, body []byte) {
	switch r.Method {
	case http.MethodPut:
		s.mu.lifecycle = body
	case http.MethodDelete:
		s.mu.lifecycle = nil
		w.WriteHeader(http.StatusNoContent)
	default:
		if s.mu.lifecycle == nil {
			fault(w, r, http.StatusNotFound, "NoSuchLifecycleConfiguration")
			return
		}
		_, _ = w.Write(s.mu.lifecycle)
	}
}
