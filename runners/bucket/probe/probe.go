package probe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
)

// Options of Run. The zero value probes in full.
type Options struct {
	Store   string          // for the report
	Version string          // for the report
	Rounds  int             // of each race; 0: 10
	Width   int             // racers; 0: 8
	Doors   []bucket.Bucket // the same store by other addresses: the racers are spread over all
	HTTP    *http.Client    // for presigned URLs; nil: http.DefaultClient
}

// run is one probe on its way.
type run struct {
	b      bucket.Bucket
	doors  []bucket.Bucket
	o      Options
	prefix string
	r      *Report
	step   string
}

// Run probes a store: about 190 small requests below _probe/, removed at the end. The error is a *Refusal when the store
// cannot hold leases, and the store's own (credentials, no bucket, no connection) when nothing could be found out; the
// report says the same.
func Run(ctx context.Context, b bucket.Bucket, o Options) (Report, error) {
	return start(ctx, b, o, []step{
		{"create", (*run).create}, {"swap", (*run).swap}, {"swap of an absent key", (*run).swapAbsent}, {"equal bytes", (*run).equalBytes},
		{"create race", (*run).createRace}, {"swap race", (*run).swapRace}, {"freshness", (*run).fresh}, {"content", (*run).content},
		{"presigned URLs", (*run).presigned}, {"clocks", (*run).clocks}, {"latency", (*run).latency},
	})
}

// Quick is the part that a worker repeats from its own network, where a proxy may stand in between: nine requests.
func Quick(ctx context.Context, b bucket.Bucket, o Options) (Report, error) {
	return start(ctx, b, o, []step{{"create", (*run).create}, {"swap", (*run).swap}})
}

type step struct {
	name string
	run  func(*run, context.Context) error
}

func start(ctx context.Context, b bucket.Bucket, o Options, steps []step) (Report, error) {
	if o.Rounds < 1 {
		o.Rounds = 10
	}
	if o.Width < 2 {
		o.Width = 8
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	began := time.Now()
	c := counting.New(b)
	p := &run{b: c, doors: append([]bucket.Bucket{c}, o.Doors...), o: o, prefix: Prefix + nonce() + "/",
		r: &Report{Protocol: 1, Store: o.Store, Version: o.Version, Time: began.UTC().Format(time.RFC3339), Quirks: []string{}, Notes: []string{}}}
	defer p.clean(ctx)
	var err error
	for _, s := range steps {
		p.step = s.name
		if err = s.run(p, ctx); err != nil {
			break
		}
	}
	p.r.Requests, p.r.TookS, p.r.Pass = c.Counts().Requests(), time.Since(began).Seconds(), err == nil
	if err != nil {
		p.r.Step, p.r.Refusal = p.step, err.Error()
	}
	return *p.r, err
}

func nonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// clean removes the probe's keys, also after the caller has given up; what it cannot remove is harmless.
func (p *run) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	page, err := p.b.List(ctx, p.prefix, "", 0)
	if err != nil {
		return
	}
	for _, i := range page.Items {
		if p.b.Delete(ctx, i.Key) != nil {
			return
		}
	}
}

func (p *run) refuse(why, found string, args ...any) error {
	return &Refusal{Step: p.step, Found: fmt.Sprintf(found, args...), Why: why}
}

func (p *run) note(format string, args ...any) {
	p.r.Notes = append(p.r.Notes, fmt.Sprintf(format, args...))
}

func (p *run) quirk(name string) { p.r.Quirks = append(p.r.Quirks, name) }

// put asks again, more slowly each time, while the store says slow down or raced.
func (p *run) put(ctx context.Context, key, body string, c bucket.Cond) (bucket.Version, error) {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		v, err := p.b.Put(ctx, p.prefix+key, strings.NewReader(body), c)
		if !again(err) || wait > 5*time.Second {
			return v, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(wait):
		}
	}
}

func again(err error) bool { return bucket.Is(err, bucket.Throttled) || bucket.Is(err, bucket.Raced) }

