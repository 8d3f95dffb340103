//go:build race

package reconcile_test

import "time"

const (
	killedWorks = 1000
	boardFor    = 4 * time.Minute
	boardPace   = 30 * time.Second
	stormSorts  = 1
	cases       = "1000"
)
