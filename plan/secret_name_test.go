package plan

import (
	"strings"
	"testing"
)

// What is called a password is refused however short it is, and its value is in no sentence about it.
func TestAPasswordIsASecret(t *testing.T) {
	for value, bad := range map[string]bool{"hunter2": true, "correct horse": true, `"7"`: true, `""`: false, "${params.word}": false} {
		_, problems := Load(NewMemTree(map[string]string{
			"headway.yaml": "headway: v1\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\n", "code/train.py": "\n",
			"plans/a.yaml": "jobs:\n  a: {run: python3 train.py, code: ../code, params: {word: x}, env: {DB_PASSWORD: " + value + "}}\n"}))
		found := false
		for _, p := range problems {
			found = found || p.Code == "InlineSecret"
			if strings.Contains(p.String(), "hunter2") || strings.Contains(p.String(), "horse") {
				t.Errorf("%q is shown: %s", value, p.String())
			}
		}
		if found != bad {
			t.Errorf("%q: %v", value, problems)
		}
	}
}

// A file may be named like a secret, too: no problem, no face and no list of what is not committed shows it.
func TestAFileNamedLikeASecretIsNotShown(t *testing.T) {
	const key = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	p, problems := Load(NewMemTree(map[string]string{"headway.yaml": "headway: v1\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\n",
		"plans/" + key + ".yaml": "jobs:\n  a: {run: x}\n", "plans/x-" + key + ".yaml": "jobs:\n  b: {run: x, sede: 1}\n"}))
	if len(p.Jobs) != 1 || len(problems) != 1 {
		t.Fatalf("%d jobs, %v", len(p.Jobs), problems)
	}
	d := Diff(p, nil, nil)
	d.Problems, d.Dirty, d.Uncommitted = problems, true, []string{"plans/" + key + ".yaml"}
	d.Pending = &Pending{Ref: "main", Changes: []Change{{Op: OpCreate, Job: "a", Pos: p.Jobs[0].Pos}}}
	d.Settle(p)
	var text strings.Builder
	if err := d.Text(&text, false); err != nil {
		t.Fatal(err)
	}
	j, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, face := range map[string]string{"text": text.String(), "JSON": string(j), "Markdown": d.Markdown(0), "problem": problems[0].String(), "place": p.Jobs[0].Pos.String()} {
		if strings.Contains(face, key) || !strings.Contains(face, "(not shown)") {
			t.Errorf("%s: %s", name, face)
		}
	}
}
