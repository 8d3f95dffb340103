package headway

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/repo"
)

// TestExamples reads every plan repository under examples/ as headway does, without a single problem, and shows its
// first plan: everything that waits for nothing starts.
func TestExamples(t *testing.T) {
	configs, err := filepath.Glob("examples/*/headway.yaml")
	if err != nil || len(configs) < 2 {
		t.Fatalf("found %d examples: %v", len(configs), err)
	}
	for _, c := range configs {
		dir := filepath.Dir(c)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			copied := t.TempDir() // outside this repository, as a reader would have it
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			tree, err := repo.Folder(copied)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			p, problems := plan.Load(tree)
			if len(problems) > 0 || !p.OK() || len(p.Jobs) == 0 {
				t.Fatalf("%d jobs, problems: %v", len(p.Jobs), problems)
			}
			changes := plan.Diff(p, nil, nil)
			if n := changes.Totals.Start; n != len(p.Jobs) {
				t.Errorf("%d of %d jobs would start", n, len(p.Jobs))
			}
			var text bytes.Buffer
			if err := changes.Text(&text, false); err != nil || text.Len() == 0 {
				t.Errorf("the plan shows nothing: %v", err)
			}
			for i := range p.Jobs {
				if p.Jobs[i].CodeTree == "" {
					t.Errorf("job %s has no code", p.Jobs[i].Name)
				}
			}
		})
	}
}
