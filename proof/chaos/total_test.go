//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/proof/chaos/account"
	"github.com/headway-run/headway/proof/chaos/round"
	"github.com/headway-run/headway/proof/chaos/schedule"
)

func everything() round.Report {
	r := round.Report{Hits: map[schedule.Kind]int{}, Sum: account.Sum{Attempts: 7, Milestones: 40, Trained: 1000, Repeated: 100, Largest: 30, Reached: 2, Cost: 25, Waiting: 1}, Took: time.Minute,
		Killed: map[schedule.Victim]int{schedule.Tree: 1}, Workers: map[string]int{round.AgentName: 3}, Writers: round.Writers{Writes: 100, Named: 4, Unknown: 1}}
	for _, k := range schedule.Kinds {
		r.Hits[k] = 1
	}
	return r
}

// A run in which a sort of disturbance met nobody proves nothing about it, and fails; so does one with a broken round.
func TestVerdict(t *testing.T) {
	for want, spoil := range map[string]func(t *total, r *round.Report){
		"":                              func(*total, *round.Report) {},
		"no restart met anything":       func(_ *total, r *round.Report) { r.Hits[schedule.Restart] = 0 },
		"no disk met anything":          func(_ *total, r *round.Report) { r.Hits[schedule.Disk] = 0 },
		"8 of 8 rounds are broken":      func(_ *total, r *round.Report) { r.Broken = []string{"it is"} },
		"no attempt ended within reach": func(_ *total, r *round.Report) { r.Sum.Reached = 0 },
		"no worker was headway-agent":   func(_ *total, r *round.Report) { r.Workers = map[string]int{"headway": 3} },
		"of 6.0 % of 800 writes":        func(_ *total, r *round.Report) { r.Writers.Named++ },
		"no kill met anything in 8 rou": func(_ *total, r *round.Report) { r.Hits = nil },
	} {
		sum := total{disk: true}
		r := everything()
		spoil(&sum, &r)
		for range enough {
			sum.add(r)
		}
		err := sum.verdict()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	bare, r := total{}, everything()
	r.Hits[schedule.Disk] = 0
	for range enough {
		bare.add(r)
	}
	if err := bare.verdict(); err != nil {
		t.Errorf("where no disk can be filled: %v", err)
	}
	text := bare.text(8 * time.Minute)
	for _, want := range []string{"rounds        8, 0 broken, in 480 s (60.0 s a round", "kill 8 pause 8 term 8 cut 8 delay 8 disk 0 restart 8", "kills         8: agent 0 guardian 0 program 0 tree 8 watcher 0 (", "24 lives of headway-agent, in 8 rounds; 0 of headway agent",
		"800 writes judged; 32 of them (4.00 %) named by what they wrote and 8 by nobody (allowed together 5 %)", "attempts      56, with 320 milestones", "8000 steps trained, 800 of them again, all beyond the last acknowledged pointer; one end of an attempt cost 30 at most",
		"16 ends of attempts that no fault kept from the store since their last acknowledged pointer: one cost 25 steps at most, with 1 milestones"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// Few rounds need not have met everything.
func TestFewRounds(t *testing.T) {
	var sum total
	sum.add(round.Report{})
	if err := sum.verdict(); err != nil {
		t.Error(err)
	}
}
