package proxy

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
)

// answerLimit bounds one answer of the store. The server is on this machine.
const answerLimit = 30 * time.Second

// forward sends a request on and reads the whole answer, whatever became of the client. whole is the body as it was
// meant, body what is sent of it. A write is written down before the next one of its key passes.
func (p *Proxy) forward(r *http.Request, q Request, body io.Reader, whole []byte, text string) (answer, error) {
	if q.Write() {
		lock, _ := p.keys.LoadOrStore(q.Key, &sync.Mutex{})
		mu := lock.(*sync.Mutex)
		mu.Lock()
		defer mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerLimit)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, r.Method, "http://"+p.c.Upstream+r.URL.RequestURI(), body)
	if err != nil {
		return answer{}, err
	}
	out.Header, out.Host, out.ContentLength = r.Header.Clone(), r.Host, int64(len(whole))
	for _, hop := range []string{"Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade", "Expect"} {
		out.Header.Del(hop) // of the connection, never signed
	}
	if len(whole) == 0 {
		out.Body, out.ContentLength = http.NoBody, 0
	}
	a, err := p.ask(out)
	if err != nil {
		p.say(q, "the server: %v", err)
	}
	if q.Write() {
		p.note(r, q, whole, a, err, text)
	}
	return a, err
}

func (p *Proxy) ask(out *http.Request) (answer, error) {
	resp, err := p.up.RoundTrip(out)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return answer{resp.StatusCode, resp.Header, body}, err
}

// note writes a write down: as the store answered it or, where it did not, as the server's files have it.
func (p *Proxy) note(r *http.Request, q Request, body []byte, a answer, err error, text string) {
	e := history.Entry{Actor: q.Who, Op: history.Put, Key: q.Key, Cond: condition(r), Body: body, Text: text}
	if q.Method == http.MethodDelete {
		e.Op, e.Body = history.Delete, nil
	}
	switch {
	case err == nil && a.status < 300:
		e.Version = bucket.Version(a.header.Get("ETag"))
	case err == nil && a.status < 500:
		e.Refused, e.Code = true, code(a, e.Cond)
	default: // in doubt
		if !p.landed(e) {
			p.Note(q.Who, strings.TrimSpace(fmt.Sprintf("%s %s never reached the store. %s", q.Method, q.Key, text)))
			return
		}
		sum := md5.Sum(body)
		e.Version = bucket.Version(`"` + hex.EncodeToString(sum[:]) + `"`)
		e.Text = strings.TrimSpace(e.Text + " landed, without the server's answer")
	}
	if e.Applied() && e.Op == history.Put {
		p.sums.Store(e.Key, md5.Sum(body))
	} else if e.Applied() {
		p.sums.Delete(e.Key)
	}
	p.enter(e)
}

// landed looks whether a write in doubt is in the server's files, and was not there before. Where equal bytes are written
// again it can't be told, and makes no difference: nobody writes a lease with bytes that it had before.
func (p *Proxy) landed(e history.Entry) bool {
	if p.c.Stored == nil {
		return false
	}
	stored, found := p.c.Stored(e.Key)
	before, was := p.sums.Load(e.Key)
	if e.Op == history.Delete {
		return was && !found
	}
	return found && bytes.Equal(stored, e.Body) && !(was && before == md5.Sum(e.Body))
}

func condition(r *http.Request) bucket.Cond {
	switch {
	case r.Header.Get("If-None-Match") == "*":
		return bucket.IfAbsent()
	case r.Header.Get("If-Match") != "":
		return bucket.IfIs(bucket.Version(r.Header.Get("If-Match")))
	}
	return bucket.Always()
}

func code(a answer, c bucket.Cond) bucket.Code {
	_, swap := c.Is()
	switch {
	case a.status == http.StatusPreconditionFailed:
		return bucket.Condition
	case a.status == http.StatusConflict:
		return bucket.Raced
	case a.status == http.StatusNotFound && swap:
		return bucket.Gone
	case a.status == http.StatusForbidden || a.status == http.StatusUnauthorized:
		return bucket.Denied
	}
	return bucket.Unknown
}
