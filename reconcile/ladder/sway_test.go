package ladder

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// life runs one job over rungs whose parks, quotas and prices change as a test draws them, milestone by milestone.
type life struct {
	rungs []Rung
	job   Job
	moves int
}

// step decides once and works for one milestone. forced: the place is taken away meanwhile.
func (l *life) step(t *rapid.T, forced bool) {
	at := func(name string) int {
		return slices.IndexFunc(l.rungs, func(r Rung) bool { return r.Platform == name })
	}
	if c := Choose(l.rungs, l.job); l.job.On == "" && c.Kind == Launch {
		l.job.On = c.Platform
	} else if c.Kind == Move {
		from, to := l.rungs[at(l.job.On)], l.rungs[at(c.Platform)]
		if to.Spent > from.Spent || to.Spent == from.Spent && at(c.Platform) >= at(l.job.On) {
			t.Fatalf("moved down or sideways, from %s to %s", l.job.On, c.Platform)
		}
		l.moves++
		l.job.On = ""
		again := Choose(l.rungs, l.job)
		if again.Kind != Launch || again.Platform != c.Platform {
			t.Fatalf("asked to leave for %s, and then: %+v", c.Platform, again)
		}
		l.job.On = c.Platform
	}
	if l.job.On == "" {
		return
	}
	if r := l.rungs[at(l.job.On)]; r.Rate > 0 && !forced {
		l.job.Left = max(l.job.Left-r.Rate*600, 0)
	}
	if forced {
		l.job.On = ""
	}
}

// While nothing changes but the job's own progress, it moves at most once for each rung above it, and never back.
func TestAQuietLadderIsClimbedAtMostOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{rungs: drawRungs(t), job: drawJob(t)}
		if l.job.On == "gone" || l.job.On != "" && int(l.job.On[0]-'a') >= len(l.rungs) {
			l.job.On = ""
		}
		for range 300 {
			l.step(t, false)
		}
		if l.moves > max(len(l.rungs)-1, 0) {
			t.Fatalf("%d moves on %d rungs that do not change", l.moves, len(l.rungs))
		}
	})
}

// However the rungs change, every move is upwards, to where a launch goes at once. So between two moves to one rung the
// job was driven from it: a platform can make it restart, its own choice can't sway.
func TestItNeverSways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{rungs: drawRungs(t), job: Job{Left: 1e18, Milestone: 10 * time.Minute}}
		driven := 0
		for range rapid.IntRange(1, 60).Draw(t, "milestones") {
			if len(l.rungs) > 0 && rapid.Bool().Draw(t, "changes") {
				r := &l.rungs[rapid.IntRange(0, len(l.rungs)-1).Draw(t, "rung")]
				r.Parked = time.Duration(rapid.SampledFrom([]int{0, 0, 1, 30, 600}).Draw(t, "park")) * time.Minute
				r.Full, r.Soon = rapid.SampledFrom([]string{"", "", "full"}).Draw(t, "full"), false
			}
			forced := rapid.IntRange(0, 5).Draw(t, "forced") == 0
			if forced {
				driven++
			}
			l.step(t, forced)
		}
		if most := (driven + 1) * max(len(l.rungs)-1, 0); l.moves > most {
			t.Fatalf("%d moves though it was driven off %d times: at most %d", l.moves, driven, most)
		}
	})
}
