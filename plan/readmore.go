package plan

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-run/headway/plan/flops"
)

// pairs calls visit for each key of a mapping, or reports that n is none.
func (d *decoder) pairs(n *node, f *Field, visit func(k, v *node)) bool {
	if n.Kind != mappingNode {
		d.wrongType(n, f, "a mapping", "")
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == scalarNode && !(k.Value == "<<" && isPlain(k)) {
			visit(k, n.Content[i+1])
		}
	}
	return true
}

// lanesOwn are the parts of a work's identity that only the deploy lane sets. (Table of values.)
var lanesOwn = []string{"deploy", "generation", "parent"}

// unknown reports a key that the table does not have.
func (d *decoder) unknown(k *node, in string, known []string) {
	where := ""
	if in != "" {
		where = " in " + in
	}
	if slices.Contains(lanesOwn, k.Value) && slices.Contains(known, "kind") { // of a job
		d.refuse(k, "LanesOwn", show(k.Value)+where+" is the deploy lane's to set, never a plan's", "a job without it", "sign a release tag: headway-lane does the rest (docs/lane.md)")
		return
	}
	d.refuse(k, "UnknownField", "unknown key "+show(k.Value)+where, oneOf(known), didYouMean(k.Value, known, ""))
}

func (d *decoder) textMap(n *node, f *Field, key func(*decoder, *node) bool, val reader[string]) (map[string]string, bool) {
	if len(n.Content)/2 > MaxKeys {
		d.refuse(n, "TooLong", fmt.Sprintf("%s has %d keys", f.Name, len(n.Content)/2), fmt.Sprintf("at most %d", MaxKeys), "put large settings into a file of the code folder")
		return nil, false
	}
	out := make(map[string]string, len(n.Content)/2)
	sub := *f
	ok := d.pairs(n, f, func(k, v *node) {
		if !key(d, k) {
			return
		}
		sub.Name = f.Name + "." + clip(k.Value)
		s, good := val(d, v, &sub)
		if !good {
			return
		}
		if namesSecret(k.Value, s) {
			d.refuse(v, "InlineSecret", sub.Name+" has a value that looks like a secret, as its name says", "the name of a secret",
				"list the name under `secrets` and take the value out of the file and its history")
			return
		}
		out[k.Value] = s
	})
	return out, ok
}

// list reads a list of at most most items with one reader per item.
func list[T any](d *decoder, n *node, f *Field, most int, what string, read func(*node) (T, bool)) ([]T, bool) {
	if n.Kind != sequenceNode {
		hint := ""
		if n.Kind == scalarNode && !isNull(n) {
			text := strings.Trim(show(n.Value), `"`)
			if !strings.ContainsAny(text, `"'\(`) { // words, not a quoted one or what stands for a secret
				text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }), ", ")
			}
			hint = "write it in brackets: [" + text + "]"
		}
		d.wrongType(n, f, what, hint)
		return nil, false
	}
	if len(n.Content) > most {
		d.refuse(n, "TooLong", fmt.Sprintf("%s has %d entries", f.Name, len(n.Content)), fmt.Sprintf("at most %d", most), "")
		return nil, false
	}
	out := make([]T, 0, len(n.Content))
	good := true
	for _, m := range n.Content {
		v, ok := read(m)
		good = good && ok
		if ok {
			out = append(out, v)
		}
	}
	return out, good
}

// unique refuses a value that a list has twice.
func (d *decoder) unique(n *node, f *Field, got []string, ok bool) ([]string, bool) {
	seen := make(map[string]bool, len(got))
	for i, s := range got {
		twice := seen[s]
		seen[s] = true
		if ok && twice {
			d.refuse(n.Content[i], "Twice", f.Name+" has "+show(s)+" twice", "each once", "")
			return nil, false
		}
	}
	return got, ok
}

func (d *decoder) nameList(n *node, f *Field) ([]string, bool) {
	got, ok := list(d, n, f, MaxList, "a list of names", func(m *node) (string, bool) { return d.name(m, f) })
	return d.unique(n, f, got, ok)
}

func (d *decoder) gpuList(n *node, f *Field) ([]string, bool) {
	got, ok := list(d, n, f, MaxList, "a list of cards", func(m *node) (string, bool) { return d.text(m, f) })
	if ok && len(got) == 0 {
		d.refuse(n, "EmptyList", f.Name+" is an empty list", "at least one card", "leave gpu out for CPU")
		return nil, false
	}
	return d.unique(n, f, got, ok)
}

func (d *decoder) secretNames(n *node, f *Field) ([]string, bool) {
	got, ok := list(d, n, f, MaxList, "a list of names", func(m *node) (string, bool) {
		s, ok := d.text(m, f)
		if ok && !isVariable(s) {
			d.refuse(m, "BadName", f.Name+" has an entry that is not the name of an environment variable", "a name such as WANDB_API_KEY", "name the secret, never write it")
			return "", false
		}
		if own := dispatchersOwn(s); ok && own != "" {
			d.refuse(m, "BadName", f.Name+" has "+show(s), "the name of a secret of your program's own", "names that start with "+own+" are the dispatcher's own credentials and never leave it: give the program a key of its own, under another name")
			return "", false
		}
		return s, ok
	})
	got, ok = d.unique(n, f, got, ok)
	slices.Sort(got)
	return got, ok
}

