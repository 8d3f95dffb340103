package local_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/local"
)

// cards says which cards each live agent was told to use, as the kernel has it. Two processes of one job say the same.
func (g rig) cards(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	g.each(t, func(pid int, env map[string]string) {
		who, mine := env["HEADWAY_WORK"]+" "+env["HEADWAY_DISPATCH"], env["CUDA_VISIBLE_DEVICES"]
		if env["HIP_VISIBLE_DEVICES"] != mine || mine == "" {
			t.Errorf("pid %d: CUDA_VISIBLE_DEVICES=%q, HIP_VISIBLE_DEVICES=%q", pid, mine, env["HIP_VISIBLE_DEVICES"])
		}
		if group, err := syscall.Getpgid(pid); err == nil && group != pid {
			t.Errorf("pid %d is in the process group of %d", pid, group)
		}
		out[who] = strings.Split(mine, ",")
	})
	return out
}

// twice is the card that two live agents were told to use, or "".
func (g rig) twice(t *testing.T) string {
	t.Helper()
	owner := map[string]string{}
	for who, cards := range g.cards(t) {
		for _, c := range cards {
			if owner[c] != "" {
				return fmt.Sprintf("card %s is used by %s and %s", c, owner[c], who)
			}
			owner[c] = who
		}
	}
	return ""
}

// dispatcher is a process that launches pairs on a platform of three launches with two cards until it has no room, over
// and over; it ends by being killed. Its argument is where its works begin to count.
func dispatcher() int {
	from, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return 1
	}
	g := rig{scratch: os.Args[3], store: os.Args[4]}
	r, err := local.New(local.Config{Platform: "here", Slots: 3, Options: map[string]string{"cards": "2"}, Scratch: g.scratch, Settle: 1,
		Agent: []string{os.Args[0], "agent"}, Environ: os.Environ()})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for k := from; ; {
		_, err := r.Launch(context.Background(), []runners.Launch{g.launch(k, 1, ""), g.launch(k+1, 1, "")})
		if err != nil && runners.ClassOf(err) != runners.NoSlots {
			fmt.Println(err)
			return 1
		}
		if err == nil {
			k += 2
		}
		fmt.Println(err == nil)
	}
}

// A dispatcher is killed at any moment of a launch, and the next one deals on: no card is ever two live workers'. What the
// killed one had started keeps its card and its slot, known to whoever comes next.
func TestAKilledDispatcherLeavesTheCardsAsTheyAre(t *testing.T) {
	g := newRig(t, 3)
	for round := range 12 {
		cmd := exec.Command(os.Args[0], "dispatcher", strconv.Itoa(20*round), g.scratch, g.store)
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := len(g.pids(t))
		answer := make(chan bool, 1)
		go func() { answer <- bufio.NewScanner(out).Scan() }()
		if round%3 == 0 { // after an answer; else in the midst of a launch, or of its refusal
			if !<-answer {
				t.Fatal("the dispatcher said nothing")
			}
		} else { // a launch that a kill cut off may hold a place with one agent: then there is no room, and it says so
			until(t, "one more runs, or it has said that there is no room", func() bool { return len(g.pids(t)) > before || len(answer) > 0 })
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the error says that it was killed
		if both := g.twice(t); both != "" {
			t.Fatalf("round %d: %s", round, both)
		}
		r := g.open(t, map[string]string{"cards": "2"})
		list, err := r.Running(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var listed []string
		for _, l := range list {
			listed = append(listed, fmt.Sprintf("%s %d", l.Work, l.Dispatch))
		}
		slices.Sort(listed)
		if d := cmp.Diff(g.truth(t), listed); d != "" {
			t.Fatalf("round %d: what runs (-truth +listed):\n%s", round, d)
		}
		for i := 0; i < len(list) && len(list) > 3; i += 2 { // make room again, for a part of them
			if a, err := r.Release(t.Context(), list[i].Handle); err != nil || a.Settlement != runners.Closed {
				t.Fatalf("%+v, %v", a, err)
			}
		}
	}
}

// The card of an agent that was killed is nobody else's as long as what it started lives.
func TestACardIsFreeOnceNothingUsesIt(t *testing.T) {
	g := newRig(t, 1)
	r := g.open(t, map[string]string{"cards": "1"})
	got, err := r.Launch(t.Context(), []runners.Launch{g.launch(1, 1, "guarded")})
	if err != nil {
		t.Fatal(err)
	}
	var h struct {
		PID int    `json:"pid"`
		Dir string `json:"dir"`
	}
	if err := json.Unmarshal(got[0].Handle, &h); err != nil {
		t.Fatal(err)
	}
	guardians := func() (out []int) {
		names, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if b, err := os.ReadFile(n); err == nil && strings.HasPrefix(string(b), "HEADWAY_RESULT="+h.Dir+"/") {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(n)))
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, pid)
			}
		}
		return out
	}
	until(t, "its guardian runs", func() bool { return len(guardians()) == 1 })
	if err := syscall.Kill(h.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the agent is gone", func() bool { return len(g.pids(t)) == 0 })
	if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(2, 1, "")}); runners.ClassOf(err) != runners.NoSlots {
		t.Errorf("its card was given away while its guardian lives: %v", err)
	}
	if err := syscall.Kill(guardians()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the guardian is gone", func() bool { return len(guardians()) == 0 })
	if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(2, 2, "")}); err != nil {
		t.Errorf("its card is free: %v", err)
	}
}

