package s3_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/s3"
)

// recorder is a server that notes what arrives, and answers as told.
type recorder struct {
	mu     sync.Mutex
	seen   []seen
	answer http.HandlerFunc
}

type seen struct {
	method, path, query string
	header              http.Header
	length              int64
	body                string
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.seen = append(r.seen, seen{req.Method, req.URL.Path, req.URL.RawQuery, req.Header.Clone(), req.ContentLength, string(body)})
	r.mu.Unlock()
	r.answer(w, req)
}

func (r *recorder) requests() []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]seen{}, r.seen...)
}

// record starts a recorder over http or TLS and opens a store on it.
func record(t *testing.T, secure bool, c s3.Config, answer http.HandlerFunc) (*recorder, *s3.Bucket) {
	t.Helper()
	r := &recorder{answer: answer}
	srv := httptest.NewUnstartedServer(r)
	srv.Config.ErrorLog = nil
	if secure {
		srv.StartTLS()
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AddCert(srv.Certificate())
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	c.Endpoint = srv.URL
	return r, open(t, c)
}

func stored(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", `"abc"`) }

func failing(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if code != "" {
			_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>words</Message></Error>", code)
		}
	}
}

// cutLine answers nothing and closes the connection, as a line does that breaks after the store has committed.
func cutLine(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestPutOnTheWire(t *testing.T) {
	const body = "a witness"
	sum := sha256.Sum256([]byte(body))
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			r, b := record(t, secure, s3.Config{Prefix: "team"}, stored)
			v, err := b.Put(t.Context(), "witness/w", strings.NewReader(body), bucket.IfIs(`"old"`))
			if err != nil || v != `"abc"` {
				t.Fatalf("version %s, %v; want the ETag as received", v, err)
			}
			got := r.requests()
			if len(got) != 1 {
				t.Fatalf("%d requests, want 1", len(got))
			}
			h := got[0].header
			want := map[string]string{"If-Match": `"old"`, "If-None-Match": "", "X-Amz-Content-Sha256": hex.EncodeToString(sum[:]), "Content-Encoding": "", "X-Amz-Trailer": "", "Expect": "", "X-Amz-Sdk-Checksum-Algorithm": ""}
			for k, w := range want {
				if h.Get(k) != w {
					t.Errorf("header %s is %q, want %q", k, h.Get(k), w)
				}
			}
			if got[0].method != "PUT" || got[0].path != "/headway/team/witness/w" || got[0].body != body || got[0].length != int64(len(body)) {
				t.Errorf("%s %s, %d bytes %q", got[0].method, got[0].path, got[0].length, got[0].body)
			}
		})
	}
}

func TestTrailersOnTheWire(t *testing.T) {
	r, b := record(t, true, s3.Config{Quirks: s3.Quirks{TrailerChecksums: true}}, stored)
	if _, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.Always()); err != nil {
		t.Fatal(err)
	}
	if h := r.requests()[0].header; h.Get("X-Amz-Trailer") != "x-amz-checksum-crc32" {
		t.Errorf("trailer %q", h.Get("X-Amz-Trailer"))
	}
}

func TestUnquotedOnTheWire(t *testing.T) {
	r, b := record(t, false, s3.Config{Quirks: s3.Quirks{ETagUnquoted: true}}, stored)
	if _, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfIs(`"old"`)); err != nil {
		t.Fatal(err)
	}
	if got := r.requests()[0].header.Get("If-Match"); got != "old" {
		t.Errorf("If-Match is %q, want it without quotes", got)
	}
}

// TestConditionalPutIsSentOnce is the one thing on which the resolution of lost answers rests.
func TestConditionalPutIsSentOnce(t *testing.T) {
	answers := map[string]http.HandlerFunc{"cut line": cutLine, "500": failing(500, "InternalError"), "503": failing(503, "SlowDown"), "502": failing(502, ""), "409": failing(409, "ConditionalRequestConflict"), "429": failing(429, "")}
	for name, answer := range answers {
		for cond, c := range map[string]bucket.Cond{"create": bucket.IfAbsent(), "swap": bucket.IfIs(`"v"`)} {
			for scheme, secure := range map[string]bool{"http": false, "https": true} {
				t.Run(name+" "+cond+" "+scheme, func(t *testing.T) {
					r, b := record(t, secure, s3.Config{}, answer)
					_, err := b.Put(t.Context(), "k", strings.NewReader("x"), c)
					if err == nil {
						t.Fatal("no error")
					}
					if n := len(r.requests()); n != 1 {
						t.Errorf("the store has seen %d requests, want 1", n)
					}
				})
			}
		}
	}
}

// TestReadsAreRetried: the others may, and do, ask again.
func TestReadsAreRetried(t *testing.T) {
	n := 0
	r, b := record(t, false, s3.Config{}, nil)
	r.answer = func(w http.ResponseWriter, req *http.Request) {
		if n++; n == 1 {
			cutLine(w, req)
			return
		}
		stored(w, req)
	}
	o, err := b.Get(t.Context(), "k", bucket.Range{})
	if err != nil {
		t.Fatal(err)
	}
	_ = o.Body.Close()
	if diff := cmp.Diff(2, len(r.requests())); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestFailedPartsAreAborted: nothing paid is left behind, and nothing can be read.
func TestFailedPartsAreAborted(t *testing.T) {
	r, b := record(t, false, s3.Config{}, nil)
	r.answer = func(w http.ResponseWriter, req *http.Request) {
		switch q := req.URL.Query(); {
		case q.Has("uploads"):
			_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
		case q.Get("partNumber") == "2":
			failing(400, "InvalidArgument")(w, req)
		case req.Method == "DELETE":
			w.WriteHeader(http.StatusNoContent)
		default:
			stored(w, req)
		}
	}
	_, err := b.Put(t.Context(), "k", strings.NewReader(strings.Repeat("x", 40<<20)), bucket.Always())
	if !bucket.Is(err, bucket.BadKey) {
		t.Errorf("got %v", err)
	}
	aborted := false
	for _, s := range r.requests() {
		aborted = aborted || s.method == "DELETE" && strings.Contains(s.query, "uploadId=u1")
		if s.method == "POST" && strings.Contains(s.query, "uploadId=u1") {
			t.Error("a failed upload was completed")
		}
		if sum := sha256.Sum256([]byte(s.body)); s.method == "PUT" && int64(len(s.body)) == s.length && s.header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]) {
			t.Error("a part went up without a checksum of its bytes")
		}
	}
	if !aborted {
		t.Error("the upload was not aborted")
	}
}
