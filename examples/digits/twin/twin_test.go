package twin

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/goclient"
)

const data = "../digits/digits.csv.gz"

// agent answers the protocol as far as a program sees it, and keeps the milestones in dir, a folder each.
type agent struct {
	dir, resume string // resume: folder to start from, empty: none
	step        int64
	stop        bool // want the place back at once

	steps []int64 // of the milestones
}

// serve listens until the test ends and names itself in the environment.
func (a *agent) serve(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hw") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done; _ = os.RemoveAll(dir) })
	t.Setenv("HEADWAY_SOCKET", filepath.Join(dir, "s"))
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if reply := a.reply(lines.Bytes()); reply != "" {
				fmt.Fprintln(c, reply)
			}
		}
	}()
}

func (a *agent) reply(line []byte) string {
	var m struct {
		Op, Path string
		Step     int64
		Ask      bool
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return `{"ok":false,"error":"bad_request","text":"no JSON"}`
	}
	switch {
	case m.Op == "hello":
		quiet := 3600
		if a.stop {
			quiet = 0
		}
		return fmt.Sprintf(`{"ok":true,"protocol":1,"work":"ab","attempt":1,"every_steps":10,"every_s":0,"quiet_s":%d}`, quiet)
	case m.Op == "resume" && a.resume != "":
		return fmt.Sprintf(`{"ok":true,"path":%q,"step":%d,"milestone":1}`, a.resume, a.step)
	case m.Op == "resume":
		return `{"ok":true,"path":null,"step":0,"milestone":0}`
	case m.Op == "milestone":
		kept := filepath.Join(a.dir, fmt.Sprint(m.Step))
		if err := errors.Join(os.Mkdir(kept, 0o755), os.Rename(m.Path, filepath.Join(kept, filepath.Base(m.Path)))); err != nil {
			return fmt.Sprintf(`{"ok":false,"error":"internal","text":%q}`, err)
		}
		a.steps = append(a.steps, m.Step)
		return `{"ok":true,"milestone":1}`
	case m.Op == "step" && m.Ask && a.stop:
		return `{"ok":true,"quiet_s":0,"due":true,"stop":"yield"}`
	case m.Op == "note" || m.Op == "error" || m.Op == "step" && !m.Ask:
		return ""
	}
	return `{"ok":true,"quiet_s":3600,"milestone":0}`
}

// train runs a small training and returns its result folder and what it said.
func train(t *testing.T, args ...string) (result, out string, err error) {
	t.Helper()
	result = t.TempDir()
	t.Setenv("HEADWAY_RESULT", result)
	var b bytes.Buffer
	args = append([]string{"--data", data, "--steps", "45", "--hidden", "6", "--batch", "8", "--seed", "3"}, args...)
	err = Train(t.Context(), args, &b)
	return result, b.String(), err
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"model.json", "metrics.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	return out
}

func TestResumedAtAnyMilestoneItEndsWithTheSameBits(t *testing.T) {
	whole := &agent{dir: t.TempDir()}
	whole.serve(t)
	result, out, err := train(t)
	if err != nil || strings.Contains(out, "resumed") {
		t.Fatalf("%v\n%s", err, out)
	}
	if d := cmp.Diff([]int64{10, 20, 30, 40}, whole.steps); d != "" {
		t.Fatal(d)
	}
	want := files(t, result)
	for _, step := range whole.steps {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			part := &agent{dir: t.TempDir(), resume: filepath.Join(whole.dir, fmt.Sprint(step)), step: step}
			part.serve(t)
			result, out, err := train(t)
			if err != nil || !strings.Contains(out, fmt.Sprintf("resumed at step %d\n", step)) {
				t.Fatalf("%v\n%s", err, out)
			}
			if d := cmp.Diff(want, files(t, result)); d != "" {
				t.Error(d)
			}
		})
	}
	t.Run("without an agent", func(t *testing.T) {
		t.Setenv("HEADWAY_SOCKET", "")
		result, out, err := train(t)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if d := cmp.Diff(want, files(t, result)); d != "" {
			t.Error(d)
		}
	})
}

