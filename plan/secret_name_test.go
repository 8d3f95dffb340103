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
