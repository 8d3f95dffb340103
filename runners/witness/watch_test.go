package witness

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/bucket"
)

// sighting is a sight of one version at now, with the store's two stamps an age apart and off by skew from our clock.
func sighting(v int, age, skew, promise time.Duration) Sight {
	date := time.Now().Add(skew)
	return Sight{Version: bucket.Version(fmt.Sprint(v)), Modified: date.Add(-age), Date: date, Now: time.Now(), Promise: promise}
}

func TestSilenceNeedsTheWholePromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Observer{Poll: 5 * time.Second, Floor: 15 * time.Second}
		s := o.See("w", sighting(1, 0, 0, time.Minute))
		for s.Age < time.Minute {
			if s.Suspect {
				t.Fatalf("suspect after %s of %s", s.Age, s.Limit)
			}
			time.Sleep(5 * time.Second)
			s = o.See("w", sighting(1, 0, 0, time.Minute))
		}
		if !s.Suspect || s.Age != time.Minute {
			t.Fatal(s)
		}
		if s = o.See("w", sighting(2, 0, 0, time.Minute)); s.Suspect || s.Age != 0 {
			t.Fatal("a renewal was not seen:", s)
		}
	})
}

// TestSeeding: a restarted observer needs no full wait, and no client clock: only the store's two stamps count.
func TestSeeding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 40 * time.Minute} {
			o := Observer{Poll: 5 * time.Second}
			if s := o.See("old", sighting(1, 2*time.Hour, skew, time.Minute)); !s.Suspect || s.Age != time.Minute {
				t.Errorf("skew %s: two hours old: %v", skew, s)
			}
			if s := o.See("young", sighting(1, 20*time.Second, skew, time.Minute)); s.Suspect || s.Age != 20*time.Second {
				t.Errorf("skew %s: 20 s old: %v", skew, s)
			}
			if s := o.See("future", sighting(1, -time.Hour, skew, time.Minute)); s.Suspect || s.Age != 0 {
				t.Errorf("skew %s: absurd stamps: %v", skew, s)
			}
		}
		o := Observer{}
		if s := o.See("none", Sight{Version: "1", Modified: time.Now().Add(-time.Hour), Now: time.Now(), Promise: time.Minute}); s.Age != 0 {
			t.Error("a store without a clock:", s)
		}
	})
}

// TestSeedingUnderItsEyes: where an observer has seen that nobody holds the lease, wrong stamps make nobody suspect who
// captures it then; a fresh observer goes by the stamps.
func TestSeedingUnderItsEyes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Observer{Poll: 5 * time.Second, Floor: 15 * time.Second}
		for v := range 4 { // held, revoked, held, …
			s := o.See("w", sighting(v, 2*time.Hour, 0, time.Minute))
			if fresh := v == 0; s.Suspect != fresh || !fresh && s.Age != 5*time.Second {
				t.Fatalf("capture %d: %+v", v, s)
			}
			for s.Age < time.Minute {
				if s.Suspect {
					t.Fatal("too early:", s)
				}
				time.Sleep(5 * time.Second)
				s = o.See("w", sighting(v, 2*time.Hour, 0, time.Minute))
			}
			if !s.Suspect {
				t.Fatal("never suspected:", s)
			}
			o.Idle("w", time.Now())
			time.Sleep(5 * time.Second)
		}
		o.Idle("new", time.Now())
		time.Sleep(8 * time.Hour)
		if s := o.See("new", sighting(1, 8*time.Hour, 0, time.Minute)); s.Suspect || s.Age != 30*time.Second {
			t.Error("after it was blind:", s)
		}
		o.Idle("young", time.Now())
		time.Sleep(20 * time.Second)
		if s := o.See("young", sighting(1, 3*time.Second, 0, time.Minute)); s.Age != 3*time.Second {
			t.Error("the stamps are right, and younger than the last look:", s)
		}
		if o.Watching() != 3 {
			t.Error(o.Watching())
		}
		o.Idle("young", time.Now())
		o.Forget("young")
		if s := o.See("young", sighting(1, 2*time.Hour, 0, time.Minute)); !s.Suspect || o.Watching() != 3 {
			t.Error("forgotten, and so looked at for the first time:", s)
		}
	})
}

// TestBlindGrace: after an outage (or a sleep in which time did pass) half the promise must pass again.
func TestBlindGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Observer{Poll: 5 * time.Second}
		o.See("w", sighting(1, 0, 0, time.Minute))
		time.Sleep(8 * time.Hour)
		s := o.See("w", sighting(1, 8*time.Hour, 0, time.Minute))
		if s.Suspect || s.Age != 30*time.Second {
			t.Fatal("no grace after blindness:", s)
		}
		for range 6 {
			time.Sleep(5 * time.Second)
			s = o.See("w", sighting(1, 8*time.Hour, 0, time.Minute))
		}
		if !s.Suspect {
			t.Fatal("grace has an end:", s)
		}
	})
}

func TestPromiseIsClamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Observer{Floor: 15 * time.Second, Max: time.Hour}
		for promise, want := range map[time.Duration]time.Duration{0: o.Floor, time.Second: o.Floor, -time.Hour: o.Floor, time.Minute: time.Minute, 1000 * time.Hour: o.Max} {
			if s := o.See(promise.String(), sighting(1, 0, 0, promise)); s.Limit != want {
				t.Errorf("promise %s: limit %s, want %s", promise, s.Limit, want)
			}
		}
		if o.Watching() != 5 {
			t.Error(o.Watching())
		}
		o.Forget("0s")
		if o.Watching() != 4 {
			t.Error("not forgotten")
		}
	})
}

