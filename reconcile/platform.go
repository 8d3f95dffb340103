package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// park is platform/<name>: what every dispatcher of a store knows of a platform's health. It changes by
// compare-and-swap alone. How long it lasts is counted from the store's stamp of the record, never from a clock.
type park struct {
	Protocol int     `json:"protocol"`
	Platform string  `json:"platform"`
	Write    string  `json:"write"`           // random, fresh on every write
	Series   int     `json:"series"`          // failures in a row; 0: all is well
	Spell    string  `json:"spell,omitempty"` // Write of the series' first record: names the series, whoever sees it when
	Class    string  `json:"class,omitempty"`
	ParkS    float64 `json:"park_s,omitempty"` // seconds from this write on
	Fatal    bool    `json:"fatal,omitempty"`  // until a person looks
	Config   string  `json:"config,omitempty"` // digest of the configuration it was fatal with: another one is another try
	Text     string  `json:"text,omitempty"`   // one sentence, for people
	Time     string  `json:"time"`             // for people
}

// platform is one configured platform during a pass.
type platform struct {
	conf      plan.Platform
	runner    runners.Runner
	park      park
	version   bucket.Version
	rest      time.Duration        // how long it is still parked
	since     time.Duration        // age of the record
	capacity  int                  // jobs that one launch carries
	live      int                  // launches that are running or on their way: what slots are counted in
	batch     int                  // launches that are under way
	asked     map[string]int       // places of launches that are to start there, by askedFor, as decided in this round
	flying    int                  // launches of earlier passes, which are not answered yet
	releasing int                  // releases that are under way
	sorts     map[*plan.Job]sorted // of ranking
	unpaced   bool                 // a dry pass has but one round
	price     *record.Price        // of a launch, as its runner says; nil: it does not
	quota     *runners.Quota       // likewise
	guard     plan.Money           // guard.price, where it refuses; zero: none
	lessons   *lessons             // what was learnt of it; made when it is first needed
}

// batchSize is how many launches one round hands to a platform that is well: enough to fill it quickly, few enough
// that a sudden "no slots" wastes few claims. One that was in trouble gets a single try.
const batchSize = 32

// configDigest tells whether a person has changed a platform's configuration.
func configDigest(p plan.Platform) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %d %q %v", p.Runner, p.Slots, p.GPU, p.MaxPrice)
	for _, k := range slices.Sorted(maps.Keys(p.Options)) {
		fmt.Fprintf(&b, " %q=%q", k, p.Options[k])
	}
	return record.Hash([]byte(b.String()))[:16]
}

// platforms reads the state of all configured platforms: one listing, and a GET for each record that changed.
func (r *Reconciler) platforms(ctx context.Context, conf map[string]plan.Platform) (map[string]*platform, error) {
	out := make(map[string]*platform, len(conf))
	if r.ranking.sorts == nil {
		r.ranking.sorts = map[*plan.Job]sorted{}
	}
	for name, c := range conf {
		out[name] = &platform{conf: c, runner: r.c.Runners[name], capacity: 1, sorts: r.ranking.sorts, unpaced: r.c.Dry}
		if out[name].runner != nil {
			out[name].capacity = runners.AskCapacity(out[name].runner)
		}
	}
	after := ""
	for {
		p, err := r.b.List(ctx, record.PlatformKey(""), after, 1000)
		if err != nil {
			return nil, fmt.Errorf("read the platforms' state: %w", err)
		}
		for _, it := range p.Items {
			after = it.Key
			pl := out[strings.TrimPrefix(it.Key, record.PlatformKey(""))]
			if pl == nil {
				continue
			}
			if err := r.parked(ctx, pl, it, p.Date); err != nil {
				return nil, err
			}
		}
		if !p.More || len(p.Items) == 0 {
			r.prices(ctx, out)
			return out, nil
		}
	}
}

// parked fills in one platform's record.
func (r *Reconciler) parked(ctx context.Context, pl *platform, it bucket.Info, date time.Time) error {
	known, ok := r.parks[it.Key]
	if !ok || known.version != it.Version {
		b, o, err := whole(ctx, r.b, it.Key, record.MaxRecord)
		if bucket.Is(err, bucket.NotFound) {
			return nil
		}
		if err != nil && !damaged(err) {
			return fmt.Errorf("read the state of platform %s: %w", pl.conf.Name, err)
		}
		var p park
		if err == nil {
			err = record.Decode(b, record.MaxRecord, &p)
		}
		if err != nil || p.Protocol > record.Protocol {
			p = park{Fatal: true, Config: configDigest(pl.conf), Text: "its record in the store cannot be read: remove " + it.Key}
		}
		known = parkSeen{park: p, version: o.Version}
		r.parks[it.Key] = known
		r.records.ages.forget(it.Key)
	}
	pl.park, pl.version = known.park, known.version
	total := time.Duration(min(max(pl.park.ParkS, 0), 31*86400) * float64(time.Second))
	pl.since = r.records.ages.age(it.Key, it.Modified, date, ancient)
	pl.rest = max(total-pl.since, 0)
	return nil
}

// parkSeen is a park with its version.
type parkSeen struct {
	park    park
	version bucket.Version
}

