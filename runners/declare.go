package runners

// AskKinds asks a runner which kinds of jobs it takes. A panic is a *Failure: then it takes none.
func AskKinds(r Runner, platform string) (kinds []string, err error) {
	defer func() {
		if v := recover(); v != nil {
			kinds, err = nil, panicked(platform, "job kinds", v)
		}
	}()
	return r.JobKinds(), nil
}

// AskCapacity asks a runner how many jobs one launch takes, one at least. One that panics takes one.
func AskCapacity(r Runner) (n int) {
	defer func() {
		if v := recover(); v != nil {
			n = 1
		}
	}()
	return max(r.Capacity(), 1)
}

// Outliver is the optional extra of runners that know beforehand whether any launch of theirs can outlive its worker (see
// [Receipt]). Without it each receipt is looked at.
type Outliver interface {
	Outlives() bool
}

// AskOutlives asks a runner whether a launch may outlive its worker. One that does not say, or panics, may have such.
func AskOutlives(r Runner) (may bool) {
	defer func() {
		if v := recover(); v != nil {
			may = true
		}
	}()
	o, says := r.(Outliver)
	return !says || o.Outlives()
}
