package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/forge"
	"github.com/headway-run/headway/runners"
)

// A job's change is that of the last commit along first parents at which it came to stand for other work; nothing is looked for before
// what is in force, nor where they do not lead to that, and not without end.
func TestByWhichCommitAJobCame(t *testing.T) {
	line := []string{"c0", "c1", "c2", "c3", "c4"}
	works := map[string]map[string]plan.Digest{
		"c0": {"a": "1", "b": "1", "c": "1"},
		"c1": {"a": "2", "b": "1", "c": "1"},
		"c2": {"a": "3", "b": "1", "c": "1", "d": "1"},
		"c3": {"a": "3", "b": "2", "c": "1", "d": "1"},
		"c4": {"a": "3", "b": "2", "c": "1", "d": "1"},
	}
	read := 0
	h := lineage{
		parents: func(c string) ([]string, error) {
			if i := slices.Index(line, c); i > 0 {
				return []string{line[i-1], "elsewhere"}, nil
			}
			return nil, nil
		},
		works: func(c string) (map[string]plan.Digest, error) {
			read++
			if works[c] == nil {
				return nil, errors.New("it cannot be read")
			}
			return works[c], nil
		}}
	for _, c := range []struct {
		tip, over string
		names     []string
		want      map[string]string
		read      int
	}{
		{"c4", "c0", []string{"a", "b", "c", "d"}, map[string]string{"a": "c2", "b": "c3", "d": "c2"}, 5},
		{"c4", "c2", []string{"a", "b"}, map[string]string{"b": "c3"}, 3},
		{"c3", "c0", []string{"b"}, map[string]string{"b": "c3"}, 2},
		{"c4", "c0", []string{"c"}, map[string]string{}, 5},
		{"c4", "c4", []string{"a"}, map[string]string{}, 1},
	} {
		read = 0
		got, err := cameBy(c.tip, c.over, c.names, h)
		if d := cmp.Diff(c.want, got); d != "" || err != nil || read != c.read {
			t.Errorf("%+v: %d read, %v: %s", c, read, err, d)
		}
	}
	read = 0
	for _, over := range []string{"elsewhere", ""} {
		if got, err := cameBy("c4", over, []string{"a"}, h); err == nil || !strings.Contains(err.Error(), "first parents do not lead from c4 to ") || read > 0 {
			t.Errorf("over %q: %v, %v, %d read", over, got, err, read)
		}
	}
	works["c1"] = nil
	if got, err := cameBy("c4", "c0", []string{"c"}, h); err == nil {
		t.Errorf("a commit that cannot be read: %v", got)
	}
	read = 0
	endless := lineage{parents: func(c string) ([]string, error) { return []string{c + "x"}, nil }, works: func(string) (map[string]plan.Digest, error) { read++; return nil, nil }}
	for far, want := range map[int]int{2: 3, labelHistory: labelSteps + 1, labelHistory + 1: 0} {
		read = 0
		if got, err := cameBy("c", "c"+strings.Repeat("x", far), []string{"a"}, endless); (err != nil) != (want == 0) || len(got) > 0 || read != want {
			t.Errorf("%d commits to what is in force: %d were read, not %d: %v, %v", far, read, want, got, err)
		}
	}
}

