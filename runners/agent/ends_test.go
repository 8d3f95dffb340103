package agent

import (
	"archive/tar"
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// TestEnds: every way in which a program can disappoint has its exit code, its class, one sentence, and a free place.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		argv  []string
		code  int
		class string
		exit  int
		text  string
		word  string
	}{
		"no result":        {shell("echo done"), CodeNoResult, "no_result", 0, "the program exited with code 0 and left no file in its result folder: write one into $HEADWAY_RESULT (result)", ""},
		"exit 1 at once":   {shell("exit 1"), CodeUserCode, "user_code", 1, "the program exited with code 1: it printed nothing", "it printed nothing"},
		"last line":        {shell("echo Traceback; echo 'ValueError: bad' >&2; echo; exit 3"), CodeUserCode, "user_code", 3, "the program exited with code 3: ValueError: bad", "ValueError: bad"},
		"own folder":       {shell(`echo "cannot open '$PWD/x'" >&2; exit 1`), CodeUserCode, "user_code", 1, "the program exited with code 1: cannot open 'code/x'", "cannot open 'code/x'"},
		"signal":           {shell("kill -SEGV $$"), CodeUserCode, "user_code", 139, "the program was ended by signal 11 (segmentation fault): it printed nothing", ""},
		"signal, a result": {shell(`echo '{"sum":1}' >"$HEADWAY_RESULT/metrics.json"; kill -TERM $$`), CodeUserCode, "user_code", 143, "the program was ended by signal 15 (terminated): it printed nothing", ""},
		"full disk":        {shell("echo 'OSError: [Errno 28] No space left on device' >&2; exit 1"), CodeDiskFull, "disk_full", 1, "the program exited with code 1: OSError: [Errno 28] No space left on device", "OSError: [Errno 28] No space left on device"},
		"full quota":       {shell("echo 'cp: x: Disk quota exceeded' >&2; exit 1"), CodeDiskFull, "disk_full", 1, "the program exited with code 1: cp: x: Disk quota exceeded", ""},
		"no such program":  {[]string{"no-such-program"}, CodeUserCode, "user_code", 127, "", ""},
		"no metrics":       {shell(`echo 1 >"$HEADWAY_RESULT/model"`), CodeNoResult, "no_result", 0, "the result has no metrics.json: the plan promises sum", ""},
		"other metrics":    {shell(`echo '{"loss":1}' >"$HEADWAY_RESULT/metrics.json"`), CodeNoResult, "no_result", 0, `metrics.json has no finite number named "sum": the plan promises sum`, ""},
		"NaN":              {shell(`echo '{"sum":NaN}' >"$HEADWAY_RESULT/metrics.json"`), CodeNoResult, "no_result", 0, "", ""},
		"a link":           {shell(`echo '{"sum":1}' >"$HEADWAY_RESULT/metrics.json"; ln -s /etc/passwd "$HEADWAY_RESULT/x"`), CodeNoResult, "no_result", 0, "", ""},
		"no agent needed":  {shell(`echo '{"sum":1}' >"$HEADWAY_RESULT/metrics.json"`), CodeFinished, "finished", 0, "the result is in the store", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.spec.Argv = c.argv
			w.run(1, c.code)
			e := w.end(1)
			if e.Class != c.class || e.ExitCode != c.exit || c.text != "" && e.Text != c.text || c.word != "" && e.Error != c.word || e.Text == "" {
				t.Errorf("end %+v", e)
			}
			state := witness.Yielded
			if c.code == CodeFinished {
				state = witness.Finished
			}
			if seen := w.witness().Record; seen.State != state || seen.State == witness.Yielded && seen.Reason == "" {
				t.Errorf("witness %+v", seen)
			}
			if left, _ := filepath.Glob(filepath.Join(w.scratch, "*")); len(left) > 0 {
				t.Errorf("left on disk: %v", left)
			}
		})
	}
}

// TestProgramsWorld: what the program gets, and what it does not get; a secret does not reach the log.
func TestProgramsWorld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.spec.Metrics = nil
	w.spec.Result, w.spec.Deploy = "out/result", true
	w.spec.Argv = shell(`env | sort; cat data.txt; mkdir -p out/result; echo 1 >out/result/r; ls -l run.sh`)
	w.spec.CodeTree = "0772f0fae89c909c38d386d35cc2593db6d3d606"
	var out bytes.Buffer
	z, _ := zstd.NewWriter(&out)
	tw := tar.NewWriter(z)
	for _, f := range []struct {
		name, data string
		mode       int64
	}{{"data.txt", "from the bundle\n", 0o644}, {"run.sh", "#!/bin/sh\n", 0o755}} {
		_ = tw.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg})
		_, _ = tw.Write([]byte(f.data))
	}
	_ = tw.Close()
	_ = z.Close()
	if _, err := w.b.Put(t.Context(), record.CodeKey(w.spec.CodeTree), bytes.NewReader(out.Bytes()), bucket.Always()); err != nil {
		t.Fatal(err)
	}
	w.run(1, CodeFinished)
	log := w.text(record.LogPrefix(w.work, 1))
	for _, want := range []string{"HEADWAY_ATTEMPT=1\n", "HEADWAY_SEED=7\n", "HEADWAY_DEPLOY=1\n", "HEADWAY_WORK=" + w.work + "\n", "HEADWAY_SOCKET=/", "MY_SECRET=[secret]\n",
		"PYTHONPATH=/", "TOTAL=100\n", "from the bundle\n", "-rwxr-xr-x"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in what the program saw:\n%s", want, log)
		}
	}
	for _, never := range []string{"HEADWAY_STORE", "HEADWAY_SCRATCH", "AWS_", "battery staple", "correct horse", "HEADWAY_RESUME"} {
		if strings.Contains(log, never) {
			t.Errorf("%q reached the program's log", never)
		}
	}
	if got := w.text(record.ResultPrefix(w.work, 1) + "r"); got != "1\n" {
		t.Errorf("result %q", got)
	}
}

