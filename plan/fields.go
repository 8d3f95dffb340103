package plan

import (
	"maps"
	"slices"
	"strings"
)

// Type says what a field holds and how it is written.
type Type string

const (
	TypeText     Type = "text"
	TypeName     Type = "name"
	TypeInt      Type = "whole number"
	TypeNumber   Type = "number"
	TypeBool     Type = "true or false"
	TypeDuration Type = "duration" // 36h, 90m, 2d, 45s
	TypeEvery    Type = "interval" // "200 steps" or a duration
	TypeAmount   Type = "amount"   // 20 USD
	TypePrice    Type = "price"    // 0.45 USD/h
	TypePercent  Type = "share"    // 20%
	TypeKeep     Type = "duration or forever"
	TypePath     Type = "path" // relative, with /
	TypeList     Type = "list" // of text
	TypeInts     Type = "list of whole numbers"
	TypePolicies Type = "policies"  // list of {log, then}
	TypeNames    Type = "names"     // list of names
	TypeMap      Type = "map"       // of text
	TypeWork     Type = "work"      // flops.Keys
	TypeMatrix   Type = "matrix"    // axis → list of values
	TypeNotify   Type = "rules"     // list of {to, form, on}
	TypeWho      Type = "who"       // platform → list of labels
	TypePlatform Type = "platforms" // name → platform
)

// Field is one row of the table of fields: what a key of a plan file holds and what changing it means. The walker's
// known keys, the JSON Schema, the documentation and the classes of the diff all come from these rows.
type Field struct {
	Name    string // path of the key inside a job: "kind", "limits.wall"
	Type    Type
	Sort    Sort
	Doc     string   // one sentence, with units
	Default string   // what holds when the key is left out, for people
	Allowed []string // the only values, when there is such a list
	Example string
}

// leaf is a row with its code: how it is read, copied by `like`, and written canonically. A composite such as gpu has
// one leaf per key; a map is one leaf.
type leaf struct {
	Field
	set  func(d *decoder, n *node, f *Field, e *entry)
	copy func(dst, src *entry)
	put  func(b []byte, j *Job) []byte // appends the canonical JSON of the value; appends nothing when it is not set
}

// reader reads one value; false means that it has reported a problem.
type reader[T any] func(d *decoder, n *node, f *Field) (T, bool)

// row makes a leaf for a value that lies in the job at ptr.
func row[T any](f Field, ptr func(*Job) *T, read reader[T], put func([]byte, T) []byte) leaf {
	return leaf{
		Field: f,
		set: func(d *decoder, n *node, f *Field, e *entry) {
			if v, ok := read(d, n, f); ok {
				*ptr(&e.job) = v
			}
		},
		copy: func(dst, src *entry) { *ptr(&dst.job) = *ptr(&src.job) },
		put:  func(b []byte, j *Job) []byte { return put(b, *ptr(j)) },
	}
}

// mapRow makes a leaf for a map, which `like` merges key by key.
func mapRow(f Field, ptr func(*Job) *map[string]string, key func(d *decoder, k *node) bool, val reader[string]) leaf {
	l := row(f, ptr, func(d *decoder, n *node, f *Field) (map[string]string, bool) { return d.textMap(n, f, key, val) }, putMap)
	l.copy = func(dst, src *entry) {
		own, theirs := *ptr(&dst.job), *ptr(&src.job)
		if len(own) == 0 {
			*ptr(&dst.job) = theirs // shared: nobody writes into a map that was read
			return
		}
		m := make(map[string]string, len(own)+len(theirs))
		maps.Copy(m, theirs)
		maps.Copy(m, own) // what dst says itself wins
		dst.from.copied += len(m)
		*ptr(&dst.job) = m
	}
	return l
}

// merges says that a leaf's copy adds to what is there, so that it is called even when the child sets the field.
func (l *leaf) merges() bool { return l.Type == TypeMap || l.Type == TypeWork }

// leafIndex finds a leaf by its path. (Table of values.)
var leafIndex = func() map[string]int {
	m := make(map[string]int, len(leaves))
	for i, l := range leaves {
		m[l.Name] = i
	}
	return m
}()

// topKeys lists the keys of a job, and objectKeys those of its composites. (Tables of values.)
var (
	topKeys    = keysUnder("")
	objectKeys = func() map[string][]string {
		m := make(map[string][]string)
		for _, k := range topKeys {
			if sub := keysUnder(k + "."); len(sub) > 0 {
				m[k] = sub
			}
		}
		return m
	}()
)

func keysUnder(prefix string) []string {
	var out []string
	for _, l := range leaves {
		rest, ok := strings.CutPrefix(l.Name, prefix)
		if !ok {
			continue
		}
		top, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(out, top) {
			out = append(out, top)
		}
	}
	return out
}

// Fields is the table of a job's fields, in the order of documentation.
func Fields() []Field {
	out := make([]Field, len(leaves))
	for i, l := range leaves {
		out[i] = l.Field
	}
	return out
}