func (p *run) get(ctx context.Context, key string, r bucket.Range) (string, *bucket.Object, error) {
	o, err := p.b.Get(ctx, p.prefix+key, r)
	if err != nil {
		return "", nil, err
	}
	data, err := io.ReadAll(io.LimitReader(o.Body, 1<<20))
	return string(data), o, errors.Join(err, o.Body.Close())
}

// holds checks the body of a key.
func (p *run) holds(ctx context.Context, key, want, why string) error {
	body, _, err := p.get(ctx, key, bucket.Range{})
	if err != nil {
		return err
	}
	if body != want {
		return p.refuse(why, "a write that the store refused has changed the object")
	}
	return nil
}

const (
	twoOwners = "two workers would both believe that they own a job"
	stalePass = "a worker that lost its lease could take it back"
)

// create: once, and only once.
func (p *run) create(ctx context.Context) error {
	_, err := p.put(ctx, "k", "first", bucket.IfAbsent())
	switch {
	case bucket.Is(err, bucket.Unsupported), bucket.Is(err, bucket.BadKey):
		return p.refuse("choose a store with conditional writes (PUT with If-None-Match and If-Match)", "it refuses conditional writes: %v", err)
	case bucket.Is(err, bucket.Condition), again(err):
		return p.refuse("its condition is inverted or broken", "a create on a fresh key was refused: %v", err)
	case err != nil:
		return err
	}
	_, err = p.put(ctx, "k", "second", bucket.IfAbsent())
	switch {
	case err == nil:
		return p.refuse(twoOwners, "it silently ignores If-None-Match")
	case !bucket.Is(err, bucket.Condition) && !again(err):
		return err
	}
	return p.holds(ctx, "k", "first", twoOwners)
}

// swap: with the version as received, and never with an old one.
func (p *run) swap(ctx context.Context) error {
	_, o, err := p.get(ctx, "k", bucket.Range{})
	if err != nil {
		return err
	}
	_, err = p.put(ctx, "k", "swapped", bucket.IfIs(o.Version))
	if bare := bucket.Version(strings.Trim(string(o.Version), `"`)); bucket.Is(err, bucket.Condition) && bare != o.Version {
		if _, bareErr := p.put(ctx, "k", "swapped", bucket.IfIs(bare)); bareErr == nil {
			p.quirk(QuirkETagUnquoted)
			return p.refuse("add quirks="+QuirkETagUnquoted+" to the store's URL, and it can", "it honours If-Match only without the quotes that it sends itself")
		}
	}
	switch {
	case bucket.Is(err, bucket.Unsupported), bucket.Is(err, bucket.BadKey), bucket.Is(err, bucket.Condition), again(err):
		return p.refuse("no lease could ever be renewed", "it refuses If-Match with the version that it gave itself: %v", err)
	case err != nil:
		return err
	}
	_, err = p.put(ctx, "k", "stale", bucket.IfIs(o.Version))
	switch {
	case err == nil:
		return p.refuse(stalePass, "it silently ignores If-Match")
	case !bucket.Is(err, bucket.Condition) && !again(err):
		return err
	}
	return p.holds(ctx, "k", "swapped", stalePass)
}

// swapAbsent: any refusal will do, so long as the key stays absent.
func (p *run) swapAbsent(ctx context.Context) error {
	_, o, err := p.get(ctx, "k", bucket.Range{})
	if err != nil {
		return err
	}
	_, putErr := p.put(ctx, "absent", "x", bucket.IfIs(o.Version))
	_, _, err = p.get(ctx, "absent", bucket.Range{})
	switch {
	case putErr == nil || err == nil:
		return p.refuse("a worker could bring back a lease that is gone", "If-Match on an absent key creates it")
	case !bucket.Is(err, bucket.NotFound):
		return err
	}
	return nil
}

// equalBytes is only worth a note: every record of ours carries something fresh.
func (p *run) equalBytes(ctx context.Context) error {
	first, err := p.put(ctx, "equal", "same", bucket.Always())
	if err != nil {
		return err
	}
	second, err := p.put(ctx, "equal", "same", bucket.Always())
	if err != nil {
		return err
	}
	p.note("equal bytes give an equal version: %v", first == second)
	return nil
}

