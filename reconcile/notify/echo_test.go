package notify_test

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/reconcile/notify"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// What a server answers can hold the URL that it was asked: no part of that reaches the log.
func TestAnEchoOfTheURLIsNotLogged(t *testing.T) {
	const hidden = "T0SECRETT0"
	for name, answer := range map[string]string{
		"no HTTP":         "%s\r\n\r\n",
		"no status":       "HTTP/1.1 %s\r\n\r\n",
		"a place":         "HTTP/1.1 302 Found\r\nLocation: http://[%s\r\n\r\n",
		"a header":        "HTTP/1.1 200 OK\r\n%s\r\n\r\n",
		"a body's coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				line, _ := bufio.NewReader(c).ReadString('\n')
				fmt.Fprintf(c, answer, strings.TrimSpace(line))
				_ = c.Close()
			}
		})
		var mu sync.Mutex
		var log bytes.Buffer
		s := notify.New(t.Context(), notify.Config{Bucket: mem.New(), Log: slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil)),
			Secret: func(string) (string, bool) {
				return "http://" + l.Addr().String() + "/services/" + hidden + "?token=" + hidden, true
			}})
		s.Offer(rules(), nil)
		deadline := time.Now().Add(20 * time.Second)
		for k := 0; time.Now().Before(deadline) && k < 30; k++ {
			s.Offer(rules(), failed("a"))
			<-time.After(10 * time.Millisecond)
		}
		s.Close()
		_ = l.Close()
		wg.Wait()
		mu.Lock()
		if text := log.String(); strings.Contains(text, hidden) || text == "" {
			t.Errorf("%s: %s", name, text)
		}
		mu.Unlock()
	}
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
