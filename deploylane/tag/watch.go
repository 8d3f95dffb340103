package tag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

const (
	maxTags  = 20_000 // of the lane in one repository
	maxTries = 20     // at one verdict, when other lanes write the same ledger
)

// Watch looks at the tags of one repository and keeps the ledgers. Not safe for several goroutines; other processes may
// watch the same repository with the same store.
type Watch struct {
	Git   Git
	Keys  Keys
	Facts Facts
	Store bucket.Bucket // the lane's own
	Seal  Seal          // of its ledgers
	Repo  string        // canonical id of the repository, as the trailer Repo says it
	Roots []string      // fingerprints of the keys that may change who signs; of the lane's own configuration, never of the repository

	ledgers map[string]*Ledger
}

// Look is what one look found.
type Look struct {
	Tip    string // of the protected branch
	Policy *Policy
	Models []Model // by name
}

// Model is what a look found of one model.
type Model struct {
	Name    string  // "_": names that no model can have
	Entries []Entry // the whole ledger
	New     []Entry // verdicts and notes of this look, also those that another lane wrote since the one before
	Gone    []Entry // accepted tags that are no longer there: nothing follows from it
	Trouble []error // tags without a verdict: the next look tries again
}

// Look looks once. now is our clock: a key must be valid at the first sight of a tag, whatever date the tag gives itself.
// An error means that no tag was judged: the repository or the store is away, or nobody can be trusted at present
// (*Untrusted). What happens to one model or one tag is its Trouble and keeps nobody else waiting.
func (w *Watch) Look(ctx context.Context, now time.Time) (*Look, error) {
	refs, err := w.Git.Tags(ctx)
	if err != nil {
		return nil, err
	}
	if len(refs) > maxTags {
		return nil, fmt.Errorf("the repository has %d tags of the lane, at most %d are looked at: delete those that the ledger has", len(refs), maxTags)
	}
	tip, err := w.Git.Tip(ctx)
	if err != nil {
		return nil, err
	}
	t, err := readTrust(ctx, w.Git, w.Keys, w.Roots, tip)
	if err != nil {
		return nil, err
	}
	if w.ledgers == nil {
		models, err := Models(ctx, w.Store)
		if err != nil {
			return nil, err
		}
		w.ledgers = map[string]*Ledger{}
		for _, name := range models {
			w.ledgers[name] = nil // there is one, and it was not read yet
		}
	}
	models := slices.Collect(maps.Keys(w.ledgers))
	by := map[string][]Ref{}
	for _, r := range refs {
		if !slices.ContainsFunc(Prefixes(), func(p string) bool { return strings.HasPrefix(r.Name, p) }) {
			continue
		}
		name := cmp.Or(modelOf(r.Name), nameless)
		by[name] = append(by[name], r)
		models = append(models, name)
	}
	slices.Sort(models)
	out := &Look{Tip: tip, Policy: t.policy}
	for _, name := range slices.Compact(models) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out.Models = append(out.Models, w.model(ctx, name, by[name], t, tip, now))
	}
	return out, nil
}

func (w *Watch) model(ctx context.Context, name string, refs []Ref, t *trust, tip string, now time.Time) (m Model) {
	m.Name = name
	l, known := w.ledgers[name], -1 // what lies there at the first look is nothing new
	if l == nil {
		l = OpenLedger(w.Store, w.Seal, name)
		w.ledgers[name] = l
	} else {
		known = len(l.Entries())
	}
	err := l.Read(ctx)
	if known < 0 {
		known = len(l.Entries())
	}
	defer func() {
		m.Entries = slices.Clone(l.Entries())
		m.New = m.Entries[known:]
	}()
	if err == nil {
		err = wentBack(ctx, w.Git, l.Entries(), t)
	}
	if err != nil {
		m.Trouble = append(m.Trouble, err)
		return m
	}
	slices.SortFunc(refs, inOrder)
	for _, r := range refs {
		if err := w.tag(ctx, l, r, t, tip, now); err != nil {
			m.Trouble = append(m.Trouble, fmt.Errorf("%s: %w", clip(strings.TrimPrefix(r.Name, refTags)), err))
		}
	}
	m.Gone, err = gone(ctx, l, refs, now)
	if err != nil {
		m.Trouble = append(m.Trouble, err)
	}
	return m
}

// inOrder puts releases before stage tags, lower versions and numbers first.
func inOrder(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Name[:len(refTags)+1], b.Name[:len(refTags)+1]), compareLast(a.Name, b.Name), cmp.Compare(a.Name, b.Name))
}

func compareLast(a, b string) int {
	a, b = a[strings.LastIndexByte(a, '/')+1:], b[strings.LastIndexByte(b, '/')+1:]
	v, errA := ParseVersion(a)
	w, errB := ParseVersion(b)
	if errA == nil && errB == nil {
		return v.Compare(w)
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// tag sees to it that the ledger has a verdict on a tag. One that it has is never looked at again.
func (w *Watch) tag(ctx context.Context, l *Ledger, r Ref, t *trust, tip string, now time.Time) error {
	for range maxTries {
		if l.known[[2]string{r.Name, r.Object}] {
			return nil
		}
		q := &inquiry{ref: r, now: now, repo: w.Repo, policy: t.policy, verify: t.verify, entries: l.Entries()}
		verdict, err := (&judgement{w.Git, w.Facts, tip}).judge(ctx, q)
		if err != nil {
			return err
		}
		switch _, err := l.append(ctx, q.entry(verdict, t)); {
		case err == nil:
			return nil
		case !errors.Is(err, errLost):
			return err
		}
		if err := l.Read(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("other lanes wrote the ledger %d times meanwhile: it is judged at the next look", maxTries)
}

// gone finds the accepted tags that are not there any more, and notes each once.
func gone(ctx context.Context, l *Ledger, refs []Ref, now time.Time) (out []Entry, err error) {
	there := map[string]bool{}
	for _, r := range refs {
		there[r.Name] = true
	}
	for _, e := range slices.Clone(l.Entries()) {
		if e.Code != Accepted || there[e.Ref] {
			continue
		}
		out = append(out, e)
		note := refuse(TagDeleted, "tag", strings.TrimPrefix(e.Ref, refTags), "object", short(e.Object))
		for range maxTries {
			if _, noted := first(l.Entries(), e.Ref); noted {
				err = nil
				break
			}
			_, err = l.append(ctx, Entry{Ref: e.Ref, Object: e.Object, Code: note.Code, Text: note.Text, Seen: now.UTC().Format(time.RFC3339)})
			if !errors.Is(err, errLost) {
				break
			}
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}
