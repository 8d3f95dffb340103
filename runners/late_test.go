package runners_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// nobody is a platform that must not be asked for anything.
type nobody struct{ asked int }

func (n *nobody) Launch(context.Context, []runners.Launch) ([]runners.Receipt, error) {
	n.asked++
	return []runners.Receipt{{Handle: json.RawMessage(`{"n":1}`)}}, nil
}

func (n *nobody) Release(context.Context, json.RawMessage) (runners.Release, error) {
	n.asked++
	return runners.Release{Settlement: runners.Closed}, nil
}

func (n *nobody) JobKinds() []string { return nil }
func (n *nobody) Capacity() int      { return 1 }

// Orders on grounds that are too old: nothing is claimed; with a claim that took too long, nobody is called; and no
// release is asked for.
func TestLateOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := runners.Launch{Work: work, Dispatch: 1, Spec: record.Spec{Work: work},
			Claim: record.Claim{Work: work, Dispatch: 1, Nonce: "n", Platform: "p"}}
		for _, c := range []struct {
			name    string
			slow    time.Duration // what the claim takes
			wait    time.Duration // between the look and the order
			claimed bool
		}{{"in time", 0, 0, true}, {"decided long ago", 0, time.Minute, false}, {"claimed long ago", time.Minute, 0, true}} {
			s, p := newStore(), &nobody{}
			s.put = func(key string, next func() (bucket.Version, error)) (bucket.Version, error) {
				v, err := next()
				if key == record.ClaimKey(work, 1) {
					<-time.After(c.slow)
				}
				return v, err
			}
			d := runners.Dispatcher{Bucket: s, Until: time.Now().Add(30 * time.Second)}
			<-time.After(c.wait)
			got := d.Launch(t.Context(), p, []runners.Launch{order})[0]
			late, is := errors.AsType[*runners.Late](got.Err)
			want := c.name == "in time"
			if is == want || got.Claimed != c.claimed || (p.asked == 1) != want || is && late.Claimed != c.claimed {
				t.Errorf("%s: %+v, %v, asked %d times", c.name, got, got.Err, p.asked)
			}
			if _, err := s.Get(t.Context(), record.ClaimKey(work, 1), bucket.Range{}); (err == nil) != c.claimed {
				t.Errorf("%s: the claim: %v", c.name, err)
			}
			if !want {
				continue
			}
			<-time.After(time.Minute)
			if _, err := d.Release(t.Context(), p, work, 1); err == nil || p.asked != 1 {
				t.Errorf("a late release: %v, asked %d times", err, p.asked)
			}
		}
	})
}
