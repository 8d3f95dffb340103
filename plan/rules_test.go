package plan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rules are the promises about what is refused, each with the case that shows it: an archive of testdata/refuse and the
// code that one of its problems has, or a test of this package where no archive can show it. The sources are the rules
// of the plan format, those for YAML in a plan repository, and the reports of users of other programs by their numbers.
// (Table of values.)
var rules = []struct{ rule, where, code string }{
	// The plan format.
	{"unknown fields", "unknown-field", "UnknownField"},
	{"duplicate keys", "duplicate-key", "DuplicateKey"},
	{"wrong types", "wrong-type", "WrongType"},
	{"unknown platforms", "platform", "UnknownPlatform"},
	{"cycles of needs and like", "cycle", "Cycle"},
	{"tabs", "tab", "Tab"},
	{"bad units: durations", "units", "BadDuration"},
	{"bad units: amounts", "units", "BadAmount"},
	{"bad units: prices", "units", "BadPrice"},
	{"bad units: quantities", "units", "BadQuantity"},
	{"bad units: intervals", "units", "BadInterval"},
	{"bad units: shares", "config", "BadShare"},
	{"bad labels of limits.parallel", "config", "BadLabel"},
	{"a GPU that no platform on the ladder can give", "gpu", "NotOffered"},
	{"a GPU that nobody knows", "cards", "UnknownGPU"},
	{"a dtype the card lacks", "gpu", "NoSuchMode"},
	{"all of them in one run", "all-files-at-once", "UnknownField"},
	{"bounded: file size", "TestEveryRefusalHasACase", ""},
	{"bounded: alias expansion", "bomb", "Alias"},
	{"bounded: nesting", "depth", "TooDeep"},
	{"bounded: nesting, before the parser", "brackets", "TooDeep"},
	{"bounded: matrix product", "matrix-product", "MatrixTooLarge"},
	{"bounded: jobs per plan", "TestAmplification", ""},
	{"a bomb in a few MB", "TestBombs", ""},
	{"code never leaves the repository", "code", "Escapes"},
	{"no absolute code paths", "code", "BadPath"},
	{"run never leaves the repository", "run", "Escapes"},
	{"no absolute path is run", "run", "BadPath"},
	{"no link in code", "code-links", "SymlinkInCode"},
	{"submodules are reported", "code-links", "SubmoduleInCode"},
	{"LFS pointers are reported", "lfs", "LFSPointer"},
	{"a code folder is never silently empty", "TestCodeFolderBounds", ""},
	{"a value that looks like a key", "secrets", "InlineSecret"},
	{"secrets are names", "secrets", "BadName"},
	{"the dispatcher's keys are no secrets of a job", "dispatchers-own", "BadName"},
	{"every field is documented as one sort", "TestEveryFieldIsDocumented", ""},

	// YAML in a plan repository.
	{"UTF-8", "encodings", "Encoding"},
	{"byte order mark tolerated", "encodings", "BOM"},
	{"at most 256 KiB", "TestOddEntriesOfThePlanRoot", ""},
	{"one document", "second-document", "SecondDocument"},
	{"no anchors", "anchors", "Anchor"},
	{"no aliases", "anchors", "Alias"},
	{"no merge keys", "merge-sequence-key", "MergeKey"},
	{"no custom tags", "tags", "Tag"},
	{"integers in plain digits", "numbers", "NotWhole"},
	{"null document", "null-document", "Null"},
	{"null value", "null", "Null"},
	{"regular files: no links", "plan-root-links", "SymlinkInPlanRoot"},
	{"regular files: no gitlinks", "plan-root-links", "SubmoduleInPlanRoot"},
	{"regular files: no LFS pointers", "lfs", "LFSPointer"},
	{"regular files: no folders", "folder-as-file", "IsAFolder"},
	{"executable bit ignored", "TestOddEntriesOfThePlanRoot", ""},
	{"one name twice freezes both", "duplicate-job", "DuplicateJob"},
	{"with an error the valid files proceed", "all-files-at-once", "NotWhole"},
	{"unreadable tree", "TestAMissingObjectIsNoDeletion", ""},

	// Reports of users.
	{"8: an empty plan root stops nothing", "empty-root", "GlobMatchesNothing"},
	{"9: the last job leaves only when the commit says so", "empty-plan", "EmptyPlan"},
	{"10: a plan root that disappears", "empty-root", "GlobMatchesNothing"},
	{"11: a moved file or a new name is no new work", "TestMovesAloneAreNothingToDo", ""},
	{"23: a token in a value", "secrets", "InlineSecret"},
	{"24: no secret in a message", "TestSecretsNeverShow", ""},
	{"24: a secret where a name stands", "secret-wrong-place", "InlineSecret"},
	{"26: links in the plan root", "plan-root-links", "SymlinkInPlanRoot"},
	{"26: the plan root is a link", "plan-root-is-link", "SymlinkInPlanRoot"},
	{"29: one name in two files", "duplicate-job", "DuplicateJob"},
	{"30: duplicate key", "duplicate-key", "DuplicateKey"},
	{"31: alias bomb", "bomb", "Anchor"},
	{"32: encodings", "encodings", "Encoding"},
	{"34: an odd file name blinds nobody", "plan-root-links", "BadFileName"},
}

// TestEveryRuleHasACase fails when a promised refusal has lost its case.
func TestEveryRuleHasACase(t *testing.T) {
	corpus := corpusProblems(t)
	var tests strings.Builder
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(b)
	}
	seen := make(map[string]bool)
	for _, r := range rules {
		if seen[r.rule] {
			t.Errorf("%s: twice", r.rule)
		}
		seen[r.rule] = true
		if r.code == "" {
			if !strings.Contains(tests.String(), "\nfunc "+r.where+"(t *testing.T) {") {
				t.Errorf("%s: there is no test %s", r.rule, r.where)
			}
			continue
		}
		if !slices.ContainsFunc(corpus[r.where], func(p Problem) bool { return p.Code == r.code }) {
			t.Errorf("%s: testdata/refuse/%s.txtar has no %s: %v", r.rule, r.where, r.code, corpus[r.where])
		}
	}
}
