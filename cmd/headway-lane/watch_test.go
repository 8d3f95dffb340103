package main

import (
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane"
)

// A deaf target ends run only where nothing else goes on by itself; one that waits for a person never does.
func TestADeafTargetHoldsNobodyUp(t *testing.T) {
	deaf := deploylane.Standing{Model: "a", Stage: "target", After: time.Second}
	parked := deploylane.Standing{Model: "b", Stage: "target"}
	trains := deploylane.Standing{Model: "c", Stage: deploylane.Retrain, After: time.Second}
	for name, c := range map[string]struct {
		all  []deploylane.Standing
		once bool
		want int
	}{
		"deaf alone":               {[]deploylane.Standing{parked, deaf}, false, 1},
		"another one trains":       {[]deploylane.Standing{deaf, trains}, false, -1},
		"another trains, but once": {[]deploylane.Standing{trains, deaf}, true, 1},
		"a person is waited for":   {[]deploylane.Standing{parked}, true, -1},
	} {
		if got := deafest(c.all, c.once); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
