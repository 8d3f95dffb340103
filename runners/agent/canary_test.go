package agent

import (
	"strings"
	"testing"
)

// TestNoSecretLeaves: a program says its secrets in every way that it has; what the store holds and what the agent
// says of itself has none of them, nor any half of one.
func TestNoSecretLeaves(t *testing.T) {
	const one, two = "CANARY\"one<&>\\tail", "CANARYtwo-tail"
	for name, script := range map[string]string{
		"output": `
print("out", secret)
sys.exit("last " + secret)`,
		"error": `
with headway.attach() as run:
    for n in run.steps(0, 5):
        run.note(**{"loss": 1.0, "key": secret, "long": "x" * 1010 + lines[1]})
    raise ValueError(secret + " " + lines[1])`,
		"long error": `
with headway.attach() as run:
    run.step(1)
    raise ValueError(lines[1] + "x" * (16380 - len(lines[1])))`,
		"error cut": `
with headway.attach() as run:
    run.step(1)
    raise ValueError("y" * 1005 + lines[1])`,
		"path": `
with headway.attach() as run:
    run.step(1)
    os.makedirs(lines[1])
    os.symlink("/etc/passwd", lines[1] + "/x")
    run.milestone(lines[1], 1)`,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.secret = one + "\n" + two
			w.spec.Argv = []string{"python3", "-c", "import os, sys, headway\nsecret = os.environ['MY_SECRET']; lines = secret.splitlines()\n" + script}
			p := w.start(1, "agent")
			if got := w.code(p); got != CodeUserCode {
				t.Errorf("exit %d\n%s", got, p.out.String())
			}
			if e := w.end(1); e.Error == "" || e.Class != "user_code" {
				t.Errorf("end %+v", e)
			}
			for where, text := range map[string]string{"the store": w.text("work/") + w.text("witness/"), "what the agent said": p.out.String()} {
				if i := strings.Index(text, "CANARY"); i >= 0 {
					t.Errorf("%s has %q", where, text[max(0, i-80):min(len(text), i+80)])
				}
				if where == "the store" && !strings.Contains(text, "[secret]") {
					t.Errorf("%s has no mask, so the secret was never said", where)
				}
			}
		})
	}
}
