package reconcile

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Platforms reads how every configured platform stands, as all dispatchers of the store know it: one listing, and a GET
// for each record. It writes nothing. Live is not counted.
func (r *Reconciler) Platforms(ctx context.Context, conf map[string]plan.Platform) ([]PlatformState, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	all, err := r.platforms(ctx, conf)
	return platformStates(all), err
}

// Reopen ends a platform's series of failures by a person's word: its park, or that it is left alone until somebody has
// looked. The next pass of any dispatcher tries it again. It returns how the platform stood; where nothing was wrong nothing
// is written. *Overtaken: another dispatcher wrote its record in the same moment, and nothing was written.
func (r *Reconciler) Reopen(ctx context.Context, conf plan.Platform) (PlatformState, error) {
	if err := r.enter(ctx); err != nil {
		return PlatformState{}, err
	}
	defer r.leave()
	all, err := r.platforms(ctx, map[string]plan.Platform{conf.Name: conf})
	if err != nil {
		return PlatformState{}, err
	}
	was := platformStates(all)[0]
	pl := all[conf.Name]
	if pl.park.Series == 0 && !pl.park.Fatal {
		return was, nil
	}
	body, err := record.Encode(park{Protocol: record.Protocol, Platform: conf.Name, Write: record.Nonce(), Time: time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return was, err
	}
	_, err = r.b.Put(ctx, record.PlatformKey(conf.Name), bytes.NewReader(body), bucket.IfIs(pl.version))
	if bucket.Is(err, bucket.Condition) || bucket.Is(err, bucket.Raced) {
		return was, &Overtaken{Platform: conf.Name}
	}
	if err != nil {
		return was, fmt.Errorf("reopen platform %s: %w", conf.Name, err)
	}
	return was, nil
}

// Overtaken: somebody else wrote a platform's record in the same moment.
type Overtaken struct{ Platform string }

func (e *Overtaken) Error() string {
	return fmt.Sprintf("platform %s: another dispatcher noted something of it in the same moment, and nothing was written: look at it with headway platforms, then ask again", e.Platform)
}
