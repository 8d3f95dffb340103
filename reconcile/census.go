package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

const (
	censusEvery   = 10 * time.Minute // between two questions to the platforms what they run for us
	censusTimeout = 30 * time.Second // for one platform's answer
	censusLooks   = 200              // instances whose records one census reads at most; the rest come in the next
)

// Orphan is an instance that a platform lists as ours and that nothing in the store explains: no lease that its dispatch
// holds, no dispatch whose worker is still waited for, no receipt that is being released. It costs money. Texts are made
// safe to print.
type Orphan struct {
	Platform string      `json:"platform"`
	Work     plan.Digest `json:"work"`
	Dispatch int64       `json:"dispatch"`
	Job      string      `json:"job,omitempty"` // as its claim called it
	// Age is how long ago its dispatch was claimed, by the store's stamps; 0: no claim of this store is known.
	Age time.Duration `json:"age_ns,omitempty"`
	// Since is the store's stamp of that claim.
	Since time.Time `json:"since,omitzero"`
	Text  string    `json:"text,omitempty"` // what the platform calls it
	// Price is what is known of what it costs per hour, as the platform says or as the plan bounds it; or "price unknown".
	Price string `json:"price"`
	Why   string `json:"why"` // why nothing explains it, one clause
	End   string `json:"end"` // how to end it, one sentence
	// Ours: its claim lies in this store, names this platform, and is over, so that the loop releases it by itself.
	Ours bool `json:"ours"`
}

func (o Orphan) key() string {
	return fmt.Sprintf("%s %s/%d %s", o.Platform, o.Work, o.Dispatch, o.Text)
}

// papers is what the store holds of a listed instance's dispatch.
type papers struct {
	claim    *record.Claim // nil: none that can be read
	receipt  *record.Receipt
	settled  string // newest answer to a release
	age      time.Duration
	since    time.Time      // the store's stamp of the claim
	lease    witness.Record // zero: absent
	lost     string         // why there is no lease that says anything, though one was taken, or ""
	bad      string         // why its launch records cannot be interpreted, or ""
	noVerify string         // why the store could not be read, or ""
}

// explain says why nothing explains an instance, or "" when something does. twins is how many instances of the same
// dispatch are listed. sure: no worker of it may take or hold the lease any more, so ending it disturbs nobody. Pure.
func (p papers) explain(platform string, dispatch int64, handle json.RawMessage, twins int) (why string, sure bool) {
	l := p.lease
	window := capturePrior
	if p.claim != nil && p.claim.CaptureS > 0 {
		window = time.Duration(min(p.claim.CaptureS, 7*86400) * float64(time.Second))
	}
	told := p.receipt != nil && p.receipt.OK && sameHandle(p.receipt.Handle, handle)
	switch {
	case p.noVerify != "":
		return "", false
	case p.bad != "" && l.State == witness.Held && l.Dispatch == dispatch && twins == 1:
		return "", false
	case p.bad != "":
		return "its launch records cannot be read: " + shown(p.bad, 300), false
	case p.claim == nil:
		return "no claim of this store names it: it is of another store, or its record was removed", false
	case p.claim.Platform != platform:
		return fmt.Sprintf("its claim went to platform %s", shown(p.claim.Platform, 60)), false
	case l.State == witness.Held && l.Dispatch == dispatch:
		if twins > 1 && !told {
			return "its launch started twice, and one of the two holds the lease", false
		}
		return "", false
	case l.State == witness.Finished:
		return fmt.Sprintf("its work was finished by attempt %d", l.Attempt), true
	case dispatch > l.Dispatch && dispatch >= l.Floor && p.age < window:
		return "", false // it may take the lease yet
	case p.lost != "":
		return p.lost, false // whoever looks dead may hold it: nothing is released
	case told && p.settled == "" && dispatch > l.Dispatch && dispatch < l.Floor && p.age >= window+censusEvery:
		return "its work was stopped, and nobody has released it since", true // struck off, perhaps, before its receipt was there
	case told && p.settled != runners.Closed.String() && dispatch > l.Dispatch:
		return "", false // nobody captured for it, and its receipt is open: it is being released
	case dispatch < l.Floor:
		return "its work was stopped", true
	case l.State == witness.Held:
		return fmt.Sprintf("dispatch %d holds the lease", l.Dispatch), true
	case dispatch <= l.Dispatch:
		return "its lease is over", true
	}
	return "no worker of it took the lease in time", true
}

