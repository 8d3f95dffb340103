package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// workFolders holds what is written once of each work (record.WorkPrefix).
const workFolders = "work/"

// Works lists works of which the store has a lease or records, whoever's plan named them, in order: those behind one ("": from
// the first), at most n. more: there are others behind the last of them. It takes a request for each thousand leases, and one
// for each thousand keys of records, a work's further ones left out.
func (r *Reconciler) Works(ctx context.Context, after plan.Digest, n int) (list []plan.Digest, more bool, err error) {
	if err := r.enter(ctx); err != nil {
		return nil, false, err
	}
	defer r.leave()
	leases, err := worksUnder(ctx, r.b, record.WitnessPrefix, after, n+1)
	if err != nil {
		return nil, false, fmt.Errorf("list the leases: %w", err)
	}
	folders, err := worksUnder(ctx, r.b, workFolders, after, n+1)
	if err != nil {
		return nil, false, fmt.Errorf("list the records of works: %w", err)
	}
	list = slices.Concat(leases, folders)
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > n {
		return list[:n], true, nil
	}
	return list, false, nil
}

// worksUnder lists the works behind one that have a key or a folder under a prefix, at most n.
func worksUnder(ctx context.Context, b bucket.Bucket, prefix string, behind plan.Digest, n int) (out []plan.Digest, err error) {
	after := prefix + string(behind)
	if behind != "" {
		after += "0" // sorts behind everything in its folder
	}
	for len(out) < n {
		p, err := b.List(ctx, prefix, after, pageSize)
		if err != nil {
			return nil, err
		}
		for _, it := range p.Items {
			name, _, folder := strings.Cut(strings.TrimPrefix(it.Key, prefix), "/")
			after = it.Key
			if folder {
				after = prefix + name + "0"
			}
			if len(name) == 64 && strings.Trim(name, "0123456789abcdef") == "" && plan.Digest(name) > behind && (len(out) == 0 || out[len(out)-1] != plan.Digest(name)) {
				out = append(out, plan.Digest(name))
			}
		}
		if !p.More || len(p.Items) == 0 {
			break
		}
	}
	return out[:min(len(out), n)], nil
}
