package attest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/runners/record"
)

// Promise is what equal artifacts on equal machines show, in the words that hold: never more.
const Promise = "bit-identical on the same device class, build and software versions"

// Level is how much is known of two machines being of one class.
type Level string

// The levels.
const (
	Pinned   Level = "pinned"   // every must-fact is known on both, and equal
	Observed Level = "observed" // some are not known; those that are, are equal
	Apart    Level = "apart"    // a must-fact differs
)

// Twin is one run of a pinned work: its machine and its result.
type Twin struct {
	Name        string
	Fingerprint map[string]string
	Files       []record.File
}

// Difference is one fact in which two machines differ. An empty value is one that is not known, which is equal to nothing, not
// even to another that is not known.
type Difference struct {
	Name  string `json:"name"`
	Class Class  `json:"class"`
	A     string `json:"a"`
	B     string `json:"b"`
}

func (d Difference) String() string {
	say := func(v string) string {
		if v == "" {
			return "not known"
		}
		return fmt.Sprintf("%.256q", v)
	}
	return fmt.Sprintf("%s: %s and %s", d.Name, say(d.A), say(d.B))
}

// Guarantee is what two runs of one pinned work show about its repeatability.
type Guarantee struct {
	Identical bool         `json:"identical"` // every file has the same bytes
	Level     Level        `json:"level"`
	Facts     []Difference `json:"facts,omitempty"` // all that differ or are not known, with their class
	Files     []string     `json:"files,omitempty"` // that differ, or that only one of the two has
	Text      string       `json:"text"`
}

// CompareFacts holds two fingerprints against each other field by field and reports every difference with its class.
func CompareFacts(a, b map[string]string) (Level, []Difference) {
	must := slices.Concat(musts(a), musts(b))
	level, out := Pinned, []Difference(nil)
	seen := map[string]bool{}
	class := map[string]Class{}
	names := []string{}
	for _, f := range Facts() {
		class[f.Name] = f.Class
		names = append(names, f.Name)
	}
	for _, name := range slices.Concat(names, must) {
		if seen[name] {
			continue
		}
		seen[name] = true
		va, vb := a[name], b[name]
		binds := slices.Contains(must, name)
		if va == vb && va != "" || va == "" && vb == "" && !binds {
			continue
		}
		c, known := class[name]
		if !known {
			c = Unknown
		}
		out = append(out, Difference{name, c, va, vb})
		switch {
		case !binds:
		case va == "" || vb == "":
			if level == Pinned {
				level = Observed
			}
		default:
			level = Apart
		}
	}
	return level, out
}

// CompareRuns says what two runs of one pinned work show.
func CompareRuns(a, b Twin) Guarantee {
	g := Guarantee{Files: differing(a.Files, b.Files)}
	g.Identical = len(g.Files) == 0 && len(a.Files) > 0
	g.Level, g.Facts = CompareFacts(a.Fingerprint, b.Fingerprint)
	var apart, unknown []string
	must := slices.Concat(musts(a.Fingerprint), musts(b.Fingerprint))
	for _, d := range g.Facts {
		switch {
		case !slices.Contains(must, d.Name):
		case d.A == "" || d.B == "":
			unknown = append(unknown, d.Name)
		default:
			apart = append(apart, d.String())
		}
	}
	switch {
	case g.Identical && g.Level == Pinned:
		g.Text = Promise
	case g.Identical && g.Level == Observed:
		g.Text = fmt.Sprintf("the same bytes twice, on machines that are not known to be of one class (not known: %s): an observation, no guarantee", strings.Join(unknown, ", "))
	case g.Identical:
		g.Text = fmt.Sprintf("the same bytes on machines of two classes (%s): an observation, no guarantee", strings.Join(apart, "; "))
	case len(a.Files) == 0 && len(b.Files) == 0:
		g.Text = "neither run has a result: nothing was compared"
	default:
		g.Text = fmt.Sprintf("not repeated: %d of %d files differ (%.300s)", len(g.Files), max(len(a.Files), len(b.Files), len(g.Files)), strings.Join(g.Files[:min(5, len(g.Files))], ", "))
		switch g.Level {
		case Pinned:
			g.Text += "; the machines are equal in all that is known, so the program itself is not deterministic: see what its framework needs for that"
		case Observed:
			g.Text += "; not known of the machines: " + strings.Join(unknown, ", ")
		case Apart:
			g.Text += "; the machines differ: " + strings.Join(apart, "; ")
		}
	}
	return g
}

// OtherWork are two releases that do not come of one pinned work, so their bytes say nothing about its repeatability.
type OtherWork struct{ Text string }

func (e *OtherWork) Error() string { return "these two are no runs of one pinned work: " + e.Text }

// CompareReleases holds the retrained runs of two releases against each other. They are of one work, or of works that differ in
// their replica alone, it requires something of its machine, and they are two runs: a result that was released twice is not
// held against itself. Else the error is an *OtherWork.
func CompareReleases(a, b Statement) (Guarantee, error) {
	ra, rb := a.Predicate.Retrained, b.Predicate.Retrained
	ia, err := single(ra)
	if err != nil {
		return Guarantee{}, err
	}
	ib, err := single(rb)
	if err != nil {
		return Guarantee{}, err
	}
	if ia != ib {
		return Guarantee{}, &OtherWork{fmt.Sprintf("%.12s and %.12s differ in more than the replica", ra.Work, rb.Work)}
	}
	if ra.Work == rb.Work && ra.Attempt == rb.Attempt && ra.Manifest == rb.Manifest {
		return Guarantee{}, &OtherWork{fmt.Sprintf("both releases rest on attempt %d of %.12s, one and the same run: a second one has another replica", ra.Attempt, ra.Work)}
	}
	return CompareRuns(Twin{ra.Work, ra.Fingerprint, a.files()}, Twin{rb.Work, rb.Fingerprint, b.files()}), nil
}

func (s *Statement) files() []record.File {
	out := make([]record.File, len(s.Subject))
	for i, f := range s.Subject {
		out[i] = record.File{Path: f.Name, SHA256: f.Digest.SHA256}
	}
	return out
}

// single is a run's identity without its replica.
func single(r Run) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.Identity), &fields); err != nil {
		return "", &OtherWork{fmt.Sprintf("the identity of %.12s is no JSON object", r.Work)}
	}
	if len(fields["requires"]) == 0 {
		return "", &OtherWork{fmt.Sprintf("%.12s requires nothing of its machine", r.Work)}
	}
	delete(fields, "replica")
	b, err := json.Marshal(fields)
	return string(b), err
}

// differing lists the paths whose bytes are not the same in both, sorted.
func differing(a, b []record.File) []string {
	sums := map[string]string{}
	for _, f := range a {
		sums[f.Path] = f.SHA256
	}
	var out []string
	for _, f := range b {
		sum, there := sums[f.Path]
		if !there || sum != f.SHA256 {
			out = append(out, f.Path)
		}
		delete(sums, f.Path)
	}
	for path := range sums {
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}
