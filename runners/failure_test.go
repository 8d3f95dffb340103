package runners_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headway-run/headway/runners"
)

// TestAFailureSaysNothingTwice: a runner whose error is made of the platform's own words is quoted once.
func TestAFailureSaysNothingTwice(t *testing.T) {
	for _, c := range []struct{ err, raw, want string }{
		{"weekly quota reached", "weekly quota reached", "p: launch: quota_exhausted: weekly quota reached ("},
		{"weekly quota reached", " weekly quota reached \nsee the page", "p: launch: quota_exhausted: weekly quota reached ("},
		{"status 429", "weekly quota reached", `p: launch: quota_exhausted: status 429: "weekly quota reached" (`},
		{"status 429", "", "p: launch: quota_exhausted: status 429 ("},
	} {
		f := &runners.Failure{Class: runners.QuotaExhausted, Platform: "p", Op: "launch", Raw: c.raw, Err: errors.New(c.err)}
		if got := f.Error(); got != c.want+f.Class.Advice()+")" || strings.Count(got, "quota reached") > 1 {
			t.Errorf("%q", got)
		}
	}
}
