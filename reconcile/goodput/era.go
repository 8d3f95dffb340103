package goodput

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/record"
)

const (
	mostEras = 32 // environments of a key that are told apart in its account; beyond, those go that were seen longest ago
	mostFact = 80 // bytes of one fact of an environment
)

// Era is what a key's history knows of one environment: a change of driver, image or price class starts a new history, and
// attempts of two are never mixed (science.md §3.4). An environment that comes back goes on where it ended.
type Era struct {
	Env   record.Environment `json:"env,omitzero"`
	Since int64              `json:"since"` // store's stamp of the first end in it, Unix seconds
	Last  int64              `json:"last"`  // and of the newest
	N     int64              `json:"n"`     // attempts in it
}

// era counts one attempt in its environment.
func (c *Compact) era(env record.Environment, at int64) {
	if len(c.Eras) == 0 && len(c.Scores) > 0 { // written by a version that told none apart
		c.Eras = []Era{{Since: c.Scores[0].At, Last: c.Scores[len(c.Scores)-1].At, N: int64(len(c.Scores))}}
	}
	i := slices.IndexFunc(c.Eras, func(e Era) bool { return e.Env == env })
	if i < 0 {
		c.Eras, i = append(c.Eras, Era{env, at, at, 0}), len(c.Eras)
	}
	e := &c.Eras[i]
	e.Since, e.Last, e.N = min(e.Since, at), max(e.Last, at), min(e.N+1, 1e18)
	slices.SortFunc(c.Eras, func(a, b Era) int { return cmp.Or(cmp.Compare(a.Since, b.Since), compareEnv(a.Env, b.Env)) })
	if len(c.Eras) > mostEras {
		old := slices.MinFunc(c.Eras, func(a, b Era) int { return cmp.Or(cmp.Compare(a.Last, b.Last), compareEnv(a.Env, b.Env)) })
		c.Eras = slices.DeleteFunc(c.Eras, func(e Era) bool { return e.Env == old.Env })
	}
}

func compareEnv(a, b record.Environment) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Image, b.Image), cmp.Compare(a.Price, b.Price))
}

// current is the environment of the newest attempt; zero where there was none.
func (c *Compact) current() record.Environment {
	if c == nil || len(c.Scores) == 0 {
		return record.Environment{}
	}
	return c.Scores[len(c.Scores)-1].Env
}

// Change is where the history that counts has begun.
type Change struct {
	From   record.Environment `json:"from"`
	To     record.Environment `json:"to"`
	At     int64              `json:"at"`     // store's stamp of the first end in it, Unix seconds
	N      int64              `json:"n"`      // attempts in it
	Before int64              `json:"before"` // attempts in other environments; they are kept apart
}

// Changed says where the history of an environment on a key began before the moment at; false: nothing else was before it.
func (b *Book) Changed(k Key, env record.Environment, at int64) (ch Change, ok bool) {
	c := b.keys[k]
	if c == nil {
		return ch, false
	}
	eras := c.Eras
	if len(eras) == 0 && len(c.Scores) > 0 {
		eras = []Era{{Since: c.Scores[0].At, Last: c.Scores[len(c.Scores)-1].At, N: int64(len(c.Scores))}}
	}
	ch.To, ch.At = env, at
	for _, e := range eras {
		if e.Env == env && e.Since < at {
			ch.At, ch.N = e.Since, e.N
		}
	}
	newest := int64(-1)
	for _, e := range eras {
		if e.Env == env || e.Since >= ch.At {
			continue
		}
		ch.Before += e.N
		if until := min(e.Last, ch.At); until >= newest {
			newest, ch.From, ok = until, e.Env, true
		}
	}
	return ch, ok
}

// ChangedNow is Changed at the newest moment that is known.
func (b *Book) ChangedNow(k Key, env record.Environment) (Change, bool) {
	return b.Changed(k, env, b.now()+1)
}

// String is one clause for people.
func (c Change) String() string {
	return fmt.Sprintf("new history since %s at %s: %d attempts before it are kept apart", between(c.From, c.To), time.Unix(c.At, 0).UTC().Format(time.RFC3339), c.Before)
}

// between names what is different.
func between(a, b record.Environment) string {
	var parts []string
	for _, f := range []struct{ name, from, to string }{{"driver", a.Driver, b.Driver}, {"image", a.Image, b.Image}, {"price", a.Price, b.Price}} {
		if f.from != f.to {
			parts = append(parts, fmt.Sprintf("%s %s → %s", f.name, cmp.Or(f.from, "unknown"), cmp.Or(f.to, "unknown")))
		}
	}
	return strings.Join(parts, ", ")
}

// checkEnv refuses what is no environment.
func checkEnv(e record.Environment) error {
	for _, f := range []string{e.Driver, e.Image, e.Price} {
		if !written(f, mostFact+2) {
			return fmt.Errorf("an environment with a fact of more than %d bytes as they are stored", mostFact)
		}
	}
	return nil
}

func (c *Compact) checkEras() error {
	if len(c.Eras) > mostEras {
		return fmt.Errorf("it tells more environments apart than are kept")
	}
	for _, e := range c.Eras {
		if !sane(1e18, float64(e.N)) || !sane(1e10, float64(e.Since), float64(e.Last)) {
			return fmt.Errorf("an environment is out of bounds: %+v", e)
		}
		if err := checkEnv(e.Env); err != nil {
			return err
		}
	}
	return nil
}