// TestRefusedBeforeTheLease: what is wrong with the order or the machine is said before anything is touched.
func TestRefusedBeforeTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world)
		code  int
		text  string
	}{
		"another machine": {func(w *world) { w.spec.Requires = map[string]string{"gpu": "NVIDIA B300", "os": "linux"} }, CodeRefused, `gpu: required "NVIDIA B300"`},
		"other identity": {func(w *world) {
			w.publish()
			w.spec.Identity = []byte(`{"argv":["true"]}`)
			put(w, w.b, record.SpecKey(w.work), w.spec)
		}, CodeRefused, "the identity hashes to"},
		"another command under an honest digest": {func(w *world) {
			w.publish()
			w.spec.Argv = []string{"/bin/sh", "-c", "evil"}
			put(w, w.b, record.SpecKey(w.work), w.spec)
		}, CodeRefused, "the spec's argv is"},
		"another environment under an honest digest": {func(w *world) {
			w.publish()
			w.spec.Env = map[string]string{"LD_PRELOAD": "/tmp/evil.so"}
			put(w, w.b, record.SpecKey(w.work), w.spec)
		}, CodeRefused, "the spec's env is"},
		"no spec": {func(w *world) { w.publish(); _ = w.b.Delete(w.Context(), record.SpecKey(w.work)) }, CodeRefused, "was never claimed"},
		"huge spec": {func(w *world) {
			w.publish()
			_, _ = w.b.Put(w.Context(), record.SpecKey(w.work), strings.NewReader(strings.Repeat(" ", record.MaxRecord+1)), bucket.Always())
		}, CodeRefused, "at most 262144"},
		"newer spec":    {func(w *world) { w.spec.Protocol = 2 }, CodeRefused, "use a newer agent"},
		"endless lease": {func(w *world) { w.terms.LeaseFloorS = -1 }, CodeRefused, "out of range"},
		"escaping":      {func(w *world) { w.spec.Result = "../../x" }, CodeRefused, "leads out"},
		"store is gone": {func(w *world) { w.publish(); w.url += "/nowhere" }, CodeStore, "error:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			c.spoil(w)
			p := w.run(1, c.code)
			if !strings.Contains(p.out.String(), c.text) {
				t.Errorf("said:\n%s", p.out.String())
			}
			if name != "store is gone" && w.witness().Record.Rev != 0 {
				t.Errorf("the witness was touched: %+v", w.witness().Record)
			}
			if name == "another machine" {
				d, err := runners.Dispatcher{Bucket: w.b}.ReadClaims(w.Context(), w.work, 0, 2)
				if err != nil || len(d) != 1 || d[0].Bad != "" || d[0].Refusal == nil || !strings.Contains(d[0].Refusal.Text, c.text) || d[0].Refusal.Fingerprint["os"] != "linux" {
					t.Errorf("what the store says of the refusal: %+v, %v", d, err)
				}
			}
		})
	}
}

// TestUnreadableSnapshotIsNeverAFreshStart: S18.
func TestUnreadableSnapshotIsNeverAFreshStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"BAD": "fail", "AT": "50"})
	w.run(1, CodeUserCode)
	if e := w.end(1); e.Error != "loss is not a number" || e.Step != 49 {
		t.Errorf("end %+v", e)
	}
	p := w.witness().Record.Resume
	if p == nil || p.Step != 40 {
		t.Fatalf("resume %+v", p)
	}
	key := record.MilestonePrefix(w.work, 1, p.Milestone) + "state"
	if _, err := w.b.Put(t.Context(), key, strings.NewReader(w.text(key)[:29]+"!"), bucket.Always()); err != nil {
		t.Fatal(err)
	}
	w.run(2, CodeRefused)
	if e := w.end(2); e.Class != "snapshot_unreadable" || !strings.Contains(e.Text, "state") {
		t.Errorf("end %+v", e)
	}
	if after := w.witness().Record; after.Resume == nil || *after.Resume != *p || after.State != witness.Yielded {
		t.Errorf("witness %+v", after)
	}
	if log := w.text(record.LogPrefix(w.work, 2)); log != "" {
		t.Errorf("a program was started: %q", log)
	}
}
