package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/probe"
	"github.com/headway-run/headway/runners/witness"
)

// doctor goes through everything that a run needs, one line each, and keeps count of what is wrong.
type doctor struct {
	env
	bad int
}

func newDoctor(e env) *cobra.Command {
	var deep, noProbe bool
	c := &cobra.Command{Use: "doctor", Short: "probes the store, the repository and the platforms; --deep checks every invariant", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			d := &doctor{env: e.at(c)}
			p, err := readProject(ctx, d.env, "")
			if err != nil {
				return err
			}
			if p.printProblems() {
				d.bad++
			} else {
				d.good("plan", fmt.Sprintf("%s in %s", count(len(p.plan.Jobs), "job"), count(len(p.plan.Files), "file")))
			}
			d.repository(p)
			b, url, err := p.openStore(ctx, !noProbe)
			if err != nil {
				return err
			}
			if !noProbe {
				d.store(ctx, b, url)
			}
			d.platforms(ctx, p, b, !noProbe)
			d.accepted(ctx, p)
			if err := d.invariants(ctx, b, deep); err != nil {
				return err
			}
			if d.bad > 0 {
				return &exit{code: exitError, err: fmt.Errorf("%s", count(d.bad, "thing")+" to mend")}
			}
			return nil
		}}
	c.Flags().BoolVar(&deep, "deep", false, "read every named file and compare its sha256, and unpack the code of what is not finished")
	c.Flags().BoolVar(&noProbe, "no-probe", false, "write nothing: leave the store's conditional writes untested")
	return c
}

func (d *doctor) good(what, text string) {
	fmt.Fprintf(d.stdout, "%s %-11s %s\n", d.paint(green, "ok "), what, clean(text))
}

func (d *doctor) ill(what, text, hint string) {
	d.bad++
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
		withoutSecrets(url), report.Requests, report.TookS, report.SwapP50*1e3, report.SwapP99*1e3))
	for _, n := range append(report.Quirks, report.Notes...) {
		fmt.Fprintf(d.stdout, "    note: %s\n", clean(n))
	}
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
	fmt.Fprintf(e.stdout, "probing the store %s: %s\n", withoutSecrets(url), clean(why))
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

// platforms lists what runs, which a platform may use to tidy up: not where nothing may be written.
func (d *doctor) platforms(ctx context.Context, p *project, b bucket.Bucket, list bool) {
	rs, err := p.platforms(b)
	if err != nil {
		d.ill("platforms", err.Error(), "")
		return
	}
	names := make([]string, 0, len(rs))
	for name := range rs {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		text := fmt.Sprintf("runner %s, up to %s at a time", p.plan.Config.Platforms[name].Runner, count(rs[name].Capacity(), "job"))
		if l, ok := rs[name].(runners.Lister); ok && list {
			running, err := l.Running(ctx)
			if err != nil {
				d.ill("platform "+name, err.Error(), "")
				continue
			}
			text += fmt.Sprintf(", %d running", len(running))
		}
		d.good("platform "+name, text)
	}
}

// accepted reads the plan in force, without which no verb decides anything. It says nothing where all is well.
func (d *doctor) accepted(ctx context.Context, p *project) {
	r, _, err := p.reader(ctx)
	if err == nil {
		_, err = r.Accepted(ctx, p.plan.Config.Name)
	}
	if err == nil {
		return
	}
	hint := "restore the object from a backup of the bucket; where there is none delete it, and headway apply accepts what is checked out (what has left the plan since is then not stopped)"
	if _, ok := errors.AsType[*bucket.Error](err); ok {
		hint = ""
	}
	d.ill("accepted", err.Error(), hint)
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
	}
	d.bad += len(report.Findings) + report.Dropped
	if err := printAudit(d.env, report, code); err != nil {
		return err
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