// What was read of a commit is remembered: of the next commit itself alone anything is read, and one that cannot be read is tried
// again after a while, without the others, and said in the same words.
func TestNoPlanIsReadAgain(t *testing.T) {
	broken, said := "", map[string]int{}
	var read []string
	h := lineage{
		parents: func(c string) ([]string, error) { return []string{strings.TrimSuffix(c, "x")}, nil },
		works: func(c string) (map[string]plan.Digest, error) {
			if read = append(read, c); c == broken {
				return nil, errors.New("an object is missing")
			}
			return map[string]plan.Digest{"a": plan.Digest(c), "b": "1"}, nil
		}}
	l := &labels{say: func(format string, args ...any) { said[fmt.Sprintf(format, args...)]++ }, well: func() {}}
	pass := func(tip string, want ...string) {
		t.Helper()
		read = nil
		d := &reconcile.Desired{Commit: tip, Plan: &plan.Plan{}}
		l.last = map[string]answer{tip + " ": {labelled: true}} // nobody is asked
		got := l.approved(t.Context(), d, "c", []string{"b", "a"}, h)
		if df := cmp.Diff(want, read); df != "" || broken == "" && !cmp.Equal(got, []string{"a"}) || broken != "" && got != nil {
			t.Errorf("%s: approved %q: %s", tip, got, df)
		}
	}
	pass("cxxx", "cxxx", "cxx", "cx", "c")
	pass("cxxx")
	pass("cxxxx", "cxxxx")
	l.read, broken = nil, "cx"
	pass("cxxxx", "cxxxx", "cxxx", "cxx", "cx")
	pass("cxxxx")
	pass("cxxxx")
	r := l.read[broken]
	r.at = r.at.Add(-labelPause)
	l.read[broken] = r
	pass("cxxxx", "cx")
	if len(said) != 1 || len(l.last) != 1 {
		t.Errorf("said %v, asked of %v", said, l.last)
	}
	l.read[broken], broken = reading{}, ""
	pass("cxxxx", "cx", "c")
}

// still is a platform that takes every launch, and whose workers are never heard of.
type still struct{}

func (still) Launch(_ context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	out := make([]runners.Receipt, len(jobs))
	for i := range out {
		out[i] = runners.Receipt{Handle: json.RawMessage(`{}`), Text: "somewhere"}
	}
	return out, nil
}

func (still) Release(context.Context, json.RawMessage) (runners.Release, error) {
	return runners.Release{Settlement: runners.Closed, Text: "gone"}, nil
}
func (still) JobKinds() []string { return nil }
func (still) Capacity() int      { return 1 }

// following is a loop over a commit of a repository whose platform is still.
func (p *pullRequest) following(client *forge.Client, commit string) *loop {
	p.t.Helper()
	e := env{stdout: p.t.Output(), stderr: p.t.Output(), dir: p.dir, getenv: func(string) string { return "" }}
	of, git, err := openCommit(e, p.dir, commit)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { git.Close() })
	l := &loop{p: of, git: git, said: map[plan.Digest]string{}, drains: map[plan.Digest]bool{}}
	if l.store, _, err = of.openStore(p.t.Context(), true); err == nil {
		l.r, err = reconcile.New(reconcile.Config{Bucket: l.store, ID: "test", Load: l.load, Runners: map[string]runners.Runner{"here": still{}}})
	}
	if err == nil {
		l.message, err = commitMessage(git, commit)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(l.r.Wait)
	if client != nil {
		l.labels = &labels{client: client, well: func() { fmt.Fprintln(&p.said, "well") }, say: func(format string, args ...any) { fmt.Fprintf(&p.said, format+"\n", args...) }}
	}
	return l
}

func (p *pullRequest) pass(l *loop) *reconcile.Report {
	p.t.Helper()
	report, err := l.pass(p.t.Context(), true)
	if err != nil {
		p.t.Fatal(err)
	}
	return report
}

// replacing is a repository in whose store the job old runs for longer than guard.replace_after, and a branch that replaces it.
func replacing(t *testing.T, url string) *pullRequest {
	t.Helper()
	p := newPullRequest(t, url)
	p.write("headway.yaml", "headway: v1\nname: team-a\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\nguard: {replace_after: 1ms, replace_label: \"ok: replace\"}\n")
	p.base = p.commit("a guard")
	if report := p.pass(p.following(nil, p.base)); !report.Accepted {
		t.Fatalf("not accepted: %+v", report.Refusals)
	}
	p.write("plans/old.yaml", "jobs:\n  old: {run: exit 1}\n")
	p.head = p.commit("other work")
	return p
}

