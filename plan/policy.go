package plan

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
)

// Bounds of the log policies of one job: whoever looks for them does so in every line of a program's output.
const (
	MaxPolicies     = 16
	MaxPattern      = 512  // bytes of one expression
	maxInstructions = 1000 // that it may compile to
)

// Policy is what follows when an attempt fails whose output has a line that Log matches.
type Policy struct {
	Log  string // RE2, looked for in each line by itself
	Then string // stop: the job has failed; exclude: never again on that platform
}

// ExitCodes says what a program's exit codes mean.
type ExitCodes struct {
	Retry []int // the machine's doing, not the program's: 1 to 255, sorted
}

// The keys of one policy. (Tables of values.)
var (
	policyKeys = []string{"log", "then"}
	thens      = []string{"stop", "exclude"}
)

func (d *decoder) policies(n *node, f *Field) ([]Policy, bool) {
	return list(d, n, f, MaxPolicies, `a list such as [{log: "CUDA out of memory", then: stop}]`, func(m *node) (Policy, bool) {
		var p Policy
		ok := d.pairs(m, &Field{Name: "an entry of " + f.Name}, func(k, v *node) {
			switch k.Value {
			case "log":
				p.Log, _ = d.pattern(v, &Field{Name: f.Name + ".log"})
			case "then":
				p.Then, _ = d.choice(v, &Field{Name: f.Name + ".then", Allowed: thens})
			default:
				d.unknown(k, f.Name, policyKeys)
			}
		})
		if !ok {
			return p, false
		}
		for _, key := range policyKeys {
			if !slices.ContainsFunc(m.Content, func(k *node) bool { return k.Value == key }) {
				d.refuse(m, "Missing", "this entry of "+f.Name+" has no "+show(key), "both log and then", `write {log: "CUDA out of memory", then: stop}`)
				return p, false
			}
		}
		return p, p.Log != "" && p.Then != ""
	})
}

// pattern reads a regular expression that can be looked for in bounded time.
func (d *decoder) pattern(n *node, f *Field) (string, bool) {
	s, ok := d.text(n, f)
	if !ok {
		return "", false
	}
	if s == "" || len(s) > MaxPattern {
		d.refuse(n, "BadPattern", fmt.Sprintf("%s is an expression of %d bytes", f.Name, len(s)), fmt.Sprintf("1 to %d bytes", MaxPattern), "")
		return "", false
	}
	tree, err := syntax.Parse(s, syntax.Perl)
	var prog *syntax.Prog
	if err == nil {
		prog, err = syntax.Compile(tree.Simplify())
	}
	switch {
	case err != nil:
		d.refuse(n, "BadPattern", f.Name+" is "+show(s)+": "+clip(err.Error()), "a regular expression in the syntax of RE2",
			"put a backslash before marks such as ( [ * + ? that stand for themselves")
		return "", false
	case len(prog.Inst) > maxInstructions:
		d.refuse(n, "BadPattern", fmt.Sprintf("%s is %s, which compiles to %d instructions", f.Name, show(s), len(prog.Inst)),
			fmt.Sprintf("at most %d", maxInstructions), "use fewer and smaller repetitions {n}")
		return "", false
	}
	return s, true
}

func (d *decoder) exitCodes(n *node, f *Field) ([]int, bool) {
	seen := map[int64]bool{}
	got, ok := list(d, n, f, MaxList, "a list of exit codes, such as [75, 137]", func(m *node) (int, bool) {
		v, ok := d.ranged(m, f, 1, 255)
		if ok && seen[v] {
			d.refuse(m, "Twice", fmt.Sprintf("%s has %d twice", f.Name, v), "each once", "")
			return 0, false
		}
		seen[v] = true
		return int(v), ok
	})
	slices.Sort(got)
	return got, ok
}

func putPolicies(b []byte, all []Policy) []byte {
	if len(all) == 0 {
		return b
	}
	for i, p := range all {
		mark := byte(',')
		if i == 0 {
			mark = '['
		}
		b = append(append(b, mark), `{"log":`...)
		b = append(appendString(b, p.Log), `,"then":`...)
		b = append(appendString(b, p.Then), '}')
	}
	return append(b, ']')
}

func putInts(b []byte, all []int) []byte {
	if len(all) == 0 {
		return b
	}
	for i, v := range all {
		mark := byte(',')
		if i == 0 {
			mark = '['
		}
		b = strconv.AppendInt(append(b, mark), int64(v), 10)
	}
	return append(b, ']')
}
