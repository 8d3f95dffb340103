package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// identityFormat is the version of the canonical identity that is written and understood here.
const identityFormat = 1

// BadIdentity is a spec that is not what its work digest stands for.
type BadIdentity struct {
	Field string // of the spec, as its JSON names it; empty: the identity as a whole
	Text  string // found, expected
}

func (e *BadIdentity) Error() string {
	if e.Field == "" {
		return "the identity " + e.Text
	}
	return fmt.Sprintf("the spec's %s %s", e.Field, e.Text)
}

// CheckIdentity says whether a spec is what its work digest stands for: the digest is the sha256 of the identity, and
// the identity is byte for byte the canonical one of the spec's own fields. So whoever may write to the bucket cannot
// make a worker run anything else under a digest that somebody asked for. The error is a *BadIdentity with the first
// field that differs.
//
// Not bound, because it is no identity: Metrics, and the names of the inputs beyond what the command says (two inputs
// that the command does not name could be swapped in HEADWAY_NEED_<NAME>).
func CheckIdentity(s Spec) error {
	var found bytes.Buffer
	if err := json.Compact(&found, s.Identity); err != nil {
		return &BadIdentity{Text: fmt.Sprintf("is no JSON: %v", err)}
	}
	if got := Hash(found.Bytes()); got != s.Work {
		return &BadIdentity{Text: fmt.Sprintf("hashes to %.12s, but the spec is of work %.12s", got, s.Work)}
	}
	if err := plainWords(&s); err != nil {
		return err
	}
	want := Identity(s)
	if bytes.Equal(found.Bytes(), want) {
		return nil
	}
	return differing(found.Bytes(), want)
}

// plainWords refuses what would make two meanings of one identity.
func plainWords(s *Spec) error {
	for i, word := range s.Argv {
		if strings.Contains(word, "${needs:") {
			return &BadIdentity{"argv", fmt.Sprintf("has ${needs:…} in word %d, which only an identity may have", i+1)}
		}
	}
	names := map[string]bool{}
	for _, in := range s.Inputs {
		if names[in.Job] {
			return &BadIdentity{"inputs", fmt.Sprintf("name %.80q twice", in.Job)}
		}
		names[in.Job] = true
	}
	return nil
}

// fields says which field of a spec each key of an identity is made of: a table of values.
var fields = map[string]string{"code": "code_tree", "deploy": "deploy", "env": "env", "generation": "generation", "headway": "", "kind": "kind", "needs": "inputs",
	"params": "params", "parent": "parent", "replica": "replica", "requires": "requires", "result": "result", "run": "argv", "seed": "seed"}

// differing names the first key in which two identities differ.
func differing(found, want []byte) error {
	var f, w map[string]json.RawMessage
	if err := json.Unmarshal(found, &f); err != nil {
		return &BadIdentity{Text: "is no JSON object"}
	}
	if err := json.Unmarshal(want, &w); err != nil {
		return &BadIdentity{Text: "cannot be compared: " + err.Error()}
	}
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if _, known := fields[key]; !known {
			return &BadIdentity{Text: fmt.Sprintf("has the key %.40q, which this version does not know: use a newer one", key)}
		}
	}
	if string(f["headway"]) != strconv.Itoa(identityFormat) {
		return &BadIdentity{Text: fmt.Sprintf("is of format %.40q, this version reads %d: use a newer one", f["headway"], identityFormat)}
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !bytes.Equal(f[key], w[key]) {
			return &BadIdentity{fields[key], fmt.Sprintf("is %.200q, but the work's digest was computed over %.200q", shown(w[key]), shown(f[key]))}
		}
	}
	return &BadIdentity{Text: "is not written in the canonical way"} // order of keys, escapes, a key twice
}

func shown(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "(not set)"
	}
	return string(raw)
}

// Identity is the canonical JSON of a spec's identity fields, the bytes whose sha256 is the work's digest: keys in byte
// order, no white space, UTF-8 with only the escapes that JSON demands, what is not set left out. Its form is given in
// plan/README.md; the vectors there hold both writers to it.
func Identity(s Spec) []byte {
	o := object{b: []byte{'{'}}
	o.text("code", s.CodeTree)
	o.flag("deploy", s.Deploy)
	o.texts("env", s.Env)
	o.number("generation", int64(max(1, s.Generation)))
	o.number("headway", identityFormat)
	o.text("kind", s.Kind)
	works := make([]string, len(s.Inputs))
	for i, in := range s.Inputs {
		works[i] = in.Work
	}
	slices.Sort(works)
	o.list("needs", slices.Compact(works))
	o.texts("params", s.Params)
	o.text("parent", s.Parent)
	o.number("replica", s.Replica)
	o.texts("requires", s.Requires)
	o.text("result", s.Result)
	run := make([]string, len(s.Argv))
	for i, word := range s.Argv {
		run[i] = byDigest(word, s.Inputs)
	}
	o.list("run", run)
	o.number("seed", s.Seed)
	return append(o.b, '}')
}

// byDigest turns ${needs.NAME} into ${needs:DIGEST} where NAME is an input; anything else stays as it is.
func byDigest(word string, ins []Input) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(word, "${")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, "}")
		job, needs := strings.CutPrefix(name, "needs.")
		i := slices.IndexFunc(ins, func(in Input) bool { return in.Job == job })
		if !closed || !needs || i < 0 {
			b.WriteString("${")
			word = rest
			continue
		}
		b.WriteString("${needs:" + ins[i].Work + "}")
		word = after
	}
}

// object writes a canonical object whose keys come in byte order; values that are not set leave no key.
type object struct{ b []byte }

func (o *object) key(name string) {
	if len(o.b) > 1 {
		o.b = append(o.b, ',')
	}
	o.b = append(quote(o.b, name), ':')
}

func (o *object) text(name, v string) {
	if v != "" {
		o.key(name)
		o.b = quote(o.b, v)
	}
}

func (o *object) number(name string, v int64) {
	if v != 0 {
		o.key(name)
		o.b = strconv.AppendInt(o.b, v, 10)
	}
}

func (o *object) flag(name string, v bool) {
	if v {
		o.key(name)
		o.b = append(o.b, "true"...)
	}
}

func (o *object) list(name string, v []string) {
	if len(v) == 0 {
		return
	}
	o.key(name)
	for i, s := range v {
		o.b = quote(append(o.b, "[,"[min(i, 1)]), s)
	}
	o.b = append(o.b, ']')
}

func (o *object) texts(name string, v map[string]string) {
	if len(v) == 0 {
		return
	}
	o.key(name)
	for i, k := range slices.Sorted(maps.Keys(v)) {
		o.b = append(quote(append(o.b, "{,"[min(i, 1)]), k), ':')
		o.b = quote(o.b, v[k])
	}
	o.b = append(o.b, '}')
}

func quote(b []byte, s string) []byte {
	const short, letters = "\b\t\n\f\r", "btnfr"
	b = append(b, '"')
	for _, r := range s {
		i := strings.IndexRune(short, r)
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case i >= 0:
			b = append(b, '\\', letters[i])
		case r < ' ':
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
