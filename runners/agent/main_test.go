package agent

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/headway-run/headway/runners/agent/guard"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/goclient"
	"github.com/headway-run/headway/runners/pyclient"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role, ok := roles()[os.Args[1]]; ok {
			os.Exit(role(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// roles are what this binary is when it starts itself again: the agent, its guardian, or the user's program.
func roles() map[string]func(args []string) int {
	return map[string]func([]string) int{
		guardWord: guard.Main,
		"agent":   agentRole,
		"small-disk": func(args []string) int {
			if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
				fmt.Println("mount:", err)
				return 99
			}
			if err := syscall.Mount("tmpfs", os.Getenv("HEADWAY_SCRATCH"), "tmpfs", 0, "size=4m"); err != nil {
				fmt.Println("mount:", err)
				return 99
			}
			return agentRole(args)
		},
		"program": func([]string) int { return programRole() },
		"flood":   floodRole,
	}
}

func agentRole(args []string) int {
	if len(args) > 0 && args[0] == guardWord {
		return guard.Main(args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return Main(ctx, args, os.Environ(), os.Stdout, os.Stderr, Deps{Open: openDir, Python: pyclient.FS, Self: []string{"agent"}})
}

func openDir(_ context.Context, url string, _ []string) (bucket.Bucket, error) {
	b, err := dir.Open(strings.TrimPrefix(url, "dir://"), dir.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	if marks := os.Getenv("KEEPS"); marks != "" {
		return newMortal(&keeping{Bucket: b, marks: marks}), nil
	}
	return newMortal(b), nil
}

// programRole is a training program: TOTAL steps, each the sum of what the state holds and the step's number, with a
// milestone every HEADWAY interval, so that its result proves that no step was lost or made twice.
func programRole() int {
	run, err := goclient.Attach()
	if err != nil {
		fmt.Println(err)
		return 3
	}
	err = train(run)
	if cerr := run.Close(err); err == nil {
		err = cerr
	}
	if err != nil {
		fmt.Println("program:", err)
		return 4
	}
	return 0
}

func train(run *goclient.Run) error {
	from, sum := int64(0), int64(0)
	resume, err := run.Resume()
	if err != nil {
		return err
	}
	if resume != nil {
		b, err := os.ReadFile(resume.Path + "/state")
		if err != nil {
			return err
		}
		if sum, err = strconv.ParseInt(strings.TrimSpace(string(b[:min(len(b), 30)])), 10, 64); err != nil {
			return err
		}
		from = resume.Step
	}
	fmt.Printf("training from step %d\n", from)
	total, _ := strconv.ParseInt(os.Getenv("TOTAL"), 10, 64)
	for n := range run.Steps(from, total) {
		<-pulse()
		sum += n
		if err := misbehave(run, n); err != nil {
			return err
		}
		if run.MilestoneDue() {
			if err := save(run, n, sum); err != nil {
				return err
			}
		}
	}
	if err := run.Err(); err != nil {
		return err
	}
	return run.Finish(map[string]float64{"sum": float64(sum)})
}

func save(run *goclient.Run, n, sum int64) error {
	dir, err := os.MkdirTemp(os.Getenv("ELSEWHERE"), "saved") // of its own: programs of other tests save at the same time
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name := dir + "/state"
	pad, _ := strconv.Atoi(os.Getenv("PAD"))
	if err := os.WriteFile(name, fmt.Appendf(nil, "%-30d%s", sum, strings.Repeat("x", pad)), 0o600); err != nil {
		return err
	}
	err = run.Milestone(name, n, false)
	if e, ok := err.(*goclient.Error); ok && e.Code == "disk_full" && os.Getenv("SHRINK") != "" {
		fmt.Println("refused:", e.Text)
		os.Setenv("PAD", "0")
		return nil
	}
	return err
}
