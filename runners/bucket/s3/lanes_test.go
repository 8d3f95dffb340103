package s3_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/s3"
)

// Sixty-four connections over which small records were read hold less than 100 KB each, the server's end included.
func TestConnectionsForSmallRecordsWeighLittle(t *testing.T) {
	const n = 64
	var all sync.WaitGroup // nobody is answered before everybody has asked, so that there are n connections
	all.Add(n)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all.Done()
		all.Wait()
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(srv.Close)
	b := open(t, s3.Config{Endpoint: srv.URL})
	before := live()
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for range n {
		wg.Go(func() {
			o, err := b.Get(t.Context(), "x", bucket.Range{})
			if err == nil {
				_, err = io.ReadAll(o.Body) // to its end: the connection stays open
				o.Body.Close()
			}
			errs <- err
		})
	}
	wg.Wait()
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	each := (live() - before) / n / 1000
	t.Logf("a connection weighs %d KB", each)
	if each > 100 {
		t.Errorf("a connection weighs %d KB", each)
	}
	runtime.KeepAlive(b)
}

// live is what is alive on the heap, bytes.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
