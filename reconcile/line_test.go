package reconcile

import "testing"

// A finished attempt keeps all that it did, whatever its last milestone was; any other keeps its milestones.
func TestWhatAnAttemptKept(t *testing.T) {
	for want, l := range map[string]Line{
		"from step 100 to 390, all of it kept":     {Class: "finished", From: 100, Step: 390, Kept: 200},
		"from step 100 to 390, kept 200, lost 190": {Class: "silent", From: 100, Step: 390, Kept: 200, Lost: 190},
		"from step 0 to 0, kept 0, lost 0":         {Class: "running"},
	} {
		if got := l.Steps(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