// need is one entry of `needs`.
type need struct {
	name string
	pos  Pos
}

func (d *decoder) needList(n *node, f *Field) []need {
	got, _ := list(d, n, f, MaxNeeds, "a list of jobs", func(m *node) (need, bool) {
		s, ok := d.jobName(m, f)
		return need{s, at(d.file, m)}, ok
	})
	seen := make(map[string]bool, len(got))
	for _, a := range got {
		twice := seen[a.name]
		if seen[a.name] = true; twice {
			d.ps.refuse(a.pos, "Twice", f.Name+" has "+show(a.name)+" twice", "each once", "")
		}
	}
	return got
}

// name is a name that people give: letters, digits, dots, dashes and underscores.
func (d *decoder) name(n *node, f *Field) (string, bool) { return d.named(n, f, "._-") }

// jobName may also be one that a matrix made.
func (d *decoder) jobName(n *node, f *Field) (string, bool) { return d.named(n, f, "._-=+") }

func (d *decoder) named(n *node, f *Field, marks string) (string, bool) {
	s, _, ok := d.scalar(n, f, "a name")
	if ok && !isName(s, marks) {
		d.badName(n, f.Name, s)
		return "", false
	}
	return s, ok
}

func (d *decoder) badName(n *node, what, s string) {
	expected := "a letter or digit, then letters, digits, dots, dashes or underscores"
	if len(s) > MaxNameLength {
		d.refuse(n, "BadName", fmt.Sprintf("%s is %s, %d bytes long", what, show(s), len(s)), fmt.Sprintf("at most %d bytes", MaxNameLength), "")
		return
	}
	d.refuse(n, "BadName", what+" is "+show(s), expected, "")
}

