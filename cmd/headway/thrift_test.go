package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// What a pass left is given back while there is time, and nothing is collected for it where the next pass is near or little
// was left.
func TestMemoryIsGivenBackBetweenPasses(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection but the one that is asked for
	debug.FreeOSMemory()
	now := func() (m runtime.MemStats) {
		runtime.ReadMemStats(&m)
		return m
	}
	before := now()
	rest(time.Minute, 0)
	if n := now().NumGC; n != before.NumGC {
		t.Error("nothing was left, and it was collected")
	}
	for range 64 {
		runtime.KeepAlive(make([]byte, 1<<20))
	}
	left := now()
	rest(quietFor/2, 0)
	if n := now().NumGC; n != left.NumGC {
		t.Error("the next pass is near, and it was collected")
	}
	kept := rest(quietFor, 0)
	after := now()
	if idle := int64(after.HeapIdle - after.HeapReleased); after.NumGC == left.NumGC || after.HeapAlloc > left.HeapAlloc-60<<20 || idle > worthReturning {
		t.Errorf("%d MB were in use and %d MB still are; %d MB of the free ones were not given back", left.HeapAlloc>>20, after.HeapAlloc>>20, idle>>20)
	}
	held := make([]byte, 64<<20)
	runtime.GC() // in the middle of a pass, which needs them
	runtime.KeepAlive(held)
	during := now()
	rest(quietFor, kept)
	if after := now(); after.NumGC == during.NumGC || after.HeapAlloc > during.HeapAlloc-60<<20 {
		t.Errorf("%d MB were in use in the middle of a pass and %d MB still are behind it", during.HeapAlloc>>20, after.HeapAlloc>>20)
	}
}
