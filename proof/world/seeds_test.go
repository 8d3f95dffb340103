package world

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/proof/history"
)

var (
	seed   = flag.Uint64("seed", 1, "TestSeed: which one to run again, with its timeline")
	all    = flag.Bool("all", false, "TestSeed: the whole timeline, not only the end of what broke")
	prints = flag.Bool("print", false, "TestSeeds with -shard: print the figures")
	seeds  = flag.Uint64("seeds", 200, "TestSeeds: how many")
	from   = flag.Uint64("from", 0, "TestSeeds: the first one")
	shard  = flag.String("shard", "", "TestSeeds: run them in this process, and leave the figures in this file")
)

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1) // goroutines of one actor then start in the order in which they were made
	os.Exit(m.Run())
}

// scratch is a folder in memory where there is one.
func scratch(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "headway-world-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestSeed runs one seed again and tells what happened.
func TestSeed(t *testing.T) {
	o := Run(t, Config{Seed: *seed, Scratch: scratch(t), Trace: true})
	if *all {
		t.Logf("%s", o.Setup)
		history.Print(t.Output(), o.History)
		o.Stats.Print(t.Output())
	}
	if o.Broken != nil {
		t.Errorf("%s", o.Tell(*seed))
	}
}

// TestSeeds runs many seeds on all cores, one process for each, and prints what they amounted to. A fault that never
// struck or a state that was never reached proves nothing: with many seeds that fails too.
func TestSeeds(t *testing.T) {
	if *shard != "" {
		runShard(t)
		return
	}
	start := time.Now()
	cores := uint64(runtime.NumCPU())
	sum := newStats()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range cores {
		share := *seeds / cores
		if i < *seeds%cores {
			share++
		}
		first := *from + i*(*seeds/cores) + min(i, *seeds%cores)
		file := filepath.Join(t.TempDir(), strconv.FormatUint(i, 10))
		wg.Go(func() {
			out, got, err := reexec(file, first, share)
			mu.Lock()
			defer mu.Unlock()
			sum.Add(got)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	sum.Print(t.Output())
	took := time.Since(start)
	t.Logf("took %v: %.0f histories, %.0f faults and %.0f job hours a minute on %d cores", took.Round(time.Millisecond),
		float64(sum.Seeds)/took.Minutes(), float64(sum.Struck())/took.Minutes(), sum.Wanted.Hours()/took.Minutes(), cores)
	if n := sum.Outside["unknown"]; n > 0 {
		t.Errorf("%d writes are of no sort that the model knows", n)
	}
	if sum.Seeds >= 1000 {
		for _, action := range sum.Untaken() {
			t.Errorf("no seed took the model's action %s", action)
		}
	}
	if sum.Seeds >= 5000 {
		for _, missing := range sum.Missing() {
			t.Errorf("no seed reached: %s", missing)
		}
	}
}

// reexec runs a share of the seeds in another process of this test.
func reexec(file string, first, share uint64) (out string, got Stats, err error) {
	got = newStats()
	self, err := os.Executable()
	if err != nil {
		return "", got, err
	}
	cmd := exec.Command(self, "-test.run", "^TestSeeds$", "-test.timeout", "0", "-shard", file, "-from", fmt.Sprint(first), "-seeds", fmt.Sprint(share))
	cmd.Env = append(os.Environ(), "GOGC=off", "GOMEMLIMIT=64MiB", "GODEBUG=adaptivestackstart=1") // what takes long is the stacks of short lives
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	ran := cmd.Run()
	if raw, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(raw, &got); err != nil {
			return "", got, err
		}
	}
	if ran != nil {
		at, _ := os.ReadFile(file + ".at")
		ran = fmt.Errorf("seeds %d to %d: %w (the last one was %s: go test ./proof/world -run 'TestSeed$' -args -seed %s)", first, first+share-1, ran, at, at)
	}
	return strings.TrimSpace(b.String()), got, ran
}

// runShard runs seeds in this process, up to the third that breaks something.
func runShard(t *testing.T) {
	sum, broken, dir := newStats(), 0, scratch(t)
	at, err := os.Create(*shard + ".at")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	for n := *from; n < *from+*seeds && broken < 3; n++ {
		if _, err := at.WriteAt(fmt.Appendf(nil, "%d", n), 0); err != nil {
			t.Fatal(err)
		}
		o := Run(t, Config{Seed: n, Scratch: dir})
		sum.Add(o.Stats)
		if o.Broken != nil {
			broken++
			again := Run(t, Config{Seed: n, Scratch: dir, Trace: true})
			if again.Trace != o.Trace {
				t.Errorf("seed %d broke (%v) and did not repeat itself (%v)", n, o.Broken, again.Broken)
			}
			t.Errorf("%s", again.Tell(n))
		}
	}
	if *prints {
		sum.Print(t.Output())
	}
	raw, err := json.Marshal(sum)
	if err == nil {
		err = os.WriteFile(*shard, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
