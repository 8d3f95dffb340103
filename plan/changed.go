package plan

import "bytes"

// Changed compares two plans job by job: gone are those of was that the other does not have as they stand there, come are
// those of is; a job that changed is in both, and where in its file a job stands makes no difference. They are indexes into
// Jobs, in order. ok is false, and the lists are not to be used, where there are more than most in either.
func Changed(was, is *Plan, most int) (gone, come []int, ok bool) {
	i, k := 0, 0
	for (i < len(was.Jobs) || k < len(is.Jobs)) && len(gone) <= most && len(come) <= most {
		switch {
		case k == len(is.Jobs) || i < len(was.Jobs) && was.Jobs[i].Name < is.Jobs[k].Name:
			gone = append(gone, i)
			i++
		case i == len(was.Jobs) || was.Jobs[i].Name > is.Jobs[k].Name:
			come = append(come, k)
			k++
		default:
			if !sameJob(was, i, is, k) {
				gone, come = append(gone, i), append(come, k)
			}
			i, k = i+1, k+1
		}
	}
	return gone, come, len(gone) <= most && len(come) <= most
}

// sameJob compares what is accepted of two jobs of one name.
func sameJob(was *Plan, i int, is *Plan, k int) bool {
	a, b := &was.Jobs[i], &is.Jobs[k]
	if a.Work != b.Work || a.Group != b.Group || a.OnDelete != b.OnDelete {
		return false
	}
	x, y := was.canonical(i), is.canonical(k)
	return bytes.Equal(x.placement, y.placement) && bytes.Equal(x.metadata, y.metadata)
}
