package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// top are the names that a bucket's first level may have: a table of values. What lies under accepted/ is the loop's own (headway
// doctor reads it beside this check), what lies under board/ is written afresh within a minute and decides nothing, what lies under
// lane/ is the deploy lane's own (headway-lane verify follows a release, and headway gc deletes nothing while a record there can't be read).
var top = map[string]bool{"witness": true, "work": true, "code": true, "platform": true, "accepted": true, "board": true, "notify": true, "stats": true, "lane": true, "trim": true, "_store": true, "_probe": true}

// mostStrange bounds how many names are listed that nobody knows.
const mostStrange = 100

// around looks at all that is of no work: names at the top, code bundles, platforms, and what is noted of the store.
func (c *check) around(ctx context.Context) error {
	for _, part := range []func(context.Context) error{c.names, c.code, c.platforms, c.trims, c.learnt, c.told, c.noted} {
		look := func() error { return part(ctx) }
		if err := c.twice(look, look); err != nil {
			return err
		}
	}
	return nil
}

// names jumps from one name of the first level to the next: a request for each, whatever lies below.
func (c *check) names(ctx context.Context) error {
	after, strange := "", 0
	for {
		c.r.Requests++
		p, err := c.s.List(ctx, "", after, 1)
		if err != nil || len(p.Items) == 0 {
			return err
		}
		key := p.Items[0].Key
		name, _, folder := strings.Cut(key, "/")
		if after = key; folder {
			after = name + "0" // behind every key that begins with name and a slash
		}
		if folder && top[name] {
			continue
		}
		if c.oddKey(key) {
			continue
		}
		if strange++; strange > mostStrange {
			c.find(key, Format, doStrange, "no key of headway, and more than %d others before it", mostStrange)
			return nil
		}
		c.find(key, Format, doStrange, "no key of headway: it has nothing under %q", name)
	}
}

// doStrange is what to do about an object that headway would never write.
const doStrange = "nothing of headway's reads or writes it: delete it if nobody needs it, or give the store's URL a prefix of its own in this bucket"

// code looks at the names of the code bundles.
func (c *check) code(ctx context.Context) error {
	return c.each(ctx, "code/", func(key string) error {
		c.r.Code++
		tree, ok := strings.CutSuffix(strings.TrimPrefix(key, "code/"), ".tar.zst")
		if !ok || key != record.CodeKey(tree) || !hexDigits(tree, 40) && !hexDigits(tree, 64) {
			c.find(key, Format, "delete it: no worker asks for it", "no code bundle: their names are the id of a Git tree and .tar.zst")
		}
		return nil
	})
}

// each calls f for every key with a prefix.
func (c *check) each(ctx context.Context, prefix string, f func(key string) error) error {
	l := c.list(prefix)
	for {
		it, err := l.peek(ctx)
		if err != nil || it == nil {
			return err
		}
		l.next()
		if err := f(it.Key); err != nil {
			return err
		}
	}
}

// doPark is what to do about a platform's record: it is but a note, and is written afresh.
const doPark = "delete it: the platform then counts as well, and the next failure notes itself afresh"

// platforms reads the platforms' records, as far as every version of headway must understand them.
func (c *check) platforms(ctx context.Context) error {
	return c.each(ctx, record.PlatformKey(""), func(key string) error {
		var p struct {
			Protocol int     `json:"protocol"`
			Platform string  `json:"platform"`
			Write    string  `json:"write"`
			Series   int     `json:"series"`
			ParkS    float64 `json:"park_s"`
		}
		b, why, err := c.small(ctx, key, record.MaxRecord, &p)
		switch {
		case err != nil:
			return err
		case why != "":
			c.find(key, Format, doPark, "%s", why)
		case b == nil: // removed meanwhile
		case p.Protocol > record.Protocol:
			c.find(key, Format, doNewer, "is written in protocol %d, this program knows %d", p.Protocol, record.Protocol)
		case key != record.PlatformKey(p.Platform):
			c.find(key, Format, doPark, "is of platform %q (copied from elsewhere?)", p.Platform)
		case p.Protocol < 1 || !hexDigits(p.Write, 32) || p.Series < 0 || p.ParkS < 0:
			c.find(key, Format, doPark, "is no record of a platform: it needs protocol, write, series and park_s in their bounds")
		}
		c.r.Platforms++
		return nil
	})
}