// judge writes down what a launch's outcome says of its platform. Nothing is written while all is well. A write that
// another dispatcher beat is not repeated: what that one saw is as true.
func (r *Reconciler) judge(ctx context.Context, pl *platform, err error, at string) error {
	p, changed := verdict(pl.park, pl.conf, err, at, time.Now())
	if !changed {
		return nil
	}
	body, eerr := record.Encode(p)
	if eerr != nil {
		return eerr
	}
	cond := bucket.IfAbsent()
	if pl.version != "" {
		cond = bucket.IfIs(pl.version)
	}
	key := record.PlatformKey(pl.conf.Name)
	v, werr := r.b.Put(ctx, key, bytes.NewReader(body), cond)
	// In this pass it counts at once, whether or not the store took it.
	pl.park, pl.rest = p, time.Duration(p.ParkS*float64(time.Second))
	if werr != nil {
		pl.version = ""
		delete(r.parks, key)
		if bucket.Is(werr, bucket.Condition) || bucket.Is(werr, bucket.Raced) {
			return nil
		}
		return fmt.Errorf("note the state of platform %s: %w", pl.conf.Name, werr)
	}
	pl.version = v
	r.parks[key] = parkSeen{p, v}
	r.records.ages.forget(key)
	return nil
}

// verdict is what a platform's record becomes after a launch that answered err (nil: it took it). Pure.
func verdict(old park, conf plan.Platform, err error, at string, now time.Time) (park, bool) {
	if err == nil {
		// That a platform takes a launch says nothing where its launches never bring a worker: see recovered.
		if old.Series == 0 && !old.Fatal || old.Class == classNoCapture && at != "" {
			return old, false
		}
		return park{Protocol: record.Protocol, Platform: conf.Name, Write: record.Nonce(), Time: now.UTC().Format(time.RFC3339)}, true
	}
	class := string(runners.ClassOf(err))
	if _, ok := errors.AsType[*uncaptured](err); ok {
		class = classNoCapture
	}
	rule := ruleOf(class)
	if rule.Platform == EffectNone {
		return old, false
	}
	p := park{Protocol: record.Protocol, Platform: conf.Name, Write: record.Nonce(), Series: old.Series + 1, Class: class,
		Text: shown(err.Error(), 300), Time: now.UTC().Format(time.RFC3339)}
	if p.Spell = old.Spell; old.Series == 0 || p.Spell == "" {
		p.Spell = p.Write
	}
	if rule.Platform == EffectFatal {
		p.Fatal, p.Config = true, configDigest(conf)
		return p, true
	}
	rest := delay(parkBase, p.Series, conf.Name+"/"+at)
	if f, ok := errors.AsType[*runners.Failure](err); ok && f.Class == runners.QuotaExhausted && !f.Until.IsZero() {
		rest = max(f.Until.Sub(now), rest)
	}
	p.ParkS = rest.Seconds()
	return p, true
}

// uncaptured is the failure of a launch that the platform took and no worker answered.
type uncaptured struct{ n int64 }

func (e *uncaptured) Error() string {
	return fmt.Sprintf("dispatch %d was launched, and no worker took the lease in its window", e.n)
}

// rungs is the ladder of a job as it stands.
func rungs(job *plan.Job, platforms map[string]*platform) []Rung {
	out := make([]Rung, 0, len(job.On))
	for _, name := range job.On {
		r := Rung{Platform: name}
		pl := platforms[name]
		switch {
		case pl == nil:
			r.Refused = "no platform of this name is configured"
		case pl.runner == nil:
			r.Refused = fmt.Sprintf("this program has no runner %q for it", pl.conf.Runner)
		case pl.refuses(job.Kind) != "":
			r.Refused = pl.refuses(job.Kind)
		case pl.park.Fatal && pl.park.Config == configDigest(pl.conf):
			r.Fatal = fmt.Sprintf("its answers made no sense, so it is left alone until its configuration changes or a person says so (headway reopen %s): %s", name, pl.park.Text)
		case pl.rest > 0:
			r.Parked, r.Why, r.Waited = pl.rest, pl.park.Text, pl.park.guessed(pl.rest)
		default:
			r.Full = pl.full(job)
			r.Soon = r.Full == paceText && pl.flying == 0
			r.Doubt = pl.park.doubt(pl.since)
		}
		pl.priced(&r, job)
		out = append(out, r)
	}
	return out
}

// paceText marks a rung that is full only for this round.
const paceText = "launches go out in batches"

// takenText marks one whose places are all taken: one, or more.
const takenText, takenTexts = "slot is taken", "slots are taken"

// full says why no launch of a job fits now, or "".
func (pl *platform) full(job *plan.Job) string {
	class, places := pl.askedFor(job)
	more := (pl.asked[class] + places + pl.capacity - 1) / pl.capacity // launches of this round, with this job, if all fit
	if n := pl.conf.Slots; n > 0 && pl.live+more > n {
		return "all " + count(n, takenText, takenTexts)
	}
	if more > pl.room() {
		return paceText
	}
	return ""
}

// refuses says why a platform takes no jobs of a kind, or "". A runner that panics at the question takes none.
func (pl *platform) refuses(kind string) string {
	kinds, err := runners.AskKinds(pl.runner, pl.conf.Name)
	switch {
	case err != nil:
		return shown(err.Error(), 300)
	case len(kinds) > 0 && !slices.Contains(kinds, kind):
		return fmt.Sprintf("it takes no jobs of kind %s", kind)
	}
	return ""
}
