package history

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headway-run/headway/runners/record"
)

// Short is a work's digest as people see it: its first 12 hex digits.
func Short(work string) string { return work[:min(len(work), 12)] }

// Name says in words what a key is: "witness of ab12cd34ef56", "attempt 2 milestone 3 model.bin of ab12cd34ef56". A key
// of no known shape comes back bounded and quoted.
func Name(key string) string {
	if work, ok := strings.CutPrefix(key, record.WitnessPrefix); ok && !strings.Contains(work, "/") {
		return "witness of " + Short(clean(work))
	}
	p, ok := record.Parse(key)
	if !ok {
		return clean(key)
	}
	of := " of " + Short(clean(p.Work))
	switch {
	case p.Dispatch > 0 && p.Rest == "json":
		return fmt.Sprintf("claim %d%s", p.Dispatch, of)
	case p.Dispatch > 0:
		return fmt.Sprintf("dispatch %d %s%s", p.Dispatch, clean(strings.TrimSuffix(p.Rest, ".json")), of)
	case p.Attempt > 0:
		if m, file, is := milestone(p.Rest); is {
			return fmt.Sprintf("attempt %d milestone %d %s%s", p.Attempt, m, clean(file), of)
		}
		return fmt.Sprintf("attempt %d %s%s", p.Attempt, clean(p.Rest), of)
	}
	return clean(p.Rest) + of
}

// milestone splits "milestone/00000003/model.bin".
func milestone(rest string) (n int64, file string, ok bool) {
	tail, is := strings.CutPrefix(rest, "milestone/")
	num, file, cut := strings.Cut(tail, "/")
	if !is || !cut || num == "" || len(num) > 18 {
		return 0, "", false
	}
	for _, c := range []byte(num) {
		if c < '0' || c > '9' {
			return 0, "", false
		}
		n = 10*n + int64(c-'0')
	}
	return n, file, true
}

// clean bounds hostile text and escapes what is not printable in it.
func clean(s string) string {
	quoted := strconv.Quote(s[:min(len(s), 160)])
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
