package audit

import (
	"context"
	"strings"

	"github.com/headway-run/headway/runners/record"
)

// What to do about what dispatchers have learnt. A reader takes a damaged observation for none, and a damaged compact form
// for an empty one: the next fold is written over it, and what it had counted is lost without a word.
const (
	doObservation = "delete it: one end less is known of how that platform does, and no work depends on it"
	doCompact     = "restore it from a backup of the bucket before a dispatcher folds into it; without one delete it: what was counted of that platform and card is lost, and is learnt anew"
	doTold        = "delete it to begin this rule of notifications anew; until then nothing is told by it"
)

// maxCompact is the longest compact form, and the longest list of what held when a rule of notifications was new.
const (
	maxCompact = 2 << 20
	maxSince   = 5 << 20
)

// learnt looks at what lies under stats/: names always, and what is in them when every byte is read.
func (c *check) learnt(ctx context.Context) error {
	return c.each(ctx, record.StatsPrefix, func(key string) error {
		k, ok := record.ParseStats(key)
		switch {
		case !ok:
			c.find(key, Format, doStrange, "no key of headway: neither an observation nor a compact form has such a name")
			return nil
		case !c.o.Deep:
			return nil
		case k.Day == "":
			return c.compact(ctx, key, k)
		}
		return c.observation(ctx, key, k)
	})
}

func (c *check) observation(ctx context.Context, key string, k record.StatsKey) error {
	var o record.Observation
	_, err := c.decode(ctx, key, doObservation, &o, func() (int, bool) {
		return o.Protocol, o.Platform == k.Platform && o.GPU == k.GPU && o.Mode == k.Mode && o.Work == k.Work && o.Dispatch == k.Dispatch && o.Late == k.Late &&
			strings.HasPrefix(o.Time, k.Day)
	})
	return err
}

// compact reads as much of a compact form as every version must understand.
func (c *check) compact(ctx context.Context, key string, k record.StatsKey) error {
	var f struct {
		Protocol int    `json:"protocol"`
		Rev      int64  `json:"rev"`
		Write    string `json:"write"`
		Platform string `json:"platform"`
		GPU      string `json:"gpu"`
		Mode     string `json:"mode"`
	}
	b, why, err := c.small(ctx, key, maxCompact, &f)
	switch {
	case err != nil:
		return err
	case why != "":
		c.find(key, Format, doCompact, "%s", why)
	case b == nil: // deleted meanwhile, by somebody
	case f.Protocol > record.Protocol:
		c.find(key, Format, doNewer, "is written in protocol %d, this program knows %d", f.Protocol, record.Protocol)
	case f.Platform != k.Platform || f.GPU != k.GPU || f.Mode != k.Mode:
		c.find(key, Format, doCompact, "is of platform %q, card %q and mode %q (copied from elsewhere?)", f.Platform, f.GPU, f.Mode)
	case f.Protocol < 1 || f.Rev < 1 || !hexDigits(f.Write, 32):
		c.find(key, Format, doCompact, "is no compact form: it needs protocol, rev and write")
	}
	return nil
}

// told reads what each rule of notifications began with: where that cannot be read the rule tells nothing. What was told is
// known by the names of the other objects, whatever is in them.
func (c *check) told(ctx context.Context) error {
	if !c.o.Deep {
		return nil
	}
	return c.each(ctx, "notify/", func(key string) error {
		if !strings.HasSuffix(key, "/since.json") {
			return nil
		}
		var s struct {
			Protocol int      `json:"protocol"`
			Marks    []string `json:"marks"`
		}
		b, why, err := c.small(ctx, key, maxSince, &s)
		switch {
		case err != nil:
			return err
		case why != "":
			c.find(key, Format, doTold, "%s", why)
		case b != nil && s.Protocol > record.Protocol:
			c.find(key, Format, doNewer, "is written in protocol %d, this program knows %d", s.Protocol, record.Protocol)
		case b != nil && s.Protocol < 1:
			c.find(key, Format, doTold, "is no beginning of a rule: it says no protocol")
		}
		return nil
	})
}
