package probe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headway-run/headway/runners/bucket"
)

// outcome of one race.
type outcome struct {
	won     []string // bodies that were acknowledged
	unknown []string // bodies whose fate is not known
	slowed  bool     // somebody was asked to slow down or to ask again
}

// race writes distinct bodies to one key at once.
func (p *run) race(ctx context.Context, key string, c bucket.Cond) (outcome, error) {
	var (
		mu     sync.Mutex
		out    outcome
		failed error
		next   atomic.Int64
		wg     sync.WaitGroup
	)
	gate := make(chan struct{})
	for i := range p.o.Width {
		body := fmt.Sprintf("racer %d %s", i, nonce())
		door := p.door(&next)
		wg.Go(func() {
			<-gate
			_, err := door.Put(ctx, p.prefix+key, strings.NewReader(body), c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				out.won = append(out.won, body)
			case bucket.Is(err, bucket.Condition), bucket.Is(err, bucket.Gone):
			case again(err):
				out.slowed = true
			case bucket.Is(err, bucket.Unknown):
				out.unknown = append(out.unknown, body)
			default:
				failed = err
			}
		})
	}
	close(gate)
	wg.Wait()
	return out, failed
}

func (p *run) createRace(ctx context.Context) error {
	for i := range p.o.Rounds {
		key := fmt.Sprintf("race/%03d", i)
		if err := p.judge(ctx, key, bucket.IfAbsent(), twoOwners, "created one key"); err != nil {
			return err
		}
	}
	return nil
}

func (p *run) swapRace(ctx context.Context) error {
	v, err := p.put(ctx, "cas", "start", bucket.IfAbsent())
	for range p.o.Rounds {
		if err != nil {
			return err
		}
		if err := p.judge(ctx, "cas", bucket.IfIs(v), stalePass, "swapped one version"); err != nil {
			return err
		}
		v, err = p.put(ctx, "cas", "next "+nonce(), bucket.Always())
	}
	return err
}

// judge runs one race: one winner, and his body is stored. None is allowed where the store asked for patience; then one
// racer alone must succeed.
func (p *run) judge(ctx context.Context, key string, c bucket.Cond, why, what string) error {
	out, err := p.race(ctx, key, c)
	if err != nil {
		return err
	}
	switch n := len(out.won); {
	case n > 1:
		return p.refuse(why, "%d of %d racing writers %s", n, p.o.Width, what)
	case n == 0 && len(out.unknown) == 0 && !out.slowed:
		return p.refuse("leases could not be taken when several try", "none of %d racing writers %s", p.o.Width, what)
	case n == 0 && len(out.unknown) == 0:
		_, err := p.put(ctx, key, "alone", c)
		if bucket.Is(err, bucket.Condition) {
			return p.refuse("leases could not be taken when several try", "none of %d racing writers %s, and then the key was taken", p.o.Width, what)
		}
		return err
	}
	body, _, err := p.get(ctx, key, bucket.Range{})
	if err != nil {
		return err
	}
	if !slices.Contains(append(out.won, out.unknown...), body) {
		return p.refuse(why, "the key holds the bytes of a writer that was refused")
	}
	return nil
}