// fresh: a read and a listing right after a write show it.
func (p *run) fresh(ctx context.Context) error {
	const why = "a cache or a lagging replica stands between, and headway would judge by old news"
	v, err := p.put(ctx, "fresh", "0", bucket.Always())
	for i := 1; err == nil && i <= 5; i++ {
		if v, err = p.put(ctx, "fresh", fmt.Sprint(i), bucket.IfIs(v)); err != nil {
			break
		}
		body, o, err := p.get(ctx, "fresh", bucket.Range{})
		if err != nil {
			return err
		}
		if body != fmt.Sprint(i) || o.Version != v {
			return p.refuse(why, "a read right after a write shows %q with version %s instead of %q with version %s", body, o.Version, fmt.Sprint(i), v)
		}
		page, err := p.b.List(ctx, p.prefix+"fresh", "", 0)
		if err != nil {
			return err
		}
		if len(page.Items) != 1 || page.Items[0].Version != v {
			return p.refuse(why, "a listing right after a write does not show the new version")
		}
	}
	return err
}

// content: bytes come back as they were, whole and in part.
func (p *run) content(ctx context.Context) error {
	data := make([]byte, 10_000)
	_, _ = rand.Read(data) // never fails (crypto/rand)
	if _, err := p.put(ctx, "content", string(data), bucket.Always()); err != nil {
		return err
	}
	body, _, err := p.get(ctx, "content", bucket.Range{})
	if err != nil {
		return err
	}
	if body != string(data) {
		return p.refuse("snapshots would be damaged", "what is read (%d bytes) is not what was written (%d bytes)", len(body), len(data))
	}
	body, _, err = p.get(ctx, "content", bucket.Range{Offset: 5_000, Length: 100})
	if err != nil {
		return err
	}
	if body != string(data[5_000:5_100]) {
		return p.refuse("snapshots could not be resumed", "a read of a range gives other bytes")
	}
	return nil
}

// Bounds on how far the clocks may be apart: a signature dies at 15 minutes.
const (
	skewNote   = 2 * time.Minute
	skewRefuse = 10 * time.Minute
	stampApart = time.Minute
)

// clocks: the store's two stamps must be of one clock; ours must be near it for signatures alone.
func (p *run) clocks(ctx context.Context) error {
	if _, err := p.put(ctx, "clock", "x", bucket.Always()); err != nil {
		return err
	}
	before := time.Now()
	_, o, err := p.get(ctx, "clock", bucket.Range{})
	if err != nil {
		return err
	}
	if o.Date.IsZero() {
		p.note("the store sends no Date: after a restart silence is counted from the first look")
		return nil
	}
	if apart := o.Date.Sub(o.Modified).Abs(); apart > stampApart {
		return p.refuse("the age of a lease could not be told", "its Date and its Last-Modified are %s apart for an object written just now", apart.Round(time.Second))
	}
	skew := o.Date.Add(time.Second / 2).Sub(before.Add(time.Since(before) / 2)) // the header drops the fraction: half a second in the mean
	p.r.SkewS = skew.Seconds()
	switch {
	case skew.Abs() > skewRefuse:
		return p.refuse("set this machine's clock: signatures allow 15 minutes", "the store's clock and this machine's are %s apart", skew.Round(time.Second))
	case skew.Abs() > skewNote:
		p.note("the store's clock and this machine's are %s apart; signatures allow 15 minutes", skew.Round(time.Second))
	}
	return nil
}

// latency of a conditional write, one after the other.
func (p *run) latency(ctx context.Context) error {
	v, err := p.put(ctx, "latency", "start", bucket.Always())
	took := make([]float64, 0, 20)
	for i := 0; err == nil && i < cap(took); i++ {
		began := time.Now()
		v, err = p.put(ctx, "latency", fmt.Sprint(i), bucket.IfIs(v))
		took = append(took, time.Since(began).Seconds())
	}
	if err != nil {
		return err
	}
	slices.Sort(took)
	p.r.SwapP50, p.r.SwapP99 = took[len(took)/2], took[len(took)-1]
	return nil
}

// door hands out the ways to the store in turn.
func (p *run) door(n *atomic.Int64) bucket.Bucket {
	return p.doors[int(n.Add(1))%len(p.doors)]
}
