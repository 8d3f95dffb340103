package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/probe"
	"github.com/headway-run/headway/runners/witness"
)

// doctor goes through everything that a run needs, one line each, and keeps count of what is wrong.
type doctor struct {
	env
	asJSON bool
	bad    int
	doc    doctorDoc
}

// doctorDoc is `doctor --json`.
type doctorDoc struct {
	FormatVersion string        `json:"format_version"`
	OK            bool          `json:"ok"`
	Checks        []doctorCheck `json:"checks"`
	// Orphans is nil where no platform was asked.
	Orphans []doctorOrphan `json:"orphans,omitzero"`
	Audit   *audit.Report  `json:"audit,omitempty"`
	Bundles *doctorBundles `json:"bundles,omitempty"`
}

type doctorCheck struct {
	What  string   `json:"what"`
	OK    bool     `json:"ok"`
	Text  string   `json:"text"`
	Hint  string   `json:"hint,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

type doctorBundles struct {
	Checked int   `json:"checked"`
	Bytes   int64 `json:"bytes"`
}

func newDoctor(e env) *cobra.Command {
	var deep, noProbe, asJSON, again bool
	var repair, resume, history string
	c := &cobra.Command{Use: "doctor", Short: "probes the store, the repository and the platforms; --deep checks every invariant", Args: cobra.NoArgs,
		Long: "Looks at everything that a run needs, and at every object in the store; it may run beside live workers. What is\nwrong is named with what helps; the exit code is then 1. --repair makes a lost lease anew, and --history checks\nsaved versions of leases; both do nothing else.",
		RunE: func(c *cobra.Command, _ []string) error {
			d := &doctor{env: e.at(c), asJSON: asJSON, doc: doctorDoc{FormatVersion: "1.0", Checks: []doctorCheck{}}}
			switch {
			case history != "":
				return d.history(c.Context(), history)
			case repair != "":
				return d.repair(c.Context(), repair, resume, again)
			case resume != "":
				return &exit{code: exitError, err: errors.New("--resume goes with --repair alone"), hint: "headway doctor --repair WORK --resume " + clean(resume)}
			case again:
				return &exit{code: exitError, err: errors.New("--again goes with --repair alone"), hint: "headway doctor --repair WORK --resume KEY --again"}
			}
			return d.everything(c.Context(), deep, !noProbe)
		}}
	c.Flags().BoolVar(&deep, "deep", false, "read every named file and compare its sha256, and unpack the code of what is not finished")
	c.Flags().BoolVar(&noProbe, "no-probe", false, "write nothing: leave the store's conditional writes untested")
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	c.Flags().StringVar(&repair, "repair", "", "`WORK` whose lease was deleted: write it anew, revoked, so that the next launch may go on (writes)")
	c.Flags().StringVar(&resume, "resume", "", "with --repair: `KEY` of the milestone's manifest to go on from, or the word nothing")
	c.Flags().BoolVar(&again, "again", false, "with --repair: compute a work again whose result is whole")
	c.Flags().StringVar(&history, "history", "", "`FILE` of saved leases, one JSON object a line, oldest first: names the first that no move leads to")
	c.MarkFlagsMutuallyExclusive("repair", "history")
	return c
}

// everything is the verb without --repair and --history.
func (d *doctor) everything(ctx context.Context, deep, probing bool) error {
	p, err := readProject(ctx, d.env, "")
	if err != nil {
		return err
	}
	if p.printProblems() {
		d.bad++
		d.doc.Checks = append(d.doc.Checks, doctorCheck{What: "plan", Text: "the plan has errors", Hint: "headway validate lists them"})
	} else {
		d.good("plan", fmt.Sprintf("%s in %s", count(len(p.plan.Jobs), "job"), count(len(p.plan.Files), "file")))
	}
	d.repository(p)
	b, url, err := p.openStore(ctx, probing)
	if err != nil {
		return err
	}
	if probing {
		d.store(ctx, b, url)
	}
	d.platforms(ctx, p, b, probing)
	if err := d.accepted(ctx, p, b); err != nil {
		return err
	}
	if err := d.invariants(ctx, b, deep); err != nil {
		return err
	}
	if d.asJSON {
		d.doc.OK = d.bad == 0
		if err := printJSON(d.stdout, d.doc); err != nil {
			return err
		}
	}
	if d.bad > 0 {
		return &exit{code: exitError, err: fmt.Errorf("%s", count(d.bad, "thing")+" to mend")}
	}
	return nil
}

func (d *doctor) good(what, text string, notes ...string) {
	d.doc.Checks = append(d.doc.Checks, doctorCheck{What: what, OK: true, Text: clean(text), Notes: notes})
	if d.asJSON {
		return
	}
	fmt.Fprintf(d.stdout, "%s %-11s %s\n", d.paint(green, "ok "), what, clean(text))
	for _, n := range notes {
		fmt.Fprintf(d.stdout, "    note: %s\n", clean(n))
	}
}

func (d *doctor) ill(what, text, hint string) {
	d.bad++
	d.doc.Checks = append(d.doc.Checks, doctorCheck{What: what, Text: clean(text), Hint: clean(hint)})
	if d.asJSON {
		return
	}
	fmt.Fprintf(d.stdout, "%s %-11s %s\n", d.paint(red, "BAD"), what, clean(text))
	if hint != "" {
		fmt.Fprintf(d.stdout, "    hint: %s\n", clean(hint))
	}
}

func (d *doctor) repository(p *project) {
	w, err := repo.Folder(p.root)
	if err != nil {
		d.ill("repository", err.Error(), "")
		return
	}
	defer w.Close()
	head, err := w.Head()
	switch {
	case err != nil:
		d.ill("repository", err.Error(), "")
	case !w.Git():
		d.ill("repository", p.root+" is not in a Git repository: plans are taken from commits", "git init, then commit the plan")
	case head == "":
		d.ill("repository", "no commit yet", "git add and git commit the plan")
	default:
		changed, err := w.Changes()
		if err != nil {
			d.ill("repository", err.Error(), "")
			return
		}
		text := fmt.Sprintf("at %.12s", head)
		if len(changed) > 0 {
			text += fmt.Sprintf(", %s not committed", count(len(changed), "path"))
		}
		d.good("repository", text)
	}
}

func (d *doctor) store(ctx context.Context, b bucket.Bucket, url string) {
	report, err := probe.Run(ctx, b, probe.Options{Store: withoutSecrets(url), Version: version})
	if err != nil {
		d.ill("store", fmt.Sprintf("%s: %v", withoutSecrets(url), err), "no launch is made on a store that fails here")
		return
	}
	d.good("store", fmt.Sprintf("%s: conditional writes exclude (%d requests in %.1f s; a swap takes %.1f ms, p99 %.1f ms)",
		withoutSecrets(url), report.Requests, report.TookS, report.SwapP50*1e3, report.SwapP99*1e3), append(report.Quirks, report.Notes...)...)
	if err := probe.Write(ctx, b, report); err != nil {
		d.ill("store", fmt.Sprintf("the verdict could not be kept: %v", err), "")
	}
}

// proven makes sure, before anything is launched, that the store excludes: by the verdict that it keeps, or by a
// probe now. floor is the shortest lease that makes sense on it.
func proven(ctx context.Context, e env, b bucket.Bucket, url string) (floor time.Duration, err error) {
	kept, found, err := probe.Read(ctx, b)
	if err != nil {
		return 0, storeFailure(url, err)
	}
	why, due := probe.Due(kept, found, withoutSecrets(url), version, time.Now())
	if !due {
		return leaseFloor(url, kept), nil
	}
	note(e, "probing the store %s: %s", withoutSecrets(url), why)
	report, err := probe.Run(ctx, b, probe.Options{Store: withoutSecrets(url), Version: version})
	if r, ok := errors.AsType[*probe.Refusal](err); ok {
		return 0, &exit{code: exitError, err: fmt.Errorf("store %s cannot hold leases: %w", withoutSecrets(url), r), hint: "nothing was launched; another store or another version of it may do: headway doctor shows what was tried"}
	}
	if err != nil {
		return 0, storeFailure(url, err)
	}
	return leaseFloor(url, report), probe.Write(ctx, b, report)
}

// leaseFloor is the shortest lease on a store, by what its probe measured: 15 s on the embedded one, never less elsewhere.
func leaseFloor(url string, r probe.Report) time.Duration {
	if strings.HasPrefix(url, "dir:") {
		return witness.DefaultFloor
	}
	if !r.Pass || r.SwapP99 <= 0 {
		return witness.RemoteFloor
	}
	return max(witness.DefaultFloor, r.LeaseFloor())
}

// accepted reads the plans in force, without which no verb decides anything: this repository's and those of every other on
// this store. It says nothing where all is well.
func (d *doctor) accepted(ctx context.Context, p *project, b bucket.Bucket) error {
	r, _, err := p.reader(ctx)
	if err != nil {
		d.ill("accepted", err.Error(), "")
		return nil
	}
	for after := ""; ; {
		page, err := b.List(ctx, "accepted/", after, 0)
		if err != nil {
			return fmt.Errorf("the check of the accepted plans broke off: %w", err)
		}
		for _, it := range page.Items {
			after = it.Key
			root, ok := acceptedRoot(it.Key)
			if !ok {
				d.ill("accepted", quoted(it.Key)+" is no name of a plan in force: no version of headway wrote it; where it cannot be read, headway gc stops at it", "look who did, and remove or rename it in the store itself")
				continue
			}
			_, err = r.Accepted(ctx, root)
			if err == nil {
				continue
			}
			text := err.Error()
			if !strings.Contains(text, it.Key) {
				text = quoted(it.Key) + ": " + text
			}
			hint := "restore the object from a backup of the bucket; where there is none delete it, and headway apply accepts what is checked out (what has left the plan since is then not stopped)"
			if _, ok := errors.AsType[*bucket.Error](err); ok {
				hint = ""
			}
			d.ill("accepted", text, hint)
		}
		if !page.More {
			return nil
		}
	}
}

// acceptedRoot is the root whose plan in force a key names; false: it is not how headway would name any, which is the one
// name that package reconcile writes and reads.
func acceptedRoot(key string) (string, bool) {
	name := strings.TrimPrefix(key, "accepted/")
	root, err := url.PathUnescape(name)
	if name == "-" {
		return "", true
	}
	return root, err == nil && root != "" && url.PathEscape(root) == name && bucket.CheckKey("get", key) == nil
}

// quoted shows a foreign key, in full up to 400 bytes.
func quoted(key string) string {
	if len(key) > 400 {
		key = key[:400] + "…"
	}
	return fmt.Sprintf("%q", key)
}

func (d *doctor) invariants(ctx context.Context, b bucket.Bucket, deep bool) error {
	start := time.Now()
	report, err := audit.Check(ctx, b, audit.Options{Deep: deep})
	if err != nil {
		return fmt.Errorf("the check of the invariants broke off: %w", err)
	}
	var code *bundles
	if deep {
		if code, err = checkBundles(ctx, b); err != nil {
			return fmt.Errorf("the check of the code bundles broke off: %w", err)
		}
		report.Findings = append(report.Findings, code.findings...)
		d.doc.Bundles = &doctorBundles{code.checked, code.bytes}
	}
	d.bad += len(report.Findings) + report.Dropped
	d.doc.Audit = &report
	if !d.asJSON {
		if err := printAudit(d.env, report, code); err != nil {
			return err
		}
	}
	if report.OK() {
		d.good("invariants", fmt.Sprintf("hold, after %s", time.Since(start).Round(time.Millisecond)))
	}
	return nil
}

// printAudit says what a check looked at, then each finding with what to do. code is nil where no bundle was looked at.
func printAudit(e env, r audit.Report, code *bundles) error {
	how := "sizes compared"
	if r.Deep {
		how = "every byte hashed"
	}
	unpacked := ""
	if code != nil {
		unpacked = fmt.Sprintf(", %s of %d bytes unpacked", count(code.checked, "code bundle"), code.bytes)
	}
	fmt.Fprintf(e.stdout, "    looked at %s (%d finished), %d launches, %s, %s named with %s of %d bytes (%s), in %d requests%s: %s\n",
		count(r.Works, "work"), r.Finished, r.Dispatches, count(r.Attempts, "attempt"), count(r.Snapshots, "snapshot"), count(r.Files, "file"), r.Bytes, how, r.Requests, unpacked,
		count(len(r.Findings)+r.Dropped, "finding"))
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(e.stdout, "%s %s: %s: %s\n    do: %s\n", e.paint(red, "BAD"), f.Invariant, clean(f.Key), clean(f.Text), clean(f.Do)); err != nil {
			return err
		}
	}
	return nil
}
