package ring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// canary is the proof that a ring serves: rounds of a session, a request and its closed receipt, the last after an idle
// gap, each answer within the deadline and as expected, and every stage as before in the end. The first good answer
// proves nothing: a head with two generations dies of the first release, and health stays green while a stage is frozen.
func (l *Loader) canary(ctx context.Context, p *Plan, prompts []Prompt, route Route, i *Intent) error {
	if len(prompts) == 0 {
		return errors.New("there are no prompts: nothing can be proven")
	}
	for n := range max(p.Canary.Rounds, 3) {
		if n == max(p.Canary.Rounds, 3)-1 {
			if err := pause(ctx, p.Canary.Gap); err != nil {
				return err
			}
		}
		if err := l.round(ctx, p, prompts[n%len(prompts)], route, n+1); err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
	}
	r := run{Loader: l}
	if found := find(i, r.survey(ctx, i), nil); count(found)[Loaded] != len(found) {
		return fmt.Errorf("every answer was good, and then: %s", list(found, Missing, Loading, Broken, Stranger, Unclear, Unseen))
	}
	return nil
}

// round is one session with one request.
func (l *Loader) round(ctx context.Context, p *Plan, q Prompt, route Route, n int) (err error) {
	within := func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, p.Canary.Deadline) }
	open, cancel := within()
	defer cancel()
	began := time.Now()
	s, err := l.Engine.Session(open, route)
	if err != nil {
		return silence(open, err, NoAnswer{To: route.Via, What: "session", After: time.Since(began)})
	}
	defer func() { // a client that leaves without FINISH leaks a slot for ever
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Canary.Deadline)
		defer cancel()
		began := time.Now()
		gone := s.Finish(end)
		err = errors.Join(err, silence(end, gone, NoAnswer{To: route.Via, What: "finish", After: time.Since(began)}))
	}()
	ask, cancel := within()
	defer cancel()
	began = time.Now()
	reply, err := s.Request(ask, Query{ID: fmt.Sprintf("canary-%d-%d", route.Load, n), Prompt: []byte(q.Text), MaxTokens: q.MaxTokens})
	if err != nil {
		return silence(ask, err, NoAnswer{To: route.Via, What: "request", After: time.Since(began)})
	}
	switch {
	case reply.Count <= 0 || len(reply.Text) == 0:
		return fmt.Errorf("the reply is empty (%d tokens, %d bytes): expected an answer", reply.Count, len(reply.Text))
	case reply.Stop != p.Canary.Finish:
		return fmt.Errorf("the reply ended by %q after %d tokens, expected %q: is the prompt rendered in the model's turn format?", clip(string(reply.Stop)), reply.Count, p.Canary.Finish)
	case !bytes.Contains(reply.Text, []byte(q.Want)):
		return fmt.Errorf("the reply is %q, expected %q in it", clip(string(reply.Text)), q.Want)
	}
	settle, cancel := within()
	defer cancel()
	began = time.Now()
	receipt, err := s.Settle(settle, reply)
	switch {
	case err != nil:
		return silence(settle, err, NoAnswer{To: route.Via, What: "receipt", After: time.Since(began)})
	case receipt.ID != reply.ID:
		return fmt.Errorf("the receipt that was closed is of request %q, expected %q", clip(receipt.ID), clip(reply.ID))
	case receipt.Generation != route.Load || receipt.Stages != len(route.Stages):
		return fmt.Errorf("the receipt was closed by %d stages at generation %d, expected %d at %d", receipt.Stages, receipt.Generation, len(route.Stages), route.Load)
	}
	return nil
}
