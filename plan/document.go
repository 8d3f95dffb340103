package plan

import (
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Document is one YAML file other than a plan (lane.yaml, a ring), read as strictly as a plan: one small UTF-8 document,
// no anchors, aliases, merge keys or tags, no key twice, no unknown key, whole numbers as plain digits, no secret. Each
// read of a Value that does not hold what was asked for adds a Problem and gives the fallback, so that a caller reads the
// whole file first and looks at Problems once. Not safe for several goroutines.
type Document struct {
	d    decoder
	ps   problems
	root *node
}

// ReadDocument parses a file of at most MaxFileBytes. file is what problems call it. It never fails: what is wrong stands
// in Problems, and the root of a file that is no mapping is a Value that is not given.
func ReadDocument(file string, data []byte) *Document {
	doc := &Document{}
	if len(data) > MaxFileBytes {
		doc.ps.refuse(Pos{File: file}, "TooLarge", fmt.Sprintf("the file has %d KiB", len(data)>>10), fmt.Sprintf("at most %d KiB", MaxFileBytes>>10), "")
	} else {
		doc.root, doc.ps = parse(file, data)
	}
	doc.d = decoder{file: file, ps: &doc.ps}
	return doc
}

// Root is the file's mapping.
func (doc *Document) Root() Value { return Value{doc: doc, n: doc.root} }

// Problems are what was found wrong so far, in the order of the file.
func (doc *Document) Problems() []Problem {
	out := slices.Clone(doc.ps.list)
	for i := range out {
		switch out[i].Code { // the plan's own way out does not exist here
		case "Anchor", "Alias", "MergeKey":
			out[i].Hint = "write it out"
		case "InlineSecret":
			out[i].Hint = "give the name of an environment variable, and take the value out of the file and its history"
		}
	}
	return sortProblems(out)
}

// Err is nil, or all errors, one a line.
func (doc *Document) Err() error {
	var lines []string
	for _, p := range doc.Problems() {
		if p.Severity == Error {
			lines = append(lines, p.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return DocumentError(strings.Join(lines, "\n"))
}

// DocumentError is what is wrong with a Document: problems as file:line:col sentences, one a line.
type DocumentError string

func (e DocumentError) Error() string { return string(e) }

// Value is one place of a Document. One that the file does not have can be read too: it gives the fallback.
type Value struct {
	doc  *Document
	n    *node // nil: not given
	key  *node // that it stands under; nil: the root, or an entry of a list
	up   *node // mapping that it is missing from
	name string
}

// Given says that the file has it.
func (v Value) Given() bool { return v.n != nil }

// Name is its path in the file, for messages: models[0].plan.
func (v Value) Name() string { return v.name }

// Key is the key that it stands under, "" for the root and for entries of a list.
func (v Value) Key() string {
	if v.key == nil {
		return ""
	}
	return v.key.Value
}

// Pos is where it stands; of one that is not given, where the mapping is that lacks it.
func (v Value) Pos() Pos {
	switch {
	case v.n != nil:
		return at(v.doc.d.file, v.n)
	case v.up != nil:
		return at(v.doc.d.file, v.up)
	}
	return Pos{File: v.doc.d.file}
}

// Refuse adds a problem at this place: a stable code, what was found, what is expected, and how to mend it ("" for the
// last two where there is nothing to say).
func (v Value) Refuse(code, found, expected, fix string) {
	v.doc.ps.refuse(v.Pos(), code, found, expected, fix)
}

// Fields reads a mapping whose keys are all known; any other key is a problem. The answer has a Value for each known key,
// given or not.
func (v Value) Fields(known ...string) map[string]Value {
	out := make(map[string]Value, len(known))
	for _, k := range known {
		out[k] = Value{doc: v.doc, up: v.n, name: under(v.name, k)}
	}
	if v.n == nil {
		return out
	}
	v.doc.d.pairs(v.n, v.field(), func(k, n *node) {
		if !slices.Contains(known, k.Value) {
			v.doc.d.unknown(k, v.name, known)
			return
		}
		out[k.Value] = Value{v.doc, n, k, v.n, under(v.name, k.Value)}
	})
	return out
}

func under(name, key string) string { return strings.TrimPrefix(name+"."+clip(key), ".") }

// Required adds a problem when the value is not given, and gives the value back. fix says what to write.
func (v Value) Required(fix string) Value {
	if v.n == nil && v.up != nil { // without a mapping that lacks it, another problem says so
		v.Refuse("Missing", v.name+" is missing", fix, "")
	}
	return v
}

// Entries reads a mapping whose keys are names that the file chooses (letters, digits, dots, dashes, underscores), at most
// MaxKeys, in the order of the file.
func (v Value) Entries() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.n == nil {
			return
		}
		if len(v.n.Content)/2 > MaxKeys && v.n.Kind == mappingNode {
			v.Refuse("TooLong", fmt.Sprintf("%s has %d keys", v.name, len(v.n.Content)/2), fmt.Sprintf("at most %d", MaxKeys), "")
			return
		}
		more := true
		v.doc.d.pairs(v.n, v.field(), func(k, n *node) {
			if !isName(k.Value, "._-") {
				v.doc.d.badName(k, "a key of "+v.name, k.Value)
				return
			}
			more = more && yield(k.Value, Value{v.doc, n, k, v.n, under(v.name, k.Value)})
		})
	}
}

// List reads a list of at most most entries.
func (v Value) List(most int) []Value {
	if v.n == nil {
		return nil
	}
	i := -1
	out, _ := list(&v.doc.d, v.n, v.field(), most, "a list", func(n *node) (Value, bool) {
		i++
		return Value{doc: v.doc, n: n, up: v.n, name: fmt.Sprintf("%s[%d]", v.name, i)}, true
	})
	return out
}

// Names reads a list of names, each once.
func (v Value) Names(most int) []string {
	if v.n == nil {
		return nil
	}
	d := &v.doc.d
	got, ok := list(d, v.n, v.field(), most, "a list of names", func(n *node) (string, bool) { return d.name(n, v.field()) })
	got, _ = d.unique(v.n, v.field(), got, ok)
	return got
}

// Text reads one line of text. A bare number or yes is refused: what was meant is not known.
func (v Value) Text(fallback string) string { return read(v, fallback, (*decoder).text) }

// Any reads one scalar as it is written: 0.10 stays 0.10.
func (v Value) Any(fallback string) string { return read(v, fallback, (*decoder).value) }

// Word reads a name: letters, digits, dots, dashes, underscores.
func (v Value) Word(fallback string) string { return read(v, fallback, (*decoder).name) }

// Path reads a path relative to the root of the repository, cleaned, that does not leave it.
func (v Value) Path(fallback string) string {
	return read(v, fallback, func(d *decoder, n *node, f *Field) (string, bool) {
		s, ok := d.text(n, f)
		if !ok || !d.relative(n, f, s) {
			return "", false
		}
		p := path.Clean(s)
		if p == "." || p == ".." || strings.HasPrefix(p, "../") {
			d.refuse(n, "Escapes", f.Name+" is "+show(s), "a path inside this repository", "")
			return "", false
		}
		return p, true
	})
}

// Choice reads one of a few words.
func (v Value) Choice(fallback string, allowed ...string) string {
	return read(v, fallback, func(d *decoder, n *node, f *Field) (string, bool) {
		f.Allowed = allowed
		return d.choice(n, f)
	})
}

// Bool reads true or false.
func (v Value) Bool(fallback bool) bool { return read(v, fallback, (*decoder).bool) }

// Int reads a whole number in plain digits, from least to most.
func (v Value) Int(least, most, fallback int64) int64 {
	return read(v, fallback, func(d *decoder, n *node, f *Field) (int64, bool) { return d.ranged(n, f, least, most) })
}

// Number reads a plain decimal number, from least to most.
func (v Value) Number(least, most, fallback float64) float64 {
	return read(v, fallback, func(d *decoder, n *node, f *Field) (float64, bool) {
		got, ok := d.float(n, f)
		if ok && (got < least || got > most) {
			d.refuse(n, "OutOfRange", f.Name+" is "+show(n.Value), fmt.Sprintf("%g to %g", least, most), "")
			return 0, false
		}
		return got, ok
	})
}

// Duration reads a positive time: 36h, 90m, 2d, 45s, 200ms.
func (v Value) Duration(fallback time.Duration) time.Duration {
	return read(v, fallback, (*decoder).duration)
}

// Bytes reads a size in bytes: a whole number with its unit, such as 256MiB.
func (v Value) Bytes(fallback int64) int64 { return read(v, fallback, (*decoder).size) }

// byteUnits of a size, the longest first. (Table of values.)
var byteUnits = []struct {
	name string
	unit int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}

// maxSize bounds every size: a pebibyte.
const maxSize = 1 << 50

func (d *decoder) size(n *node, f *Field) (int64, bool) {
	s, _, ok := d.scalar(n, f, "a size such as 256MiB")
	if !ok {
		return 0, false
	}
	for _, u := range byteUnits {
		num, has := strings.CutSuffix(s, u.name)
		if !has {
			continue
		}
		if v, err := strconv.ParseInt(num, 10, 64); err == nil && notWhole(num, true) == "" && v >= 0 && v <= maxSize/u.unit {
			return v * u.unit, true
		}
		break
	}
	fix := "a whole number and B, KiB, MiB, GiB or TiB, at most 1024TiB"
	if allDigits(s) {
		fix = "give a unit: " + clip(s) + "B, " + clip(s) + "MiB"
	}
	d.refuse(n, "BadSize", f.Name+" is "+show(s), "a size such as 256MiB", fix)
	return 0, false
}

func (v Value) field() *Field {
	if v.name == "" {
		return &Field{Name: "the file"}
	}
	return &Field{Name: v.name}
}

func read[T any](v Value, fallback T, r reader[T]) T {
	if v.n == nil {
		return fallback
	}
	if got, ok := r(&v.doc.d, v.n, v.field()); ok {
		return got
	}
	return fallback
}
