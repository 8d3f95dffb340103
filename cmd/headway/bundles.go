package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/headway-run/headway/runners/agent/fetch"
	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// bundles is what a check of code bundles saw.
type bundles struct {
	checked  int
	bytes    int64 // as stored
	findings []audit.Finding
}

// checkBundles unpacks, as a worker would, every code bundle that a work which is not finished names, and holds it
// against the Git tree that is its name. It reads only; what it unpacks lies in a temporary folder, one bundle at a time.
func checkBundles(ctx context.Context, b bucket.Bucket) (*bundles, error) {
	needed, err := neededBundles(ctx, b)
	if err != nil {
		return nil, err
	}
	out := &bundles{}
	for _, tree := range slices.Sorted(maps.Keys(needed)) {
		out.checked++
		err := unpackOnce(ctx, b, tree, func(n int64) { out.bytes += n })
		bad, broken := errors.AsType[*fetch.BadBundle](err)
		if err != nil && !broken {
			return nil, err
		}
		if broken {
			f := audit.Finding{Key: record.CodeKey(tree), Invariant: audit.Identity, Do: "delete it: the next launch uploads it again from the commit",
				Text: fmt.Sprintf("is not the code that its name says, and work %.12s needs it: %v", needed[tree], bad.Err)}
			if bucket.Is(err, bucket.NotFound) {
				f.Text, f.Do = fmt.Sprintf("is missing, and work %.12s needs it", needed[tree]), "nothing, or headway apply: the next launch uploads it again from the commit"
			}
			out.findings = append(out.findings, f)
		}
	}
	return out, nil
}

func unpackOnce(ctx context.Context, b bucket.Bucket, tree string, tell fetch.Progress) (err error) {
	dir, err := os.MkdirTemp("", "headway-code-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	err = fetch.Bundle(ctx, b, tree, dir, tell)
	if full, ok := errors.AsType[*files.DiskFull](err); ok {
		return fmt.Errorf("%w: it is unpacked in %s, which TMPDIR can name elsewhere", full, os.TempDir())
	}
	return err
}

// neededBundles maps the tree of each bundle that is still needed to one of the works that need it. A spec or a witness
// that cannot be read is left to the check of the invariants, which reports it.
func neededBundles(ctx context.Context, b bucket.Bucket) (map[string]string, error) {
	out := map[string]string{}
	for after := ""; ; {
		page, err := b.List(ctx, "work/", after, 1) // the first key of each work: the next list begins behind its last
		if err != nil {
			return nil, err
		}
		if len(page.Items) == 0 {
			return out, nil
		}
		key := page.Items[0].Key
		work, _, inside := strings.Cut(strings.TrimPrefix(key, "work/"), "/")
		if !inside {
			after = key
			continue
		}
		after = "work/" + work + "0" // behind every "work/<work>/…"
		tree, err := codeOf(ctx, b, work)
		if err != nil {
			return nil, err
		}
		if tree != "" && out[tree] == "" {
			out[tree] = work
		}
	}
}

// codeOf is the tree of the code that a work still needs, or "".
func codeOf(ctx context.Context, b bucket.Bucket, work string) (string, error) {
	seen, err := witness.Read(ctx, b, work)
	if err == nil && seen.Record.State == witness.Finished {
		return "", nil
	}
	var spec record.Spec
	err = fetch.JSON(ctx, b, record.SpecKey(work), record.MaxRecord, &spec)
	if e, ok := errors.AsType[*bucket.Error](err); ok && e.Code != bucket.NotFound && e.Code != bucket.BadKey {
		return "", err
	}
	if err != nil || spec.Work != work {
		return "", ctx.Err()
	}
	return spec.CodeTree, nil
}
