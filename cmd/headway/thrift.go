package main

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// gcPercent lets little garbage pile up beside what is remembered of thousands of jobs: a pass makes more of it than it keeps,
// and memory is dearer to a process that runs for months than the processor time of a collection.
const gcPercent = 20

// gcHurried is the same while a commit is read and acted on. A collection marks everything that is remembered, and costs more
// than all else that a commit of one file does; what such a commit leaves as garbage is collected after it was acted on,
// unless memory would go beyond what bound has set.
const gcHurried = 50

// softMost is how much memory the collector tries to stay below, bytes, whatever the two above say: what is remembered of
// 20,000 jobs fits, and so does what a pass over them needs. Where more is remembered the limit is above that by an eighth and
// some: one below it would collect without end.
const softMost = 106 << 20

// bound sets the limit by what is remembered now; where a person has set GOGC or GOMEMLIMIT it does nothing.
func bound(e env) {
	if e.getenv("GOGC") != "" || e.getenv("GOMEMLIMIT") != "" {
		return
	}
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	debug.SetMemoryLimit(max(softMost, int64(s[0].Value.Uint64())*9/8+softMost/8))
}

// hurry puts off the next collection until the function that it returns is called, at least once; where a person has set GOGC it does nothing.
func hurry(e env) (over func()) {
	if e.getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(gcHurried)
	return func() {
		debug.SetGCPercent(gcPercent)
		bound(e)
	}
}

// A pass over thousands of jobs needs a third more than what is remembered between two of them, and leaves as much garbage.
// Where that is worth a collection it is given back while nothing is done; the next pass saves one collection of its own.
const (
	worthReturning = 8 << 20     // bytes
	quietFor       = time.Second // with less time before the next pass nothing is returned
)

// rest gives back what the last pass needed and the time until the next does not. kept is what it answered last, 0 at first:
// the bytes that are remembered, since a collection in the middle of a pass counts what that needs as well.
func rest(next time.Duration, kept uint64) uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	live := s[2].Value.Uint64()
	if kept == 0 || live < kept {
		kept = live
	}
	if next >= quietFor && s[0].Value.Uint64()+s[1].Value.Uint64() > kept+worthReturning {
		debug.FreeOSMemory()
		metrics.Read(s)
		kept = s[2].Value.Uint64()
	}
	return kept
}
