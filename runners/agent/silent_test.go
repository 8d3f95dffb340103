package agent

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/witness"
)

// TestAProgramWithoutEvidence: neither the client nor a watch path, or one that matches nothing. The lease is that of the
// start, four floors, and nothing renews it; when it is written off, the end names what would have helped.
func TestAProgramWithoutEvidence(t *testing.T) {
	for name, c := range map[string]struct{ watch, class, say string }{
		"no client":                     {"", "no_step", "the program never said that a step ended: call run.step from its loop, declare a long first step with run.phase, set watch:, or promise a longer silence with lease: {floor: 30m} (written off"},
		"no client, and asked to leave": {"", "no_step", "the program never said that a step ended"}, // a dispatcher that writes off releases at once
		"no file":                       {"ckpt/*.pt", "no_file", `no finished file has matched the watch path "ckpt/*.pt": mend the path, or promise a longer silence`},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.terms.LeaseFloorS, w.terms.WatchPath, w.terms.WatchIntervalS = 0.25, c.watch, 1.0/12
			w.spec.Argv = shell(`echo $$ >"$MARKS/p.part"; mv "$MARKS/p.part" "$MARKS/p"; sleep 1000`)
			p := w.start(1, "agent")
			pid := w.pid("p")
			seen := w.witness()
			if got := seen.Record.Lease; got.Seconds != 1 || got.Phase != "start" {
				t.Errorf("lease %+v", got)
			}
			<-time.After(2 * time.Second)
			if now := w.witness(); now.Version != seen.Version {
				t.Errorf("rev %d was written without evidence", now.Record.Rev)
			}
			if got, _, err := witness.Revoke(t.Context(), w.b, seen, "silent for 2 s"); got != witness.Ended {
				t.Fatal(got, err)
			}
			if strings.Contains(name, "leave") {
				if err := p.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if got := w.code(p); got != CodeLeaseLost {
				t.Errorf("exit %d", got)
			}
			w.gone(pid)
			if e := w.end(1); e.Class != c.class || !strings.Contains(e.Text, c.say) || !strings.Contains(e.Text, "silent for 2 s") {
				t.Errorf("end %+v", e)
			}
		})
	}
}