func isName(s, marks string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= '0' && c <= '9' || lower(c) >= 'a' && lower(c) <= 'z' || i > 0 && strings.IndexByte(marks, c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= MaxNameLength
}

func isVariable(s string) bool {
	return isName(strings.ReplaceAll(s, "_", "a"), "") && !(s[0] >= '0' && s[0] <= '9')
}

func (d *decoder) kind(n *node, f *Field) (string, bool) {
	s, ok := d.name(n, f)
	if ok && !slices.Contains(kinds, s) {
		if k := nearest(s, kinds); k != "" {
			d.ps.warn(at(d.file, n), "OddKind", "kind "+show(s)+" is not one of the usual ones", "did you mean "+k+"?")
		}
	}
	return s, ok
}

// paramKey accepts the key of a free map.
func (d *decoder) paramKey(k *node) bool {
	if !isName(strings.TrimLeft(k.Value, "_"), "._-/") {
		d.badName(k, "this key", k.Value)
		return false
	}
	return true
}

func (d *decoder) envKey(k *node) bool {
	if !isVariable(k.Value) {
		d.refuse(k, "BadName", "env has "+show(k.Value), "the name of an environment variable", "letters, digits and underscores")
		return false
	}
	return !d.headwaysOwn(k, "env has "+show(k.Value), k.Value)
}

// headwaysOwn refuses a variable that headway itself sets. Any other is the program's business, PATH included: env
// reaches the program alone, never the worker that starts it.
func (d *decoder) headwaysOwn(k *node, what, name string) bool {
	if !strings.HasPrefix(strings.ToUpper(name), "HEADWAY_") {
		return false
	}
	d.refuse(k, "BadName", what, "a name that does not start with HEADWAY_", "these are set by headway itself")
	return true
}

// dispatchersOwn gives the prefix that marks a variable as one of the dispatcher's own credentials, or "". A secret of
// such a name would hand the keys of the store to a worker.
func dispatchersOwn(name string) string {
	for _, p := range []string{"HEADWAY_", "AWS_"} {
		if strings.HasPrefix(strings.ToUpper(name), p) {
			return p
		}
	}
	return ""
}

// codePath is a folder of the repository, written relative to the file; the answer is relative to the root.
func (d *decoder) codePath(n *node, f *Field) (string, bool) {
	s, ok := d.text(n, f)
	if !ok || !d.relative(n, f, s) {
		return "", false
	}
	p := path.Join(path.Dir(d.file), s)
	switch {
	case p == ".." || strings.HasPrefix(p, "../"):
		d.refuse(n, "Escapes", f.Name+" is "+show(s)+", which leaves the repository", "a folder of this repository", "")
	case p == ".":
		d.refuse(n, "WholeRepository", f.Name+" is the whole repository", "a folder of it", "put the program into a folder of its own: otherwise every commit, also of a plan, makes other work of this job")
	default:
		return p, true
	}
	return "", false
}

// innerPath is a path inside the program's working folder.
func (d *decoder) innerPath(n *node, f *Field) (string, bool) {
	s, ok := d.text(n, f)
	if !ok || !d.relative(n, f, s) {
		return "", false
	}
	p := path.Clean(s)
	if p == ".." || strings.HasPrefix(p, "../") || p == "." {
		d.refuse(n, "Escapes", f.Name+" is "+show(s), "a path inside the working folder", "")
		return "", false
	}
	return p, true
}

func (d *decoder) relative(n *node, f *Field, s string) bool {
	why := ""
	switch {
	case s == "":
		why = "empty"
	case s[0] == '/' || len(s) > 1 && s[1] == ':':
		why = show(s) + ", an absolute path"
	case strings.Contains(s, `\`):
		why = show(s) + ", with a backslash"
	default:
		return true
	}
	d.refuse(n, "BadPath", f.Name+" is "+why, "a relative path with /", "")
	return false
}

// work reads the `work` mapping by the table of package flops.
func (d *decoder) work(n *node) *workSpec {
	f := &Field{Name: "work"}
	w := &workSpec{values: make(map[string]flops.Value), pos: make(map[string]Pos)}
	d.pairs(n, f, func(k, v *node) {
		if val, ok := d.workValue(k, v, "work", flops.Keys); ok {
			w.values[k.Value], w.pos[k.Value] = val, at(d.file, v)
		}
	})
	return w
}

func (d *decoder) workValue(k, v *node, in string, keys []flops.Key) (flops.Value, bool) {
	i := slices.IndexFunc(keys, func(key flops.Key) bool { return key.Name == k.Value })
	if i < 0 {
		var known []string
		for _, key := range keys {
			known = append(known, key.Name)
		}
		d.unknown(k, in, known)
		return flops.Value{}, false
	}
	f := &Field{Name: in + "." + k.Value, Allowed: keys[i].Choices}
	switch keys[i].Type {
	case flops.Choice:
		s, ok := d.choice(v, f)
		return flops.Value{Text: s}, ok
	case flops.Layers:
		entries, ok := list(d, v, f, MaxNeeds, "a list of layers", func(m *node) (map[string]flops.Value, bool) {
			e := make(map[string]flops.Value)
			ok := d.pairs(m, f, func(k2, v2 *node) {
				if val, good := d.workValue(k2, v2, f.Name, keys[i].Keys); good {
					e[k2.Value] = val
				}
			})
			return e, ok
		})
		return flops.Value{List: entries}, ok
	}
	num, ok := d.quantity(v, f)
	return flops.Value{Num: num}, ok
}

// quantity is a number that may carry K, M, B (or G) or T: 124M.
func (d *decoder) quantity(n *node, f *Field) (float64, bool) {
	s, plain, ok := d.scalar(n, f, "a number such as 124M")
	if !ok {
		return 0, false
	}
	num, scale := s, 1.0
	if i := len(s) - 1; i > 0 {
		switch s[i] {
		case 'K', 'k':
			num, scale = s[:i], 1e3
		case 'M':
			num, scale = s[:i], 1e6
		case 'B', 'G':
			num, scale = s[:i], 1e9
		case 'T':
			num, scale = s[:i], 1e12
		}
	}
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !isDecimal(num) || v < 0 || !plain {
		d.refuse(n, "BadQuantity", f.Name+" is "+show(s), "a number such as 65536, 124M or 3.1e18", "units are K, M, B and T")
		return 0, false
	}
	if scale != 1 { // 1.3B is 1300000000 and nothing beside it
		v = float64(int64(v*scale + 0.5))
	}
	return v, true
}

// axis is one axis of a matrix.
type axis struct {
	name   string
	values []string
	pos    Pos
}

// axes reads a matrix. The order of keys does not matter; the order of values neither makes other jobs.
func (d *decoder) axes(n *node) []axis {
	f := &Field{Name: "matrix"}
	out := []axis{}
	d.pairs(n, f, func(k, v *node) {
		sub := &Field{Name: "matrix." + clip(k.Value)}
		param, isParam := strings.CutPrefix(k.Value, "params.")
		env, isEnv := strings.CutPrefix(k.Value, "env.")
		whole := k.Value == "seed" || k.Value == "replica"
		if !whole && !(isParam && isName(param, "._-")) && !(isEnv && isVariable(env)) {
			hint := didYouMean(k.Value, []string{"seed", "replica"}, "write params."+clip(k.Value)+" for a parameter")
			d.refuse(k, "UnknownField", "unknown axis "+show(k.Value)+" in matrix", "seed, replica, params.NAME or env.NAME", hint)
			return
		}
		if isEnv && d.headwaysOwn(k, "matrix has "+show(k.Value), env) {
			return
		}
		read := func(m *node) (string, bool) {
			if !whole {
				return d.value(m, sub)
			}
			i, ok := d.int64(m, sub)
			return strconv.FormatInt(i, 10), ok
		}
		vals, ok := list(d, v, sub, MaxMatrix, "a list of values", read)
		if vals, ok = d.unique(v, sub, vals, ok); !ok {
			return
		}
		if len(vals) == 0 {
			d.refuse(v, "EmptyList", sub.Name+" is an empty list", "at least one value", "leave the axis out")
			return
		}
		out = append(out, axis{k.Value, vals, at(d.file, k)})
	})
	slices.SortFunc(out, func(a, b axis) int { return strings.Compare(a.name, b.name) })
	return out
}