func sameHandle(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// Listing is what one platform says that it runs for us, and which of that nothing explains.
type Listing struct {
	Platform string
	Lists    bool // it can tell; false: nothing else is known
	Running  int
	Launches map[plan.Digest]int64 // the newest dispatch of each work that it lists; at most as many as are looked up
	Orphans  []Orphan
	Err      error // it did not answer
}

// Listings asks every platform that can tell what it runs for us, and the store what explains it. It writes nothing. One
// look can show an instance that is just leaving; see [Twice].
func (r *Reconciler) Listings(ctx context.Context, platforms map[string]plan.Platform) []Listing {
	return r.listings(ctx, platforms, nil)
}

// Orphans are those of all Listings. What could not be asked is in the error, beside the orphans of the others.
func (r *Reconciler) Orphans(ctx context.Context, platforms map[string]plan.Platform) ([]Orphan, error) {
	return orphansOf(r.listings(ctx, platforms, nil))
}

func orphansOf(list []Listing) (out []Orphan, err error) {
	var errs []error
	for _, l := range list {
		out = append(out, l.Orphans...)
		if l.Err != nil {
			errs = append(errs, fmt.Errorf("list what runs on %s: %w", l.Platform, l.Err))
		}
	}
	return out, errors.Join(errs...)
}

// Twice returns the orphans of now that an earlier look has shown as well: the others may be about to leave by themselves.
func Twice(earlier, now []Orphan) []Orphan {
	seen := map[string]bool{}
	for _, o := range earlier {
		seen[o.key()] = true
	}
	return slices.DeleteFunc(slices.Clone(now), func(o Orphan) bool { return !seen[o.key()] })
}

// listings does it. held are dispatches that are known to hold their lease: they are not looked up.
func (r *Reconciler) listings(ctx context.Context, platforms map[string]plan.Platform, held map[plan.Digest]int64) []Listing {
	var out []Listing
	looks := 0
	for _, name := range sortedNames(platforms) {
		lister, can := r.c.Runners[name].(runners.Lister)
		l := Listing{Platform: name, Lists: can}
		if can {
			var listed []runners.Running
			listed, l.Err = listRunning(ctx, lister)
			l.Running = len(listed)
			conf := platforms[name]
			conf.Name = name
			l.Launches = launchesOf(listed)
			l.Orphans = r.unexplained(ctx, conf, listed, held, &looks)
		}
		out = append(out, l)
	}
	return out
}

// launchesOf is the newest dispatch of each work that is listed, as far as labels are of our form.
func launchesOf(listed []runners.Running) map[plan.Digest]int64 {
	out := map[plan.Digest]int64{}
	for _, in := range listed[:min(len(listed), censusLooks)] {
		if len(in.Work) == 64 && in.Dispatch <= runners.MaxDispatch {
			w := plan.Digest(in.Work)
			out[w] = max(out[w], in.Dispatch)
		}
	}
	return out
}

// unexplained looks up what explains the instances that one platform lists.
func (r *Reconciler) unexplained(ctx context.Context, conf plan.Platform, listed []runners.Running, held map[plan.Digest]int64, looks *int) (out []Orphan) {
	name, twins := conf.Name, map[askKey]int{}
	for _, in := range listed {
		twins[askKey{plan.Digest(in.Work), in.Dispatch}]++
	}
	for _, in := range listed {
		k := askKey{plan.Digest(in.Work), in.Dispatch}
		if held[k.work] == k.n && k.n > 0 && twins[k] == 1 {
			continue
		}
		if *looks++; *looks > censusLooks {
			break
		}
		o := Orphan{Platform: name, Work: plan.Digest(shown(in.Work, 64)), Dispatch: in.Dispatch, Text: shown(in.Text, 200)}
		p := r.papers(ctx, in.Work, in.Dispatch)
		o.Price = priceOf(in, p, conf)
		if o.Why, o.Ours = p.explain(name, in.Dispatch, in.Handle, twins[k]); o.Why == "" {
			continue
		}
		if p.claim != nil {
			o.Age, o.Since, o.Job = p.age, p.since, shown(p.claim.Job, 100)
		}
		// By its work: the job's name may mean other work by now, with a dispatch of the same number.
		release := fmt.Sprintf("headway release %s --dispatch %d", o.Work.Short(), o.Dispatch)
		switch {
		case o.Ours:
			o.End = release
		case p.lost != "" && o.Why == p.lost:
			o.End = "headway doctor --deep says how to mend the lease; if nobody needs what it does: " + release
		default:
			o.End = "end it at the platform by hand: " + o.Text
		}
		out = append(out, o)
	}
	return out
}

func sortedNames(platforms map[string]plan.Platform) []string {
	out := make([]string, 0, len(platforms))
	for name := range platforms {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// priceOf is what is known of an instance's price per hour: as its platform lists it, as its launch said or was expected, else
// as the plan says or bounds it.
func priceOf(in runners.Running, p papers, conf plan.Platform) string {
	if in.Price != "" {
		return shown(in.Price, 40) + " per hour"
	}
	if r := (&slip{claim: p.claim, receipt: p.receipt}).rate(); r != nil {
		return r.String()
	}
	if known := (&platform{conf: conf}).expected(); known != nil {
		return rateOf(*known).String()
	}
	return "price unknown"
}

// listRunning asks one platform. A plugin that panics has not answered.
func listRunning(ctx context.Context, l runners.Lister) (out []runners.Running, err error) {
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("the runner panicked: %s", shown(fmt.Sprint(p), 200))
		}
	}()
	return l.Running(ctx)
}

// papers reads what the store holds of one dispatch: a GET for the lease, a LIST and a few GETs for the rest.
func (r *Reconciler) papers(ctx context.Context, work string, dispatch int64) (p papers) {
	if len(work) != 64 || strings.Trim(work, "0123456789abcdef") != "" || dispatch < 1 || dispatch > runners.MaxDispatch {
		return papers{} // a label that is none of ours
	}
	// The claim first: a lease that is taken between the two reads is then seen.
	list, err := runners.Dispatcher{Bucket: r.b}.ReadClaims(ctx, work, dispatch-1, 1)
	if err != nil {
		return papers{noVerify: err.Error()}
	}
	if len(list) > 0 && list[0].N == dispatch && list[0].Bad == "" {
		d := list[0]
		p.claim, p.receipt = &d.Claim, d.Receipt
		if d.Release != nil {
			p.settled = d.Release.Settlement
		}
		info, err := r.b.List(ctx, record.ClaimKey(work, dispatch), "", 1)
		if err != nil || len(info.Items) == 0 {
			return papers{noVerify: "its claim could not be listed"}
		}
		p.since = info.Items[0].Modified
		p.age = r.records.ages.age(record.ClaimKey(work, dispatch), info.Items[0].Modified, info.Date, ancient)
	} else if len(list) > 0 && list[0].N == dispatch {
		p.bad = list[0].Bad // stays what it is: no answer of the store
	}
	seen, err := witness.Read(ctx, r.b, work)
	unreadable, bad := errors.AsType[*witness.Unreadable](err)
	switch {
	case errors.Is(err, witness.ErrAbsent) && p.claim != nil:
		// Whoever has taken a lease has written an attempt, or is about to.
		if page, err := r.b.List(ctx, record.AttemptsPrefix(work), "", 1); err != nil {
			return papers{noVerify: err.Error()}
		} else if len(page.Items) > 0 {
			p.lost = "its work has attempts and no lease any more, so nobody judges or releases it"
		}
	case errors.Is(err, witness.ErrAbsent):
	case bad:
		p.lost = "the lease of its work cannot be read, so nobody judges or releases it: " + shown(unreadable.Error(), 300)
	case err != nil:
		return papers{noVerify: err.Error()}
	default:
		p.lease = seen.Record
	}
	return p
}
