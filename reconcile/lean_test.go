//go:build !race

package reconcile_test

import "time"

// What the longest tests do less of under the race detector, which makes them some ten times as slow (lean_race_test.go).
const (
	killedWorks = 1000             // of TestGateKilledFiftyTimes
	boardFor    = 12 * time.Minute // of passes, in TestTheBoardSaysWhatTheRecordsSay
	boardPace   = 5 * time.Second  // between two of them
	stormSorts  = 4                // of TestAStormBesideTheRecordsHoldsNothing
	cases       = "5000"           // of each property
)
