package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// A listing holds pageKeys keys, and the dispatcher asks for pagesAtOnce side by side.
const pageKeys, pagesAtOnce = 1000, 8

// s3Page is what S3 takes for a page of a thousand keys, for a sum beside what was measured here.
const s3Page = 100 * time.Millisecond

// starts are the keys behind which the pages of these jobs' leases begin. works are in any order.
func starts(jobs []plan.Job) []string {
	keys := make([]string, len(jobs))
	for i := range jobs {
		keys[i] = record.WitnessKey(string(jobs[i].Work))
	}
	slices.Sort(keys)
	out := []string{""}
	for at := pageKeys; at < len(keys); at += pageKeys {
		out = append(out, keys[at-1])
	}
	return out
}

// rounds is how many times a page's time a listing takes at least.
func rounds(pages int) int { return (pages + pagesAtOnce - 1) / pagesAtOnce }

// listAll asks for all pages as the dispatcher does, and for nothing else.
func listAll(ctx context.Context, b bucket.Bucket, after []string) error {
	errs := make(chan error, len(after))
	slots := make(chan struct{}, pagesAtOnce)
	for _, key := range after {
		slots <- struct{}{}
		go func() {
			_, err := b.List(ctx, record.WitnessPrefix, key, pageKeys)
			<-slots
			errs <- err
		}()
	}
	for range after {
		if err := <-errs; err != nil {
			return fmt.Errorf("list the leases: %w", err)
		}
	}
	return nil
}

// floor prints what the store itself takes for the listing that a pass begins with, while the workers renew: no pass is
// quicker on it.
func floor(ctx context.Context, b bucket.Bucket, jobs []plan.Job) error {
	after := starts(jobs)
	var one, all []time.Duration
	for range 5 {
		begin := time.Now()
		if err := listAll(ctx, b, after[:1]); err != nil {
			return err
		}
		one = append(one, time.Since(begin))
		begin = time.Now()
		if err := listAll(ctx, b, after); err != nil {
			return err
		}
		all = append(all, time.Since(begin))
	}
	figure(fmt.Sprintf("  the store alone: a page of a listing, all %d", len(after)), fmt.Sprintf("%v, %v", centile(one, 50).Round(time.Millisecond), centile(all, 50).Round(time.Millisecond)),
		fmt.Sprintf("S3 takes about %v a page: %v", s3Page, time.Duration(rounds(len(after)))*s3Page))
	return nil
}
