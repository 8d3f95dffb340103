package reconcile

import (
	"testing"
	"testing/synctest"
	"time"
)

// Stamps are of whole seconds. However writing and first look lie within theirs, an age is never more than what has passed
// since the stamp, and less than a second short of that.
func TestAnAgeIsWithinASecondOfItsStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := false
		for first := range 25 {
			for later := range 25 {
				var a ages
				modified := time.Now().Truncate(time.Second)
				<-time.After(time.Duration(first) * 100 * time.Millisecond)
				a.age("key", modified, time.Now().Truncate(time.Second), ancient)
				<-time.After(time.Duration(later) * 100 * time.Millisecond)
				now := time.Now()
				got, since := a.age("key", modified, now.Truncate(time.Second), ancient), now.Sub(modified)
				if got > since || got <= since-time.Second {
					t.Errorf("first seen after %d ms, an age of %v is told as %v", first*100, since, got)
				}
				short = short || got < since
				<-time.After(30 * time.Millisecond)
			}
		}
		if !short {
			t.Error("no look fell within a second")
		}
	})
}
