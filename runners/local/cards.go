package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/runners"
)

// cardVars name the cards that a process may use: CUDA's, and HIP's on AMD. Both get the same value, and where the
// dispatcher's own environment has one of them, it deals out of that one. ROCR_VISIBLE_DEVICES is passed on as it is:
// HIP counts among the cards that it leaves. A table of values.
var cardVars = []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// pool is the names of the first n cards that the dispatcher may use: those of its own environment, or numbers from 0 on.
func pool(environ []string, n int) ([]string, error) {
	for _, v := range cardVars {
		i := slices.IndexFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, v+"=") })
		if i < 0 {
			continue
		}
		var names []string
		for name := range strings.SplitSeq(environ[i][len(v)+1:], ",") {
			if name = strings.TrimSpace(name); name == "" || name == "-1" {
				break // as CUDA reads it: what follows is not visible
			}
			if slices.Contains(names, name) {
				return nil, fmt.Errorf("%s of headway's own environment names card %s twice", v, runners.Bound(name, 80))
			}
			names = append(names, name)
		}
		if len(names) < n {
			return nil, fmt.Errorf("slots times cards is %d, and %s of headway's own environment names %d: lower one of them, or unset the variable", n, v, len(names))
		}
		return names[:n], nil
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	return names, nil
}

// table is where the fresh jobs of a launch sit down.
type table struct {
	launch string   // what its entries have in common
	free   []string // cards that nobody uses
}

// seat finds a place for the jobs of one launch that do not run yet: that of the others of the same launch, where some of
// them run, or a free slot with its cards. A launch has its slot, and all cards of it, until the last of its jobs is over.
func (r *Runner) seat(live []entry, jobs []runners.Launch) (table, error) {
	t := table{launch: name(jobs[0].Work, jobs[0].Dispatch)}
	launches, used, joined := map[string]bool{}, map[string]bool{}, ""
	for _, e := range live {
		launches[e.launch()] = true
		for _, c := range e.Cards {
			used[c] = true
		}
		if r.cards > 0 && len(e.Cards) == 0 {
			return t, r.fail("launch", runners.NoSlots, "wait until it has ended", fmt.Errorf("pid %d was started before cards were dealt, and may use any of them", e.PID))
		}
		if slices.ContainsFunc(jobs, func(j runners.Launch) bool { return j.Work == e.Work && j.Dispatch == e.Dispatch }) {
			t.launch, joined = e.launch(), e.launch()
		}
	}
	if joined == "" && len(launches) >= r.slots {
		return t, r.fail("launch", runners.NoSlots, fmt.Sprintf("%d of %d slots are taken on this machine", len(launches), r.slots), nil)
	}
	if r.cards == 0 {
		return t, nil
	}
	for block := range slices.Chunk(r.pool, r.cards) {
		ours := slices.ContainsFunc(live, func(e entry) bool { return e.launch() == joined && slices.Contains(block, e.Cards[0]) })
		if free := slices.DeleteFunc(slices.Clone(block), func(c string) bool { return used[c] }); ours || joined == "" && len(free) == r.cards {
			t.free = free
			return t, nil
		}
	}
	return t, r.fail("launch", runners.NoSlots, "wait until one of them has ended", errors.New("every slot has a card that a running job uses"))
}

// deal takes the cards of one job off the table.
func (r *Runner) deal(t *table, j runners.Launch) ([]string, error) {
	if r.cards == 0 {
		return nil, nil
	}
	n := max(j.Cards, 1)
	if n > len(t.free) {
		return nil, r.fail("launch", runners.Rejected, "raise cards of this platform, or ask for fewer: gpu.count of the job",
			fmt.Errorf("job %s computes on %d cards, and a launch here has %d left of %d", runners.Bound(j.Job, 80), n, len(t.free), r.cards))
	}
	var mine []string
	mine, t.free = t.free[:n:n], t.free[n:]
	return mine, nil
}

// ownCards are the entries of an agent's environment that name its cards; none where cards are not dealt.
func ownCards(cards []string) (env []string) {
	if len(cards) == 0 {
		return nil
	}
	for _, v := range cardVars {
		env = append(env, v+"="+strings.Join(cards, ","))
	}
	return env
}

// checkCards refuses what would take the cards of others.
func (r *Runner) checkCards(jobs []runners.Launch) error {
	if len(jobs) > r.Capacity() {
		return fmt.Errorf("%d jobs for a launch of %d", len(jobs), r.Capacity())
	}
	for _, j := range jobs {
		for _, v := range cardVars {
			if _, set := j.Spec.Env[v]; set && r.cards > 0 {
				return fmt.Errorf("env.%s of job %s: this platform deals its cards itself; take it out", v, runners.Bound(j.Job, 80))
			}
		}
	}
	return nil
}
