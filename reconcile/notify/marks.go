package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// since is notify/<rule>/since.json: what held when a dispatcher first saw the rule, which is not told.
type since struct {
	Protocol int      `json:"protocol"`
	To       string   `json:"to"` // the secret's name
	Form     string   `json:"form"`
	On       []string `json:"on"`
	Marks    []string `json:"marks"`
	Time     string   `json:"time"` // for people
}

// marker is notify/<rule>/<mark>: an event that one dispatcher tells of.
type marker struct {
	Protocol   int    `json:"protocol"`
	Nonce      string `json:"nonce"` // of the dispatcher's try: settles a lost answer
	Dispatcher string `json:"dispatcher"`
	Event
	Time string `json:"time"` // for people
}

// maxSince bounds since.json: 100,000 marks of 32 digits.
const maxSince = 5 << 20

const sinceName = "since.json"

func (l *lane) prefix() string { return Prefix + l.id + "/" }

// begin learns what needs no message: what held when the rule was new, and what has a marker.
func (l *lane) begin(ctx context.Context) error {
	known := map[string]bool{}
	body, err := record.Encode(since{Protocol: record.Protocol, To: l.rule.Secret, Form: l.rule.Form, On: l.rule.On, Marks: l.first, Time: now()})
	if err != nil {
		return err
	}
	_, err = l.s.c.Bucket.Put(ctx, l.prefix()+sinceName, bytes.NewReader(body), bucket.IfAbsent())
	if err != nil && !bucket.Is(err, bucket.Condition) {
		return err // also an answer that was lost: the next try finds what is there
	}
	var first since
	if err := l.get(ctx, l.prefix()+sinceName, maxSince, &first); err != nil {
		return err
	}
	for _, m := range first.Marks {
		known[m] = true
	}
	for after := ""; ; {
		p, err := l.s.c.Bucket.List(ctx, l.prefix(), after, 0)
		if err != nil {
			return err
		}
		for _, it := range p.Items {
			after = it.Key
			known[strings.TrimPrefix(it.Key, l.prefix())] = true
		}
		if !p.More || len(p.Items) == 0 {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.first = known, nil
	return nil
}

// claim takes what is pending and creates the markers. It returns the events that are ours to tell; what the store did not
// answer for is pending again.
func (l *lane) claim(ctx context.Context) (ours []Event, err error) {
	l.mu.Lock()
	pending := l.pending
	l.pending, l.queued = nil, map[string]bool{}
	taken := make([]Event, 0, len(pending))
	for _, e := range pending {
		if !l.known[e.mark()] {
			taken = append(taken, e)
			l.queued[e.mark()] = true // not to be offered again meanwhile
		}
	}
	l.mu.Unlock()
	won, errs := make([]bool, len(taken)), make([]error, len(taken))
	var wg sync.WaitGroup
	gate := make(chan struct{}, 16)
	for i, e := range taken {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			won[i], errs[i] = l.create(ctx, e)
		})
	}
	wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range taken {
		delete(l.queued, e.mark())
		switch {
		case errs[i] != nil:
			err = errs[i]
			continue // a later pass offers it again
		case won[i]:
			ours = append(ours, e)
		}
		l.known[e.mark()] = true
	}
	return ours, err
}

// create makes the marker of one event, and says whether it is ours.
func (l *lane) create(ctx context.Context, e Event) (bool, error) {
	m := marker{Protocol: record.Protocol, Nonce: record.Nonce(), Dispatcher: l.s.c.Dispatcher, Event: e, Time: now()}
	m.Event = e.safe()
	body, err := record.Encode(m)
	if err != nil {
		return false, err
	}
	key := l.prefix() + e.mark()
	for range 3 {
		_, err = l.s.c.Bucket.Put(ctx, key, bytes.NewReader(body), bucket.IfAbsent())
		switch {
		case err == nil:
			return true, nil
		case bucket.Is(err, bucket.Raced):
			continue
		case !bucket.Is(err, bucket.Condition) && bucket.CodeOf(err) != bucket.Unknown:
			return false, err
		}
		var there marker
		switch gerr := l.get(ctx, key, record.MaxRecord, &there); {
		case gerr == nil:
			return there.Nonce == m.Nonce, nil
		case bucket.Is(gerr, bucket.NotFound) && bucket.CodeOf(err) == bucket.Unknown:
			continue // it did not land, and may do so yet: asked again with the same bytes
		case isStore(gerr):
			return false, gerr
		default:
			return false, nil // whatever lies there, it is not ours
		}
	}
	return false, err
}

// get reads one JSON object.
func (l *lane) get(ctx context.Context, key string, most int64, v any) error {
	o, err := l.s.c.Bucket.Get(ctx, key, bucket.Range{})
	if err != nil {
		return err
	}
	defer o.Body.Close()
	b, err := io.ReadAll(io.LimitReader(o.Body, most+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	if err := record.Decode(b, int(most), v); err != nil {
		return fmt.Errorf("%s is damaged (delete it to begin this rule anew: %w)", key, err)
	}
	return nil
}

func isStore(err error) bool {
	_, is := errors.AsType[*bucket.Error](err)
	return is
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }
