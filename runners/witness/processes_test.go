package witness

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headway-run/headway/runners/bucket/dir"
)

// The test binary is also the other process.
const childEnv = "HEADWAY_WITNESS_TEST_CHILD"

// part is what one process does: its clients' share of every history.
type part struct {
	Root, Meet        string // the store; a folder where processes wait for each other
	Client, Processes int
	Histories, Rounds int
}

// monotonic is a clock that all processes of a machine share.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // never: the clock exists wherever these tests build
	}
	return ts.Nano()
}

// child plays one client in each history, and writes the operations of each as a line.
func child(how string) error {
	var p part
	if err := json.Unmarshal([]byte(how), &p); err != nil {
		return err
	}
	b, err := dir.Open(p.Root, dir.Options{NoSync: true})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for i := range p.Histories {
		if err := p.meet(i); err != nil {
			return err
		}
		c := newClient(p.Client, uint64(i), b, 160*time.Millisecond, monotonic)
		if err := out.Encode(c.play(context.Background(), p.Rounds)); err != nil {
			return err
		}
	}
	return nil
}

// meet waits until every process has come to the i-th history.
func (p part) meet(i int) error {
	if err := os.WriteFile(filepath.Join(p.Meet, fmt.Sprintf("%d.%d", i, p.Client)), nil, 0o600); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(time.Millisecond) {
		if there, err := filepath.Glob(filepath.Join(p.Meet, fmt.Sprintf("%d.*", i))); err != nil || len(there) == p.Processes {
			return err
		}
	}
	return fmt.Errorf("client %d: the others did not come to history %d", p.Client, i)
}

// TestHistoriesOfProcesses: the same with clients in processes of their own on one folder, by the clock that they share.
func TestHistoriesOfProcesses(t *testing.T) {
	const processes, histories = 4, 50
	p := part{Root: filepath.Join(t.TempDir(), "store"), Meet: t.TempDir(), Processes: processes, Histories: histories, Rounds: 2}
	if _, err := dir.Open(p.Root, dir.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	all := make([][][]op, processes)
	var wg sync.WaitGroup
	for id := range processes {
		p.Client = id
		how, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+string(how))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			lines := json.NewDecoder(out)
			for range histories {
				var ops []op
				if err := lines.Decode(&ops); err != nil {
					t.Errorf("process %d: %v", id, err)
					break
				}
				all[id] = append(all[id], ops)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", id, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	c := &checked{answers: map[string]int{}}
	for i := range histories {
		var ops []op
		for id := range processes {
			ops = slices.Concat(ops, all[id][i])
		}
		c.add(ops)
	}
	c.sound(t)
}
