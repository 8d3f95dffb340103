package sim

import (
	"fmt"
	"regexp"

	"github.com/headway-run/headway/runners/record"
)

// sums is the attempt's account so far: all of its steps are steady and equally long.
func (w *worker) sums() *record.Sums {
	n := w.state.Step - w.from
	s := &record.Sums{Steps: n, Work: float64(n) * w.in.job.Claim.Terms.FLOPsPerStep, StepS: float64(n) * w.m.Step.Seconds(), Wait: record.WaitMerged}
	if n > 0 {
		s.Median = w.m.Step.Seconds()
		s.Ratios.Done = map[int]int64{record.BinOf(1): n}
	}
	return s
}

// match is the first of the job's policies that the program's last words have.
func (w *worker) match(text string) *record.Match {
	for _, p := range w.in.job.Claim.Terms.Policies {
		if re, err := regexp.Compile(p.Log); err == nil && re.MatchString(text) {
			return &record.Match{Policy: p, Line: text}
		}
	}
	return nil
}

// tooSmall is what PyTorch says on a card that is too small, with other numbers in each attempt.
func tooSmall(attempt int64) string {
	return fmt.Sprintf("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %d.00 MiB. GPU 0 has a total capacity of %d.56 GiB. Process %d has %d.12 GiB memory in use.",
		20+attempt*37%900, 8+attempt*13%72, 2+attempt*1017%30000, 8+attempt*11%72)
}
