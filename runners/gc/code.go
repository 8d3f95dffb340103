package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

const codePrefix = "code/"

// listCode notes the bundles. Whatever is not named as a bundle is, stays.
func (r *run) listCode(ctx context.Context) error {
	for after := ""; ; {
		p, err := r.s.List(ctx, codePrefix, after, 0)
		if err != nil {
			return fmt.Errorf("list the code bundles: %w", err)
		}
		for _, it := range p.Items {
			after = it.Key
			ob := r.listed(it, p.Date)
			if tree, ok := treeOf(it.Key); ok {
				r.code[tree] = ob
			}
		}
		if !p.More || len(p.Items) == 0 {
			return nil
		}
	}
}

func treeOf(key string) (string, bool) {
	tree, ok := strings.CutSuffix(strings.TrimPrefix(key, codePrefix), ".tar.zst")
	return tree, ok && isName(tree) && key == record.CodeKey(tree)
}

// needs says which code a work needs: one that is not finished, or finished within retention, or that a lane names,
// whatever its witness says. why is why that is not known; lost is an error of the store.
func (r *run) needs(ctx context.Context, work string) (tree, why string, lost error) {
	key := record.SpecKey(work)
	b, _, err := whole(ctx, r.s, key, record.MaxRecord)
	if bucket.Is(err, bucket.NotFound) {
		return "", "", nil // what has no spec is launched with one, by a plan in force
	}
	var spec record.Spec
	if err != nil || record.Decode(b, record.MaxRecord, &spec) != nil || spec.Work != work || spec.Protocol > record.Protocol {
		if errors.Is(err, errBig) {
			err = nil
		}
		return "", key + " cannot be read, so that no code bundle is known to be useless: run headway doctor --deep", err
	}
	return spec.CodeTree, "", nil
}

// dropCode deletes the bundles that nothing needed. What pins them is read again right before each batch, and before a
// delete is asked again: a plan is in force before its first bundle is uploaded or found there.
func (r *run) dropCode(ctx context.Context) error {
	if r.rep.More {
		return nil // not all works were looked at
	}
	grace := max(r.o.Grace, 2*r.lease)
	if r.o.off.grace {
		grace = 0
	}
	var due []string
	for _, tree := range slices.Sorted(maps.Keys(r.code)) {
		if r.code[tree].Age < grace {
			r.rep.Young++
			continue
		}
		due = append(due, tree)
	}
	for try := 1; len(due) > 0 && !r.full(); try++ {
		n := len(due)
		if r.b != nil {
			n = min(lanes, r.o.Max-r.done, n)
		}
		again, err := r.dropBatch(ctx, due[:n], try < tries)
		if err != nil {
			return err
		}
		if due = append(again, due[n:]...); len(again) == 0 {
			try = 0
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(firstPause << try):
		}
	}
	return nil
}

// dropBatch deletes those of some bundles that no pin names now, each asked for once. again are those whose answer was
// lost or put off, while they may be asked for again.
func (r *run) dropBatch(ctx context.Context, trees []string, more bool) (again []string, err error) {
	look := r.pins.look
	if r.b == nil {
		look = r.pins.fresh
	}
	if err := look(ctx); err != nil {
		return nil, err
	}
	var keys []string
	for _, tree := range trees {
		if !r.pins.names[tree] || r.o.off.pins {
			keys = append(keys, record.CodeKey(tree))
		}
	}
	var errs []error
	if r.b != nil {
		errs = r.side(ctx, keys, r.once)
	} else {
		errs = make([]error, len(keys))
	}
	for i, key := range keys {
		tree, _ := treeOf(key)
		switch {
		case errs[i] == nil:
			r.count("", Code, key, 1, r.code[tree].Size)
		case more && passes(errs[i]):
			again = append(again, tree)
			errs[i] = nil
			r.done-- // settle takes it for deleted
		}
	}
	if r.b == nil {
		return nil, nil
	}
	_, err = r.settle(ctx, "", keys, errs)
	return again, err
}
