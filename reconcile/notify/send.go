package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
)

// How much of a message is shown.
const (
	slackLines = 20
	jsonEvents = 100
	maxReason  = 300
	maxBody    = 128 << 10
)

// failure is a try that did not succeed. It never holds the URL: whoever knows it can post there.
type failure struct {
	text  string
	final bool          // trying again would not help
	after time.Duration // what the server asked for; 0: nothing
}

func (f *failure) Error() string { return f.text }

// Check says why a variable's value is no place to send to, without a word of the value; nil: it is one. set: the variable
// is in the environment.
func Check(name, value string, set bool) error {
	_, err := placeOf(name, value, set)
	return err
}

// placeOf is where a rule sends to: https, or http to this machine.
func placeOf(name, value string, set bool) (string, error) {
	if !set {
		return "", fmt.Errorf("the variable %s is not set: set it to the webhook's URL and start again", name)
	}
	u, err := url.Parse(strings.TrimSpace(value))
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("the variable %s holds no URL", name)
	}
	if here := net.ParseIP(u.Hostname()); u.Scheme != "https" && !(u.Scheme == "http" && (u.Hostname() == "localhost" || here != nil && here.IsLoopback())) {
		return "", fmt.Errorf("the URL in %s is neither https nor on this machine: everybody on the way could read it", name)
	}
	return u.String(), nil
}

func (l *lane) url() (string, error) {
	v, ok := l.s.c.Secret(l.rule.Secret)
	return placeOf(l.rule.Secret, v, ok)
}

// post sends one message once.
func (s *Sender) post(ctx context.Context, to string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return &failure{text: "no request can be made of the URL", final: true}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "headway")
	r, err := s.client.Do(req)
	if err != nil {
		return &failure{text: runners.Bound(strings.ReplaceAll(unanswered(err), to, "the URL"), 300)}
	}
	defer r.Body.Close()
	_, _ = io.CopyN(io.Discard, r.Body, 64<<10) // what it says is not quoted: it could echo the URL
	if r.StatusCode/100 == 2 {
		return nil
	}
	f := &failure{text: fmt.Sprintf("the answer was %d %s", r.StatusCode, http.StatusText(r.StatusCode))}
	switch r.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		f.after = retryAfter(r.Header.Get("Retry-After"), time.Now())
	case http.StatusRequestTimeout, http.StatusTooEarly:
	default:
		f.final = r.StatusCode/100 != 5
	}
	return f
}

// unanswered says why there is no answer. What the server said is never quoted: it can hold the URL that it was asked for.
func unanswered(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the rest is the URL
	}
	_, network := errors.AsType[*net.OpError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	slow, timed := errors.AsType[net.Error](err)
	switch {
	case network, certificate, timed && slow.Timeout(), errors.Is(err, io.EOF), errors.Is(err, context.Canceled), errors.Is(err, http.ErrSchemeMismatch):
		return err.Error()
	}
	return "no answer of HTTP that could be read"
}

// retryAfter reads seconds or a date; 0: neither.
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
		return min(max(time.Duration(min(n, 1<<20))*time.Second, 0), maxAfter)
	}
	if at, err := http.ParseTime(s); err == nil {
		return min(max(at.Sub(now), 0), maxAfter)
	}
	return 0
}

// safe is an event whose texts may be printed and sent.
func (e Event) safe() Event {
	clean := func(s string, n int) string { return runners.Bound(runners.Sanitize([]byte(plan.Redact(s))), n) }
	e.Job, e.Work, e.Platform, e.Reason = clean(e.Job, 128), clean(e.Work, 64), clean(e.Platform, 128), clean(e.Reason, maxReason)
	return e
}

// line is an event as people read it.
func (e Event) line() string {
	what := "platform " + e.Platform
	if e.Job != "" || e.Work != "" {
		what = e.Job
		if len(e.Work) >= 12 {
			what = strings.TrimSpace(what + " (work " + e.Work[:12] + ")")
		}
	}
	s := what + ": " + e.What
	if e.Attempt > 0 {
		s += fmt.Sprintf(" (attempt %d)", e.Attempt)
	}
	if e.Platform != "" && !strings.HasPrefix(what, "platform ") {
		s += " on " + e.Platform
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// slackText keeps a text from being markup: neither a link, nor a mention, nor a call to a whole channel.
func slackText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "@\u200b").Replace(s)
}

// message is what is sent of events that happened together.
func message(form, planName, dispatcher string, events []Event) []byte {
	var v any
	if form == "slack" {
		var s strings.Builder
		s.WriteString("headway")
		if planName != "" {
			s.WriteString(" " + slackText(planName))
		}
		if len(events) > 1 {
			fmt.Fprintf(&s, ": %d events", len(events))
		}
		for i, e := range events {
			if i == slackLines {
				fmt.Fprintf(&s, "\nand %d more", len(events)-i)
				break
			}
			s.WriteString("\n" + slackText(e.safe().line()))
		}
		v = map[string]any{"text": s.String(), "mrkdwn": false, "link_names": false, "unfurl_links": false, "unfurl_media": false}
	} else {
		shown := make([]Event, 0, min(len(events), jsonEvents))
		for _, e := range events[:min(len(events), jsonEvents)] {
			shown = append(shown, e.safe())
		}
		v = map[string]any{"format_version": "1.0", "plan": planName, "dispatcher": dispatcher, "count": len(events), "omitted": len(events) - len(shown), "events": shown}
	}
	b, err := json.Marshal(v)
	if err != nil || len(b) > maxBody {
		b = []byte(fmt.Sprintf(`{"text":"headway: %d events, too long to be sent"}`, len(events)))
	}
	return b
}
