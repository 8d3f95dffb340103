package plan

import (
	"encoding/json"
	"slices"
	"strings"
)

// nameInputs replaces the one change of "needs", two lists of digests, by a change per needed job, and shows the
// digests inside the command as the names that people know.
func (d *differ) nameInputs(c *Change, j *Job) {
	i := slices.IndexFunc(c.Fields, func(f FieldChange) bool { return f.Field == "needs" })
	if i < 0 {
		return
	}
	f := c.Fields[i]
	before, after := digestList(f.Old), digestList(f.New)
	oldName, newName := make(map[Digest]string), make(map[Digest]string)
	for _, w := range before {
		if a := d.oldWork[w]; len(a) > 0 {
			oldName[w] = a[0].Name
		}
	}
	for _, in := range j.Inputs {
		newName[in.Work] = in.Job
	}
	byName := make(map[string]*FieldChange)
	get := func(name string, w Digest) *FieldChange {
		if name == "" {
			name = w.Short()
		}
		if byName[name] == nil {
			byName[name] = &FieldChange{Field: "needs." + name, Sort: Identity}
		}
		return byName[name]
	}
	for _, w := range before {
		if !slices.Contains(after, w) {
			get(oldName[w], w).Old = w.Short()
		}
	}
	for _, w := range after {
		if !slices.Contains(before, w) {
			get(newName[w], w).New = w.Short()
		}
	}
	var list []FieldChange
	for _, n := range byName {
		list = append(list, *n)
	}
	slices.SortFunc(list, func(a, b FieldChange) int { return strings.Compare(a.Field, b.Field) })
	c.Fields = slices.Replace(c.Fields, i, i+1, list...)
	d.nameWords(c, oldName, newName)
}

// nameWords writes ${needs:DIGEST} in the command as ${needs.NAME}, and drops the change when nothing else differs.
func (d *differ) nameWords(c *Change, oldName, newName map[Digest]string) {
	i := slices.IndexFunc(c.Fields, func(f FieldChange) bool { return f.Field == "run" })
	if i < 0 {
		return
	}
	f := &c.Fields[i]
	f.Old, f.New = withNames(f.Old, oldName), withNames(f.New, newName)
	if f.Old == f.New {
		c.Fields = slices.Delete(c.Fields, i, i+1)
	}
}

func withNames(s string, names map[Digest]string) string {
	for w, n := range names {
		s = strings.ReplaceAll(s, "${needs:"+string(w)+"}", "${needs."+n+"}")
	}
	return s
}

func digestList(s string) []Digest {
	var out []Digest
	if json.Unmarshal([]byte(s), &out) != nil {
		return nil
	}
	return out
}
