package main

import (
	"time"

	"github.com/headway-run/headway/reconcile/ladder"
)

// policy is one way to choose. It gets what the product's choice gets: the rungs as they stand, and the job.
type policy struct {
	name, models string
	choose       func(rungs []ladder.Rung, job ladder.Job) ladder.Choice
}

func policies() []policy {
	return []policy{
		{"headway", "reconcile/ladder: waits, moves on and moves back up by cost", ladder.Choose},
		{"first free", "a queue that takes the first platform of the list with a free slot, and stays there until it is thrown out", firstFree},
		{"quota alone", "one platform: a notebook account, whatever the hour of the week", only("quota")},
		{"spot alone", "one platform: a spot market, and no other account", only("spot")},
	}
}

// firstFree launches on the first rung that takes the job.
func firstFree(rungs []ladder.Rung, job ladder.Job) ladder.Choice {
	if job.On != "" {
		return ladder.Choice{Kind: ladder.Stay, Platform: job.On}
	}
	for _, r := range rungs {
		if r.Parked == 0 && r.Full == "" && (r.Quota == nil || r.Quota.Left > 0) {
			return ladder.Choice{Kind: ladder.Launch, Platform: r.Platform}
		}
	}
	return ladder.Choice{Kind: ladder.Wait}
}

// only knows a single platform.
func only(name string) func([]ladder.Rung, ladder.Job) ladder.Choice {
	return func(rungs []ladder.Rung, job ladder.Job) ladder.Choice {
		for _, r := range rungs {
			if r.Platform == name {
				return firstFree([]ladder.Rung{r}, job)
			}
		}
		return ladder.Choice{Kind: ladder.Blocked}
	}
}

// The backoff of a platform that says "no slots": the product's, without its jitter.
const (
	parkBase = 15 * time.Second
	parkCap  = 15 * time.Minute
)

// park is the n-th park in a row, and how long the ones before it lasted.
func park(n int) (this, before time.Duration) {
	for k := range n {
		before += this
		this = min(parkBase<<min(k, 16), parkCap)
	}
	return this, before
}
