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
	Write    string  `json:"write"`  // random, fresh on every write
	Series   int     `json:"series"` // failures in a row; 0: all is well
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
	rest      time.Duration // how long it is still parked
	since     time.Duration // age of the record
	live      int           // launches that are running or on their way
	batch     int           // launches decided in this round
	releasing int           // releases that are under way
	unpaced   bool          // a dry pass has but one round
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
	for name, c := range conf {
		out[name] = &platform{conf: c, runner: r.c.Runners[name], unpaced: r.c.Dry}
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
		case !takes(pl.runner, job.Kind):
			r.Refused = fmt.Sprintf("it takes no jobs of kind %s", job.Kind)
		case pl.park.Fatal && pl.park.Config == configDigest(pl.conf):
			r.Fatal = fmt.Sprintf("its answers made no sense, so it is left alone until its configuration changes or %s is removed: %s", record.PlatformKey(name), pl.park.Text)
		case pl.rest > 0:
			r.Parked, r.Why = pl.rest, fmt.Sprintf("parked: %s", pl.park.Text)
		default:
			r.Full = pl.full()
		}
		out = append(out, r)
	}
	return out
}

// paceText marks a rung that is full only for this round.
const paceText = "launches go out in batches"

// full says why no launch fits now, or "".
func (pl *platform) full() string {
	if n := pl.conf.Slots; n > 0 && pl.live >= n {
		return fmt.Sprintf("all %s taken", count(n, "slot is", "slots are"))
	}
	limit := batchSize
	if pl.park.Series > 0 {
		limit = 1
	}
	if pl.batch >= limit && !pl.unpaced {
		return paceText
	}
	return ""
}

func takes(r runners.Runner, kind string) bool {
	kinds := r.JobKinds()
	return len(kinds) == 0 || slices.Contains(kinds, kind)
}