// The cards that the dispatcher itself may use are dealt, under their own names, and no job takes others.
func TestCardsOfTheDispatchersOwn(t *testing.T) {
	g := newRig(t, 1)
	open := func(cards string, environ ...string) (*local.Runner, error) {
		return local.New(local.Config{Platform: "here", Slots: 1, Options: map[string]string{"cards": cards, "grace": "5s"}, Scratch: g.scratch, Settle: 1,
			Agent: []string{os.Args[0], "agent"}, Environ: environ})
	}
	r, err := open("2", "CUDA_VISIBLE_DEVICES=GPU-77, 5,9")
	if err != nil {
		t.Fatal(err)
	}
	two := g.launch(3, 1, "")
	two.Cards = 2
	if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(1, 1, ""), two}); runners.ClassOf(err) != runners.Rejected {
		t.Errorf("three cards of two: %v", err)
	}
	until(t, "none of them runs", func() bool { return len(g.truth(t)) == 0 })
	theirs := g.launch(2, 1, "")
	theirs.Spec.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "0,1"}
	if _, err := r.Launch(t.Context(), []runners.Launch{theirs}); runners.ClassOf(err) != runners.Rejected || !strings.Contains(err.Error(), "deals its cards itself") {
		t.Errorf("a job that names cards: %v", err)
	}
	got, err := r.Launch(t.Context(), []runners.Launch{g.launch(1, 2, ""), g.launch(2, 2, "")})
	if err != nil || !strings.HasSuffix(got[0].Text, ", card GPU-77") || !strings.HasSuffix(got[1].Text, ", card 5") {
		t.Fatalf("%+v, %v", got, err)
	}
	if d := cmp.Diff(map[string][]string{work(1) + " 2": {"GPU-77"}, work(2) + " 2": {"5"}}, g.cards(t)); d != "" {
		t.Error(d)
	}
	// The answer was lost, one of the two has ended since, and the launch is asked for again: it goes back to its own card.
	if a, err := r.Release(t.Context(), got[1].Handle); err != nil || a.Settlement != runners.Closed {
		t.Fatalf("%+v, %v", a, err)
	}
	again, err := r.Launch(t.Context(), []runners.Launch{g.launch(1, 2, ""), g.launch(2, 2, "")})
	if err != nil || string(again[0].Handle) != string(got[0].Handle) || !strings.HasSuffix(again[1].Text, ", card 5") {
		t.Errorf("%+v, %v", again, err)
	}
	for _, bad := range []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=3,-1,4", "CUDA_VISIBLE_DEVICES=1,1"} {
		if _, err := open("2", bad); err == nil || !strings.Contains(err.Error(), "of headway's own environment names") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Whoever was started before cards were dealt may use any of them, so that none is dealt until it has ended.
func TestCardsWaitForWhoeverHasNone(t *testing.T) {
	g := newRig(t, 3)
	got, err := g.open(t, nil).Launch(t.Context(), []runners.Launch{g.launch(1, 1, "")})
	if err != nil {
		t.Fatal(err)
	}
	r := g.open(t, map[string]string{"cards": "2"})
	if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(2, 1, "")}); runners.ClassOf(err) != runners.NoSlots {
		t.Errorf("%v", err)
	}
	if a, err := r.Release(t.Context(), got[0].Handle); err != nil || a.Settlement != runners.Closed {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(2, 1, "")}); err != nil {
		t.Error(err)
	}
	// Other launches than before: what runs keeps its card, and those are dealt of which nobody has one.
	r = g.open(t, map[string]string{"cards": "1"})
	for k := range 2 {
		if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(3+k, 1, "")}); err != nil {
			t.Error(err)
		}
	}
	if both := g.twice(t); both != "" {
		t.Error(both)
	}
	if n := len(g.truth(t)); n != 3 {
		t.Errorf("%d run, expected 3", n)
	}
}
