package preflight

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
)

// Target is any target as a file describes it: a serving host, an llm server, a machine that trains.
type Target struct {
	Name   string
	Digest string
	Checks []Look
}

// Look is one check of a target file.
type Look struct {
	ID     string
	Kind   string
	URL    string        // address, clock
	Says   string        // address, feature: what must be in the answer
	Within time.Duration // clock
	Path   string        // disk
	Free   int64         // disk, bytes
	Run    []string      // present, absent, capabilities, devices, feature, bound: a program and its arguments; no shell
	Runs   [][]string    // versions, equal
	Needs  []string      // present, capabilities, devices
	Names  []string      // absent
	Terms  [][]uint64    // bound: the factors of each term of the sum
}

// kinds is the table of what each kind of check is against, and the fields that it has.
var kinds = map[string]struct {
	class  Class
	cost   Cost
	fields []string
}{
	"present":      {Addressee, Process, []string{"run", "needs"}},
	"absent":       {Addressee, Process, []string{"run", "names"}},
	"equal":        {Equal, Process, []string{"runs"}},
	"bound":        {Derived, Process, []string{"terms", "run"}},
	"address":      {FromPeer, Network, []string{"url", "says"}},
	"clock":        {Equal, Network, []string{"url", "within"}},
	"disk":         {Required, Free, []string{"path", "free"}},
	"capabilities": {Release, Process, []string{"run", "needs"}},
	"devices":      {Inventory, Process, []string{"run", "needs"}},
	"versions":     {Release, Process, []string{"runs"}},
	"feature":      {Required, Process, []string{"run", "says"}},
}

// Bounds of a target file.
const (
	maxChecks = 200
	maxWords  = 100
)

var checkID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// ReadTarget reads a target file; file is what errors call it. The error is a plan.DocumentError with every problem.
func ReadTarget(file string, data []byte) (*Target, error) {
	doc := plan.ReadDocument(file, data)
	f := doc.Root().Fields("target", "checks")
	t := &Target{Name: f["target"].Required("target: its name").Word("")}
	list := f["checks"].Required("checks: a list of {id, kind, …}")
	seen := map[string]bool{}
	for _, c := range list.List(maxChecks) {
		l := readLook(c)
		if seen[l.ID] && l.ID != "" {
			c.Refuse("Duplicate", fmt.Sprintf("check %s is given twice", l.ID), "each id once", "")
		}
		seen[l.ID] = true
		t.Checks = append(t.Checks, l)
	}
	if list.Given() && len(t.Checks) == 0 {
		list.Refuse("NoChecks", "checks is empty", "at least one check: a target without any passes nothing", "")
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return t, nil
}

func readLook(v plan.Value) Look {
	all := v.Fields("id", "kind", "url", "says", "within", "path", "free", "run", "runs", "needs", "names", "terms")
	names := make([]string, 0, len(kinds))
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	l := Look{ID: all["id"].Required("id: a stable name").Word(""), Kind: all["kind"].Required("kind: what is checked").Choice("", names...)}
	if l.ID != "" && !checkID.MatchString(l.ID) {
		all["id"].Refuse("BadID", fmt.Sprintf("id is %q", l.ID), "lower-case letters, digits and dashes", "")
	}
	kind, known := kinds[l.Kind]
	if !known {
		return l
	}
	has := map[string]bool{"id": true, "kind": true}
	for _, name := range kind.fields {
		has[name] = true
		all[name].Required(name + ": a check of kind " + l.Kind + " has it")
	}
	for name, field := range all {
		if field.Given() && !has[name] {
			field.Refuse("WrongField", field.Name()+" is given", fmt.Sprintf("of kind %s: %v", l.Kind, kind.fields), "")
		}
	}
	l.URL, l.Says, l.Path = all["url"].Text(""), all["says"].Any(""), all["path"].Text("")
	l.Within, l.Free = all["within"].Duration(0), all["free"].Bytes(0)
	l.Run, l.Needs, l.Names = words(all["run"]), words(all["needs"]), words(all["names"])
	l.Terms = terms(all["terms"])
	for _, r := range all["runs"].List(maxChecks) {
		l.Runs = append(l.Runs, words(r))
	}
	if all["runs"].Given() && len(l.Runs) < 2 {
		all["runs"].Refuse("TooShort", "runs has one command", "at least two: one for each host", "")
	}
	if u, err := url.Parse(l.URL); l.URL != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" && (u.Scheme != "tcp" || l.Kind == "clock")) {
		all["url"].Refuse("BadURL", fmt.Sprintf("url is %q", l.URL), "http, https or (an address) tcp, with a host and without a password", "")
	}
	return l
}

func words(v plan.Value) []string {
	var out []string
	for _, w := range v.List(maxWords) {
		out = append(out, w.Any(""))
	}
	if v.Given() && len(out) == 0 {
		v.Refuse("TooShort", v.Name()+" is empty", "at least one word", "")
	}
	return out
}

// terms are lists of factors; what they add up to has no field.
func terms(v plan.Value) [][]uint64 {
	var out [][]uint64
	for _, t := range v.List(maxWords) {
		var factors []uint64
		for _, f := range t.List(maxWords) {
			factors = append(factors, uint64(f.Int(1, 1<<53-1, 1)))
		}
		if len(factors) == 0 {
			t.Refuse("TooShort", t.Name()+" is empty", "at least one factor", "")
		}
		out = append(out, factors)
	}
	if v.Given() && len(out) == 0 {
		v.Refuse("TooShort", v.Name()+" is empty", "at least one term, a list of factors", "")
	}
	return out
}
