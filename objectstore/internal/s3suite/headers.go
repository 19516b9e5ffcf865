package s3suite

import (
	"net/http"

	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
)

// putHeaders: a put is conditional, has a checksum and the writer's ID, and the body goes out as it is.
func putHeaders(s *suite) {
	s.put(Setup{})
	s.wantHeaders(map[string]string{
		"If-None-Match": "*", "X-Amz-Checksum-Crc32c": checksumOfX, "X-Amz-Meta-Forebay-Id": "w", "Content-Encoding": "", "X-Amz-Trailer": "",
		"X-Amz-Content-Sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", // signed, for want of TLS
	})
}

// checksumOfX is the CRC-32C of the body "x".
const checksumOfX = "qTxfkw=="

// putHeadersTLS: over TLS the body is not hashed for the signature. The checksum is there all the same, and the body goes out as it is.
func putHeadersTLS(s *suite) {
	s.server = s3fake.NewTLS(s.T)
	s.put(Setup{Transport: s.server.Client().Transport})
	s.wantHeaders(map[string]string{
		"X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD", "X-Amz-Checksum-Crc32c": checksumOfX, "Content-Encoding": "", "X-Amz-Trailer": "",
	})
	s.wantBody("k", "x")
	s.server.CloseClientConnections()
}

func (s *suite) put(o Setup) {
	s.Helper()
	store, err := s.open(s.ctx, s.server, o)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	_, err = store.PutIfAbsent(s.ctx, "k", []byte("x"), "w")
	s.want(err, nil, false, "put")
}

// wantHeaders looks at every put.
func (s *suite) wantHeaders(want map[string]string) {
	s.Helper()
	s.wantCount(http.MethodPut, 1)
	for _, r := range s.server.Log() {
		for name, value := range want {
			if got := r.Header.Get(name); r.Op == http.MethodPut && got != value {
				s.Errorf("header %s of a put is %q, want %q", name, got, value)
			}
		}
	}
}

// createsBucket: where it is told to, and once.
func createsBucket(s *suite) {
	s.server.NoBucket = true
	for range 2 { // the second finds it
		store, err := s.open(s.ctx, s.server, Setup{Create: true})
		if err != nil {
			s.Fatal(err)
		}
		_ = store.Close()
	}
	s.wantCount("CREATE", 1)
}