// Without the label the status is a failure that names the label and the trailer; with it it is a success, and the comment says what
// whoever merges may do. Labels that cannot be read count as none, which is said.
func TestCommentReadsTheLabel(t *testing.T) {
	f := newSmallForge(t)
	p := replacing(t, f.URL)
	p.pushed(f, false)
	has(t, p.run(3), "comment created", "status headway/plan (team-a): failure")
	has(t, f.comments[0], "GuardReplaceAfter", "put the label ok: replace on its pull request", "Allow-Replace: old", "!lets this replace", "!this checkout has none")
	has(t, f.statuses[0]["description"], "refused: if it shall be replaced, put the label ok: replace on its pull request, or say so in the commit message: Allow-Replace: old")

	f.labels = []string{"bug", "ok: replace"}
	has(t, p.run(2), "comment edited", "status headway/plan (team-a): success")
	has(t, f.comments[0], "> The label `ok: replace` lets this replace work that has run for longer than `guard.replace_after`: old. Whoever may merge",
		"elsewhere the message of the merge has to say `Allow-Replace: old`", "!GuardReplaceAfter")

	f.broken = "repos/acme/plans/pulls/7"
	has(t, p.run(1), "warning: the labels of the pull request are not known, so Allow-Replace in the commit message alone counts: Gitea could not read the pull request")

	f.broken, f.labels = "", nil
	has(t, p.run(3), "comment edited")
	has(t, p.run(3, "--dry-run"), "if it shall be replaced, say so in the commit message: Allow-Replace: old (a label would count only where headway watch --forge asks for it)")
}

