package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/record"
)

// What a job says of its output and of its exit codes is in end.json, whatever the program's own last words are.
func TestPoliciesAndExitCodes(t *testing.T) {
	oom, ecc := stop("CUDA out of memory"), exclude("ECC error")
	for name, c := range map[string]struct {
		prints string
		code   int
		class  string
		want   *record.Match
	}{
		"nothing is named":       {"hello\n", 1, "user_code", nil},
		"a named line":           {"CUDA out of memory. Tried to allocate 2 GiB\nTraceback\n", 1, "user_code", &record.Match{Policy: oom, Line: "CUDA out of memory. Tried to allocate 2 GiB"}},
		"without a line's end":   {"GPU 3: ECC error", 1, "user_code", &record.Match{Policy: ecc, Line: "GPU 3: ECC error"}},
		"the first one counts":   {"ECC error\nCUDA out of memory\n", 1, "user_code", &record.Match{Policy: ecc, Line: "ECC error"}},
		"with a secret in it":    {"CUDA out of memory at correct horse\n", 1, "user_code", &record.Match{Policy: oom, Line: "CUDA out of memory at [secret]"}},
		"hostile text":           {"\x1b[31mECC error\x07\xff\n", 1, "user_code", &record.Match{Policy: ecc, Line: "[31mECC error"}},
		"a named code":           {"", 75, "retryable", nil},
		"a code and a line":      {"ECC error\n", 75, "retryable", &record.Match{Policy: ecc, Line: "ECC error"}},
		"another code":           {"", 76, "user_code", nil},
		"0 is no failure":        {"ECC error\n", 0, "no_result", &record.Match{Policy: ecc, Line: "ECC error"}},
		"a named code of a kill": {"", 137, "retryable", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newMemWorld(t, nil)
				w.terms.Policies = []record.Policy{{Log: "(", Then: "stop"}, oom, ecc}
				w.terms.RetryCodes = []int{75, 137}
				w.inside(t.Context(), &Inside{Program: func(_ context.Context, p Program) int {
					fmt.Fprint(p.Output, c.prints)
					return c.code
				}})
				e := w.end(1)
				if e.Class != c.class || e.ExitCode != c.code {
					t.Errorf("class %s, code %d: %s", e.Class, e.ExitCode, e.Text)
				}
				if d := cmp.Diff(c.want, e.Policy); d != "" {
					t.Error(d)
				}
				events := w.text(record.EventPrefix(w.work, 1))
				if !strings.Contains(events, `"policy left out"`) || strings.Contains(events, `"event":"policy"`) != (c.want != nil) {
					t.Errorf("events %s", events)
				}
			})
		})
	}
}