// trims reads what retention says it took: whatever else is missing is a loss.
func (c *check) trims(ctx context.Context) error {
	return c.each(ctx, record.TrimPrefix, func(key string) error {
		work := strings.TrimPrefix(key, record.TrimPrefix)
		t, why, err := c.trim(ctx, work)
		if why != "" {
			c.find(key, Format, doTrim, "%s", why)
		}
		if err != nil || t == nil {
			return err
		}
		return c.bounds(ctx, t, work)
	})
}

// bounds: retention takes no more than there is. It allows at most all that comes before the attempt behind the
// witness's, which is read after the record and never goes back; a record that allows more would hide losses to come. A
// witness that is gone or unreadable is found elsewhere.
func (c *check) bounds(ctx context.Context, t *record.Trim, work string) error {
	b, big, err := c.get(ctx, record.WitnessKey(work), witness.MaxRecord)
	if err != nil || b == nil || big {
		return err
	}
	if r, err := witness.Decode(work, b); err == nil && t.Attempt > r.Attempt+1 {
		c.find(record.TrimKey(work), Complete, doTrim, "says that retention took what attempt %d left, but the witness is at attempt %d: headway gc never writes that", t.Attempt-1, r.Attempt)
	}
	return nil
}

// doTrim is what to do about a record of retention that cannot be read.
const doTrim = "restore it from a backup of the bucket; without one delete it: headway doctor --deep then names what retention had taken, which is no loss"

// trim reads what retention may have taken from a work; nil: nothing. why: there is a record that cannot be relied on.
func (c *check) trim(ctx context.Context, work string) (t *record.Trim, why string, err error) {
	var r record.Trim
	b, why, err := c.small(ctx, record.TrimKey(work), record.MaxRecord, &r)
	switch {
	case err != nil || b == nil || why != "":
		return nil, why, err
	case r.Protocol > record.Protocol:
		return nil, fmt.Sprintf("is written in protocol %d, this program knows %d", r.Protocol, record.Protocol), nil
	case r.Protocol < 1 || r.Work != work || r.Attempt < 0 || r.Milestone < 0:
		return nil, "is no record of what retention took from the work that its key names", nil
	}
	return &r, "", nil
}

// verdictKey is where package probe keeps its verdict; a test holds the two together.
const verdictKey = "_store/conformance.json"

// noted reads what the last probe said of the store.
func (c *check) noted(ctx context.Context) error {
	const do = "headway doctor, without --no-probe, probes the store and notes its verdict afresh"
	return c.each(ctx, "_store/", func(key string) error {
		if key != verdictKey {
			c.find(key, Format, doStrange, "no key of headway: nothing but %s belongs there", verdictKey)
			return nil
		}
		var r struct {
			Protocol int    `json:"protocol"`
			Time     string `json:"time"`
			Pass     bool   `json:"pass"`
			Refusal  string `json:"refusal"`
		}
		b, why, err := c.small(ctx, key, record.MaxRecord, &r)
		switch {
		case err != nil:
			return err
		case why != "":
			c.find(key, Format, do, "%s", why)
		case b != nil && (r.Protocol < 1 || r.Time == ""):
			c.find(key, Format, do, "is no report of a probe: it says no protocol or no time")
		case b != nil && !r.Pass:
			c.find(key, OneHolder, "launch nothing on this store: "+do, "the last probe refused this store: %s", r.Refusal)
		}
		return nil
	})
}

// small reads one record of at most max bytes; nil without a reason: absent.
func (c *check) small(ctx context.Context, key string, max int, v any) (b []byte, why string, err error) {
	b, big, err := c.get(ctx, key, int64(max))
	switch {
	case err != nil || b == nil:
		return nil, "", err
	case big:
		return b, fmt.Sprintf("has more than %d bytes, which no record has", max), nil
	}
	if err := record.Decode(b, max, v); err != nil {
		return b, fmt.Sprintf("is no record: %v", err), nil
	}
	return b, "", nil
}

// hexDigits reports whether s is n lower-case hex digits.
func hexDigits(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}
