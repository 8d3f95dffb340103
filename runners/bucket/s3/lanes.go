package s3

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// lanes are connections of two kinds: those that carry much have large buffers for as long as they stay open, and a dispatcher
// that asks for thousands of records of a kilobyte has 64 open, which would be 20 MB of buffers.
type lanes struct{ small, bulk *http.Transport }

// A request whose body has so many bytes goes over a connection with large buffers. What is read in larger pieces than the
// small buffer holds passes it by.
const bulkFrom = 1 << 20

// newLanes makes the two kinds.
func newLanes(c Config) *lanes {
	small, bulk := transport(c), transport(c)
	small.ReadBufferSize = 16 << 10 // a page of a listing is read in a few dozen pieces
	bulk.WriteBufferSize, bulk.ReadBufferSize = 256<<10, 64<<10
	return &lanes{small, bulk}
}

// RoundTrip implements http.RoundTripper.
func (l *lanes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.ContentLength >= bulkFrom {
		return l.bulk.RoundTrip(r)
	}
	return l.small.RoundTrip(r)
}

func transport(c Config) *http.Transport {
	d := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           d.DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: max(c.Timeout, 60*time.Second), // a part is answered only when it is on the store's disk
		MaxIdleConns:          128,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       30 * time.Second,
	}
	if c.RootCAs != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12}
	}
	return t
}
