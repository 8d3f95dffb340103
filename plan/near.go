package plan

// Nearest returns the known name that a mistyped one most likely meant, or "". It is for names that the program knows and
// a plan does not, such as those of runners.
func Nearest(got string, known []string) string { return nearest(got, known) }

// nearest returns the known name that a mistyped one most likely meant, or "".
func nearest(got string, known []string) string {
	if len(got) > 64 || len(known) > 5000 {
		return ""
	}
	best, limit := "", max(1, len(got)/3)
	for _, k := range known {
		if d := distance(got, k, limit); d <= limit {
			best, limit = k, d-1
		}
	}
	return best
}

// didYouMean is the hint for a mistyped name, or other when nothing is near.
func didYouMean(got string, known []string, other string) string {
	if k := nearest(got, known); k != "" {
		return "did you mean " + k + "?"
	}
	return other
}

// distance counts insertions, deletions, substitutions and swaps of neighbours (letter case is free); anything above
// most may come back as most+1.
func distance(a, b string, most int) int {
	if most < 0 || len(a) > 64 || len(b) > 64 || len(a)-len(b) > most || len(b)-len(a) > most {
		return most + 1
	}
	var row [3][66]int
	for j := 0; j <= len(b); j++ {
		row[0][j] = j
	}
	prev2, prev, cur := &row[2], &row[0], &row[1]
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			same := 1
			if lower(a[i-1]) == lower(b[j-1]) {
				same = 0
			}
			d := min(prev[j]+1, cur[j-1]+1, prev[j-1]+same)
			if i > 1 && j > 1 && lower(a[i-1]) == lower(b[j-2]) && lower(a[i-2]) == lower(b[j-1]) {
				d = min(d, prev2[j-2]+1)
			}
			cur[j] = d
			least = min(least, d)
		}
		if least > most {
			return most + 1
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
