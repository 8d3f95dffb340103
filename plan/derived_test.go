package plan

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDerivedCommand: a command is hidden exactly when the other changes account for all of it.
func TestDerivedCommand(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		job           string
		want          string // fields that are shown, then those that are not
	}{
		"a parameter":                {"j: {run: 'x --lr=${params.lr}', params: {lr: 1}}", "j: {run: 'x --lr=${params.lr}', params: {lr: 2}}", "j", "params.lr / run"},
		"seed and replica":           {"j: {run: 'x ${seed} ${replica}'}", "j: {run: 'x ${seed} ${replica}', seed: -3, replica: 1}", "j", "replica seed / run"},
		"the command as well":        {"j: {run: 'x ${params.lr}', params: {lr: 1}}", "j: {run: 'y ${params.lr}', params: {lr: 2}}", "j", "params.lr run /"},
		"a new word":                 {"j: {run: 'x ${params.lr}', params: {lr: 1}}", "j: {run: 'x ${params.lr} -v', params: {lr: 2}}", "j", "params.lr run /"},
		"the command alone":          {"j: {run: 'x 1', params: {lr: 1}}", "j: {run: 'x 2', params: {lr: 1}}", "j", "run /"},
		"a parameter in place of it": {"j: {run: 'x 1'}", "j: {run: 'x ${params.lr}', params: {lr: 2}}", "j", "params.lr run /"},
		"quotes alone":               {"j: {run: 'x ${params.a} \"b\"', params: {a: 1}}", "j: {run: \"x '${params.a}' b\", params: {a: 2}}", "j", "params.a / run"},
		"another seed, same words":   {"j: {run: 'x', seed: 1}", "j: {run: 'x', seed: 2}", "j", "seed /"},
		"not in the command":         {"j: {run: 'x 1', seed: 1}", "j: {run: 'x 2', seed: 2}", "j", "run seed /"},
		"upstream and a parameter": {"u: {run: y, seed: 1}\n  j: {run: 'x ${needs.u} ${params.a}', needs: [u], params: {a: 1}}",
			"u: {run: y, seed: 2}\n  j: {run: 'x ${needs.u} ${params.a}', needs: [u], params: {a: 2}}", "j", "needs.u params.a / run"},
		"a group that grows": {"g: {run: 'y ${seed}', matrix: {seed: [1, 2]}}\n  j: {run: 'x ${needs.g}', needs: [g]}",
			"g: {run: 'y ${seed}', matrix: {seed: [1, 2, 3]}}\n  j: {run: 'x ${needs.g}', needs: [g]}", "j", "needs.g-seed=3 / run"},
		"another group": {"g: {run: 'y ${seed}', matrix: {seed: [1, 2]}}\n  h: {run: 'z ${seed}', matrix: {seed: [1]}}\n  j: {run: 'x ${needs.g}', needs: [g]}",
			"g: {run: 'y ${seed}', matrix: {seed: [1, 2]}}\n  h: {run: 'z ${seed}', matrix: {seed: [1]}}\n  j: {run: 'x ${needs.h}', needs: [h]}", "j",
			"needs.g-seed=1 needs.g-seed=2 needs.h-seed=1 run /"},
		"a member of a matrix": {"j: {run: 'x ${params.a} ${seed}', params: {a: 1}, matrix: {seed: [4, 5]}}", "j: {run: 'x ${params.a} ${seed}', params: {a: 2}, matrix: {seed: [4, 5]}}",
			"j-seed=5", "params.a / run"},
	} {
		t.Run(name, func(t *testing.T) {
			a := Accept(mustLoad(t, map[string]string{"plans/p.yaml": "jobs:\n  " + c.before + "\n"}), "c1")
			d := Diff(mustLoad(t, map[string]string{"plans/p.yaml": "jobs:\n  " + c.after + "\n"}), &a, nil)
			var shown, hidden []string
			for _, ch := range d.Changes {
				for _, f := range ch.Fields {
					switch {
					case ch.Job != c.job:
					case f.Derived:
						hidden = append(hidden, f.Field)
					default:
						shown = append(shown, f.Field)
					}
				}
			}
			got := strings.TrimSpace(strings.Join(append(append(shown, "/"), hidden...), " "))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			var text bytes.Buffer
			if err := d.Text(&text, false); err != nil {
				t.Fatal(err)
			}
			if both := text.String() + d.Markdown(0); strings.Contains(both, "run makes") != strings.HasSuffix(c.want, "run /") || strings.Contains(both, "\n    run ") && !strings.Contains(c.want, "run ") {
				t.Errorf("shown or hidden wrongly:\n%s", both)
			}
		})
	}
}