// At the merge the loop asks by which pull request the replacement came, and whether it carries the label: one that is open, goes
// elsewhere, or brought something else does not count. It is asked once a minute at most, and what it cannot say is said.
func TestTheLoopReadsTheLabel(t *testing.T) {
	f := newSmallForge(t)
	p := replacing(t, f.URL)
	client, err := forge.Reader(forge.Job{Forge: forge.Gitea, API: f.URL + "/api/v1", Repository: "acme/plans", Token: forge.NewToken(canary)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	gitIn(t, p.dir, "commit", "-q", "--allow-empty", "-m", "something else")
	later := gitIn(t, p.dir, "rev-parse", "HEAD")
	refused := func(l *loop) bool {
		t.Helper()
		r := p.pass(l)
		return !r.Accepted && len(r.Refusals) == 1 && r.Refusals[0].Code == reconcile.CodeGuardReplaceAfter
	}
	pr := func(merged bool, into string, names ...string) map[string]any {
		list := []any{}
		for _, n := range names {
			list = append(list, map[string]any{"name": n})
		}
		return map[string]any{"number": 7, "merged": merged, "base": map[string]any{"ref": into, "repo": map[string]any{"full_name": "acme/plans"}}, "labels": list}
	}
	for name, by := range map[string]map[string]any{
		"none":                   {},
		"one without":            {p.head: pr(true, "main", "bug")},
		"an open one":            {p.head: pr(false, "main", "ok: replace")},
		"into another branch":    {p.head: pr(true, "stack", "ok: replace")},
		"that of another commit": {later: pr(true, "main", "ok: replace")},
	} {
		f.merged = by
		asked := f.asked
		l := p.following(client, later)
		if first, again := refused(l), refused(l); !first || !again || f.asked != asked+1 {
			t.Errorf("%s: accepted, or asked %d times", name, f.asked-asked)
		}
	}
	if strings.Contains(p.said.String(), "not known") {
		t.Errorf("said: %s", &p.said)
	}
	f.merged, f.broken = map[string]any{p.head: pr(true, "main", "ok: replace")}, "repos/acme/plans/commits/"+p.head+"/pull"
	l := p.following(client, later)
	if p.said.Reset(); !refused(l) {
		t.Error("accepted, though the forge cannot say")
	}
	has(t, p.said.String(), "Gitea could not say by which pull request a commit came", "labels are not known, so Allow-Replace in the commit message alone counts; it is asked again", "!"+canary)
	f.broken = ""
	for k := range l.labels.last {
		l.labels.last[k] = answer{at: l.labels.last[k].at.Add(-labelPause)} // a minute later
	}
	if p.said.Reset(); refused(l) || p.said.String() != "well\n" {
		t.Errorf("refused with the label; said %q", &p.said)
	}
}

// A merge's change is that of a pull request which was merged there. Where the branch was moved on to a merge of itself into a pull
// request's branch, what the branch had brought without a label is not that pull request's.
func TestAMergeTheOtherWayRound(t *testing.T) {
	f := newSmallForge(t)
	p := replacing(t, f.URL)
	client, err := forge.Reader(forge.Job{Forge: forge.Gitea, API: f.URL + "/api/v1", Repository: "acme/plans", Token: forge.NewToken(canary)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string { t.Helper(); return gitIn(t, p.dir, args...) }
	git("checkout", "-q", "-b", "feature", p.base)
	p.write("plans/new.yaml", "jobs:\n  new: {run: exit 2}\n")
	began := p.commit("a job")
	git("merge", "-q", "--no-ff", "-m", "the branch's own", p.head)
	around := git("rev-parse", "HEAD")
	git("commit", "-q", "--allow-empty", "-m", "more")
	more := git("rev-parse", "HEAD")
	git("checkout", "-q", "-B", "main", p.base)
	git("merge", "-q", "--no-ff", "-m", "merged", p.head)
	merge := git("rev-parse", "HEAD")
	for _, c := range []struct {
		what, tip, came, head string
		accepted              bool
	}{
		{"a merge", merge, merge, p.head, true},
		{"a merge that another one brought", merge, merge, more, false},
		{"moved on to the merge", around, around, around, false},
		{"moved on to a later one", more, around, more, false},
		{"merged and moved on at once", around, around, began, false},
	} {
		git("reset", "-q", "--hard", c.tip)
		f.merged = map[string]any{c.came: map[string]any{"number": 7, "merged": true, "head": map[string]any{"sha": c.head}, "labels": []any{map[string]any{"name": "ok: replace"}},
			"base": map[string]any{"ref": "main", "repo": map[string]any{"full_name": "acme/plans"}}}}
		l := p.following(client, c.tip)
		d := l.p.desired()
		d.Branch = "main"
		if got := l.labels.approved(t.Context(), d, p.base, []string{"old"}, l.lineage(t.Context())); (len(got) == 1) != c.accepted || l.labels.last[c.came+" ok: replace"].at.IsZero() {
			t.Errorf("%s: approved %q; asked of %v", c.what, got, l.labels.last)
		}
	}
	no := func(commit string) string {
		return fmt.Sprintf("no label counts for %.12s, and Allow-Replace alone does: it is a merge, and not the one of pull request 7 into main\n", commit)
	}
	if d := cmp.Diff("well\n"+no(merge)+strings.Repeat(no(around), 3), p.said.String()); d != "" {
		t.Error(d)
	}
}

// A merge that Gitea made of commits that it had rebased counts, though they have other names in the pull request. Not so one that the
// forge only found behind commits of the pull request, one between whose parents there is another merge, or one that it does not name.
func TestAMergeOfWhatWasRebased(t *testing.T) {
	f := newSmallForge(t)
	p := replacing(t, f.URL)
	client, err := forge.Reader(forge.Job{Forge: forge.Gitea, API: f.URL + "/api/v1", Repository: "acme/plans", Token: forge.NewToken(canary)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string { t.Helper(); return gitIn(t, p.dir, args...) }
	merge := func(other string) string {
		t.Helper()
		git("merge", "-q", "--no-ff", "-m", "merged", other)
		return git("rev-parse", "HEAD")
	}
	git("checkout", "-q", "-B", "main", p.base)
	git("commit", "-q", "--allow-empty", "-m", "the base moves")
	moved := git("rev-parse", "HEAD")
	git("cherry-pick", p.head)
	git("commit", "-q", "--allow-empty", "-m", "and one more")
	rebased := git("rev-parse", "HEAD")
	git("reset", "-q", "--hard", moved)
	made := merge(rebased)
	git("checkout", "-q", "-B", "side", rebased)
	git("commit", "-q", "--allow-empty", "-m", "of the pull request")
	side := git("rev-parse", "HEAD")
	git("reset", "-q", "--hard", rebased)
	merge(side)
	crossed := git("rev-parse", "HEAD")
	git("checkout", "-q", "-B", "main", moved)
	around := merge(crossed)
	git("reset", "-q", "--hard", moved)
	git("merge", "-q", "--no-ff", "-m", "merged", side)
	apart := git("rev-parse", "HEAD")
	const gone = "9f2c000000000000000000000000000000000009"
	for _, c := range []struct {
		what, tip, made, head string
		accepted              bool
	}{
		{"rebased and merged", made, made, p.head, true},
		{"rebased and merged, its commits are not here", made, made, gone, true},
		{"another merge is said", made, apart, p.head, false},
		{"no merge is said", made, "", p.head, false},
		{"found behind a commit of the pull request", made, made, moved, false},
		{"found behind one that the branch was moved on to", apart, apart, rebased, false},
		{"another merge between", around, around, gone, false},
	} {
		git("reset", "-q", "--hard", c.tip)
		f.merged = map[string]any{c.tip: map[string]any{"number": 7, "merged": true, "merge_commit_sha": c.made, "head": map[string]any{"sha": c.head}, "labels": []any{map[string]any{"name": "ok: replace"}},
			"base": map[string]any{"ref": "main", "repo": map[string]any{"full_name": "acme/plans"}}}}
		l := p.following(client, c.tip)
		d := l.p.desired()
		d.Branch = "main"
		if got := l.labels.approved(t.Context(), d, p.base, []string{"old"}, l.lineage(t.Context())); (len(got) == 1) != c.accepted || l.labels.last[c.tip+" ok: replace"].at.IsZero() {
			t.Errorf("%s: approved %q; asked of %v; said %s", c.what, got, l.labels.last, &p.said)
		}
	}
}

// What the flags of watch come to, before anything is asked.
func TestWatchNamesTheForge(t *testing.T) {
	const gitea, other = "https://git.example.com/acme/plans", "https://example.org/acme/plans"
	for _, c := range []struct {
		forge, api, token string
		remotes           []string
		asks              bool
		err, said         string
	}{
		{remotes: []string{gitea}},
		{forge: "gitea", token: canary, remotes: []string{gitea}, asks: true},
		{forge: "gitea", remotes: []string{gitea}, said: "HEADWAY_FORGE_TOKEN is not set, so no label counts"},
		{api: "https://git.example.com/api/v1", token: canary, remotes: []string{gitea}, err: "no forge is named"},
		{forge: "cvs", token: canary, remotes: []string{gitea}, err: "found neither github, gitlab nor gitea"},
		{forge: "forgejo", token: canary, remotes: []string{gitea}, err: "gitea (which Forgejo is too)"},
		{forge: "gitea", token: canary, remotes: []string{gitea, other}, err: "one token goes to one"},
		{forge: "gitea", api: "https://git.example.com/api/v1", token: canary, remotes: []string{gitea, other}, err: "on another host"},
		{forge: "gitea", token: canary, remotes: []string{"/srv/plans"}, err: "read from no forge"},
	} {
		var out bytes.Buffer
		var ws []*watcher
		for _, r := range c.remotes {
			w := &watcher{}
			w.options.Remote = r
			ws = append(ws, w)
		}
		err := (&watching{forge: c.forge, api: c.api}).labelled(env{stderr: &out, getenv: func(k string) string {
			return map[string]string{"HEADWAY_FORGE_TOKEN": c.token}[k]
		}}, ws)
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) || c.err == "" && err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if c.err == "" && (ws[0].labels != nil) != c.asks || !strings.Contains(out.String(), c.said) || c.said == "" && out.Len() > 0 || strings.Contains(out.String(), canary) {
			t.Errorf("%+v: asks %v, said %q", c, ws[0].labels != nil, &out)
		}
	}
}
