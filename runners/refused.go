package runners

import (
	"errors"
	"strings"
)

// Sentence is one spelling that a platform is known to use: words of it, in lower case, and what they mean. Each platform's
// table of them lies beside its plugin; another spelling is another row.
type Sentence struct {
	Words string
	Class Class
}

// unheardOf is what people are told of words that no table knows.
const unheardOf = "these words are not known here, so they count as a refusal and spend a retry: read them and mend the job or the " +
	"platform's options; please report them if they mean that it is full or out of reach"

// Refused makes a failure of what a platform said: of the class of the first sentence in its table whose words it holds,
// whatever the case and the spaces. What no table knows is Rejected, so that the retries bound how often it is asked again.
// The raw text is kept either way, bounded.
func Refused(platform, op string, table []Sentence, said string) *Failure {
	raw := Bound(said, maxRaw)
	f := &Failure{Class: Rejected, Platform: platform, Op: op, Hint: unheardOf, Raw: raw}
	plain := strings.Join(strings.Fields(strings.ToLower(raw)), " ")
	for _, s := range table {
		if s.Words != "" && strings.Contains(plain, s.Words) {
			first, _, _ := strings.Cut(strings.TrimSpace(raw), "\n")
			f.Class, f.Hint, f.Err = s.Class, s.Class.Advice(), errors.New(string(Sanitize([]byte(Bound(strings.TrimSpace(first), maxText)))))
			break
		}
	}
	return f
}