// TestSilenceProperty: whatever the polls, outages, sleeps and clocks, a holder that renews within half of what it
// promised, by true time, is never suspected by an observer that looks at least that often or is blind in between;
// and one that is dead is suspected within the promise, the grace and two polls once the polls are regular.
func TestSilenceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now() // a start for made-up monotonic time; every later instant is added to it
		promise := time.Duration(rapid.IntRange(15, 600).Draw(t, "promise")) * time.Second
		poll := time.Duration(rapid.IntRange(1, 20).Draw(t, "poll")) * time.Second
		skew := time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "skew")) * time.Second
		o := Observer{Poll: poll, Floor: 15 * time.Second}
		version, modified, clock := 1, now, now
		look := func() Silence {
			stamp := modified.Add(skew).Truncate(time.Second)
			return o.See("w", Sight{Version: bucket.Version(fmt.Sprint(version)), Modified: stamp, Date: clock.Add(skew).Truncate(time.Second), Now: clock, Promise: promise})
		}
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			gap := poll
			if rapid.IntRange(0, 9).Draw(t, "outage") == 0 {
				gap = time.Duration(rapid.IntRange(1, 100_000).Draw(t, "blind")) * time.Second
			}
			for end := clock.Add(gap); clock.Before(end); {
				step := min(promise/3, end.Sub(clock))
				clock = clock.Add(step)
				if clock.Sub(modified) >= promise/3 {
					version, modified = version+1, clock
				}
			}
			if s := look(); s.Suspect {
				t.Fatalf("a live holder was suspected: age %s, limit %s", s.Age, s.Limit)
			}
		}
		died := clock
		for clock.Sub(died) < promise+promise/2+2*poll+time.Second {
			clock = clock.Add(poll)
			if look().Suspect {
				return
			}
		}
		t.Fatalf("a dead holder was not suspected %s after its death (promise %s, poll %s)", clock.Sub(died), promise, poll)
	})
}

func TestBrake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		T := time.Minute
		pass := func(b *Brake, held int, errors bool, suspects ...string) (int, time.Duration) {
			off, wait := b.Allow(Pass{Now: time.Now(), Held: held, Suspects: suspects, Limit: T, Errors: errors})
			return len(off), wait
		}
		var b Brake
		check := func(what string, off, wantOff int, wait, wantWait time.Duration) {
			t.Helper()
			if off != wantOff || wait != wantWait {
				t.Errorf("%s: %d off, wait %s; want %d, %s", what, off, wait, wantOff, wantWait)
			}
		}
		off, wait := pass(&b, 3, false, "a", "b")
		check("two of three", off, 2, wait, 0)
		off, wait = pass(&b, 3, false, "a", "b", "c")
		check("three of three", off, 0, wait, T/4)
		time.Sleep(T / 8)
		off, wait = pass(&b, 3, false, "a", "b", "c")
		check("too early", off, 0, wait, T/8)
		time.Sleep(T / 8)
		off, wait = pass(&b, 4, false, "a", "b", "d")
		check("looked at again: the newcomer waits", off, 2, wait, T/4)
		time.Sleep(T / 4)
		off, wait = pass(&b, 4, false, "d", "e", "f")
		check("others now", off, 1, wait, T/4)
		off, wait = pass(&b, 4, false)
		check("all came back", off, 0, wait, 0)
		off, wait = pass(&b, 100, false, make([]string, 20)...)
		check("a fifth of a hundred", off, 20, wait, 0)
		off, wait = pass(&b, 100, false, make([]string, 21)...)
		check("more than a fifth", off, 0, wait, T/4)
		b = Brake{}
		off, wait = pass(&b, 100, true, "a")
		check("the store is shaky", off, 0, wait, T/4)
		time.Sleep(T / 4)
		off, wait = pass(&b, 100, true, "a")
		check("and still is", off, 0, wait, T/4)
		time.Sleep(T / 4)
		off, wait = pass(&b, 100, false, "a")
		check("a clean look", off, 1, wait, 0)
		pass(&b, 100, true)
		time.Sleep(T)
		off, wait = pass(&b, 100, false, "a")
		check("an error of long ago", off, 1, wait, 0)
	})
}

func TestFloor(t *testing.T) {
	if got := Floor(4 * time.Second); got != 15*time.Second {
		t.Error(got)
	}
	if got := Floor(-time.Second); got != 3*time.Second {
		t.Error(got)
	}
	for _, c := range []struct {
		k           float64
		step, floor time.Duration
		want        time.Duration
	}{
		{0, time.Second, 0, 50 * time.Second},
		{0, time.Millisecond, 0, DefaultFloor},
		{10, time.Minute, RemoteFloor, 10 * time.Minute},
		{10, time.Second, RemoteFloor, RemoteFloor},
		{50, 1000 * time.Hour, 0, 31 * 24 * time.Hour},
	} {
		l := LeaseFor(c.k, c.step, c.floor)
		if l.Length() != c.want || l.RenewAfter() != c.want/3 {
			t.Errorf("%+v: %s", c, l.Length())
		}
	}
}