func TestAPlaceThatIsWantedBackGetsAMilestoneAndNoResult(t *testing.T) {
	a := &agent{dir: t.TempDir(), stop: true}
	a.serve(t)
	result, _, err := train(t)
	if !errors.Is(err, goclient.ErrYielded) {
		t.Errorf("error %v, want the yield", err)
	}
	left, err := os.ReadDir(result)
	if err != nil || len(left) > 0 {
		t.Errorf("result holds %v, %v; want nothing", left, err)
	}
	if len(a.steps) != 1 {
		t.Errorf("milestones at %v, want one", a.steps)
	}
}

func TestItLearnsAndTheBacktestScoresIt(t *testing.T) {
	t.Setenv("HEADWAY_SOCKET", "")
	result, out, err := train(t, "--steps", "600", "--hidden", "16", "--batch", "32", "--lr", "0.2")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	trained := score(t, result, "val_accuracy")
	scored := t.TempDir()
	t.Setenv("HEADWAY_RESULT", scored)
	if err := Backtest(t.Context(), []string{"--model", result, "--data", data}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if got := score(t, scored, "accuracy"); trained < 0.9 || got < 0.88 {
		t.Errorf("accuracy %g in validation, %g held out", trained, got)
	}
}

func score(t *testing.T, dir, name string) float64 {
	t.Helper()
	var m map[string]float64
	if err := load(filepath.Join(dir, "metrics.json"), &m); err != nil {
		t.Fatal(err)
	}
	if len(m) != 1 {
		t.Fatalf("metrics %v, want %s alone", m, name)
	}
	return m[name]
}

func TestTheStepGoesDownTheGradient(t *testing.T) {
	rows, err := read(data, 1)
	if err != nil {
		t.Fatal(err)
	}
	n := newNetwork(5, rand.New(rand.NewPCG(1, 2)))
	batch := make([]*row, 6)
	for i := range batch {
		batch[i] = &rows.train[i]
	}
	loss := func() (sum float64) {
		for _, r := range batch {
			_, chances := n.forward(r.x[:])
			sum -= math.Log(chances[r.digit])
		}
		return sum / float64(len(batch))
	}
	var slopes, before []float64
	for _, w := range append(append([][]float64{}, n.W1...), n.W2...) {
		for i := range w {
			keep := w[i]
			w[i] = keep + 1e-5
			up := loss()
			w[i] = keep - 1e-5
			slopes = append(slopes, (up-loss())/2e-5)
			w[i] = keep
			before = append(before, keep)
		}
	}
	want := loss()
	if got := n.train(batch, 1); math.Abs(got-want) > 1e-12 {
		t.Errorf("train reports a loss of %g, want %g", got, want)
	}
	i := 0
	for _, w := range append(append([][]float64{}, n.W1...), n.W2...) {
		for _, v := range w {
			if moved := before[i] - v; math.Abs(moved-slopes[i]) > 1e-6 {
				t.Errorf("weight %d moved by %g, the slope is %g", i, moved, slopes[i])
			}
			i++
		}
	}
}

func TestBadInputIsRefused(t *testing.T) {
	t.Setenv("HEADWAY_SOCKET", "")
	for name, args := range map[string][]string{
		"flag": {"--speed", "3"}, "argument": {"fast"}, "batch": {"--batch", "0"}, "large batch": {"--batch", "99999"},
		"no units": {"--hidden", "0"}, "no data": {"--data", "nowhere.csv.gz"},
	} {
		if _, _, err := train(t, args...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, text := range map[string]string{
		"short": "1,2,3\n", "word": strings.Repeat("0,", 63) + "x,1\n", "digit": strings.Repeat("0,", 64) + "10\n",
	} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "rows.csv.gz")
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := read(path, 1); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: error %v, want one that names line 1", name, err)
		}
	}
}
