package deploylane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headway-run/headway/deploylane/tag"
)

// Waiting says for whom or what a release waits, by its records and what the watch of tags knows; "": for nobody. It writes
// nothing and asks no target. Errors: *Broken, or those of the store.
func (l *Lane) Waiting(ctx context.Context, model, version string, b Book) (string, error) {
	chain, err := l.Chain(ctx, model, version)
	if err != nil || len(chain) == 0 || !chain[len(chain)-1].Record.Passed {
		return "", err
	}
	if b.Policy != nil {
		if why := tag.Frozen(b.Entries, b.Policy, version); why != "" {
			return why, nil
		}
	}
	c, last := chain[0].Record.Candidate, chain[len(chain)-1].Record.Stage
	if c == nil {
		return "", &Broken{chain[0].Key, "holds no candidate of this release"}
	}
	switch last {
	case Candidate:
		return fmt.Sprintf("the retraining, work %s", short(c.Retrain.Spec.Work)), nil
	case Spread:
		return fmt.Sprintf("the backtest, work %s", short(c.Check.Spec.Work)), nil
	case Backtests:
		r := &release{c: c, book: b, chain: chain}
		if sp := r.of(Spread); sp == nil || sp.Spread == nil {
			return "", &Broken{chain[len(chain)-1].Key, "follows no spread check"}
		}
		_, err := l.approve(ctx, r)
		if w, waits := errors.AsType[*Wait](err); waits {
			return w.Text, nil
		}
		return "", err
	case Release:
		var deaf []string
		for _, t := range c.Model.Targets {
			_, found, err := l.read(ctx, key(model, version, "target-"+t.Name))
			if err != nil {
				return "", err
			}
			if !found {
				deaf = append(deaf, t.Name)
			}
		}
		if len(deaf) > 0 {
			return "target " + strings.Join(deaf, ", ") + ", which has not taken it", nil
		}
	}
	return "", nil
}

// Eligible says what a release would be refused for at its first stage, before anybody signs its tag: a *Stop. It reads what that
// stage reads and writes nothing; any other error is no answer.
func (l *Lane) Eligible(ctx context.Context, o Order) error {
	c, err := l.choose(ctx, o)
	if err != nil {
		return err
	}
	return l.foresee(ctx, c)
}
