package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// derive marks the change of a command as derived when it follows from the others: the command as it is written now,
// filled with the values that were accepted, gives the words that were accepted. A reviewer who sees the parameter
// need not read the whole command twice. How it was written then is not known and not needed: a command that was
// written in another way and meant the same words is no change.
func (d *differ) derive(c *Change, old *AcceptedJob, i int) {
	run := slices.IndexFunc(c.Fields, func(f FieldChange) bool { return f.Field == "run" })
	if run < 0 || !slices.ContainsFunc(c.Fields, func(f FieldChange) bool { return f.explains() }) {
		return
	}
	var before acceptedValues
	parts := cutter{b: old.Identity}
	for parts.next() {
		switch string(parts.key) {
		case "run":
			before.run = parts.raw
		case "params":
			before.params = parts.raw
		case "seed":
			before.seed = string(parts.raw)
		case "replica":
			before.replica = string(parts.raw)
		}
	}
	if !parts.ended {
		return // not canonical: then nothing is hidden
	}
	words, ok := d.filled(d.words[:0], &d.plan.Jobs[i], &before)
	d.words = words
	d.scratch = putList(d.scratch[:0], words)
	c.Fields[run].Derived = ok && bytes.Equal(d.scratch, before.run)
}

// explains says that a field's value can stand in a command.
func (f FieldChange) explains() bool {
	return f.Field == "seed" || f.Field == "replica" || strings.HasPrefix(f.Field, "params.") || strings.HasPrefix(f.Field, "needs.")
}

// acceptedValues is what an accepted identity holds for the words of a command.
type acceptedValues struct {
	run, params   []byte // canonical JSON
	seed, replica string
}

// value is the text for one ${name}.
func (v *acceptedValues) value(name string) (string, bool) {
	switch name {
	case "seed":
		return cmp.Or(v.seed, "0"), true // 0 is not written down
	case "replica":
		return cmp.Or(v.replica, "0"), true
	}
	key, ok := strings.CutPrefix(name, "params.")
	if !ok {
		return "", false
	}
	c := cutter{b: v.params}
	for c.next() {
		if string(c.key) == key {
			var s string
			err := json.Unmarshal(c.raw, &s)
			return s, err == nil
		}
	}
	return "", false
}

// filled appends the job's command with the values of another identity.
func (d *differ) filled(out []string, j *Job, from *acceptedValues) ([]string, bool) {
	words, why := splitWords(j.Run)
	if why != "" {
		return out, false
	}
	for _, w := range words {
		if group, ok := strings.CutPrefix(w.text, "${needs."); ok && strings.HasSuffix(group, "}") {
			if members := d.acceptedGroup(strings.TrimSuffix(group, "}")); members != nil {
				out = append(out, members...)
				continue
			}
		}
		out = append(out, expand(w.text, func(name string) (string, bool) {
			if job, ok := strings.CutPrefix(name, "needs."); ok {
				up := d.old[job]
				if up == nil {
					return "", false
				}
				return "${needs:" + string(up.Work) + "}", true
			}
			return from.value(name)
		}))
	}
	return out, true
}

// acceptedGroup gives the words that a group stood for, or nil when it was none.
func (d *differ) acceptedGroup(name string) []string {
	if d.old[name] != nil {
		return nil
	}
	if d.groups == nil {
		d.groups = make(map[string][]*AcceptedJob)
		for i := range d.accepted.Jobs {
			if a := &d.accepted.Jobs[i]; a.Group != a.Name {
				d.groups[a.Group] = append(d.groups[a.Group], a)
			}
		}
	}
	members := slices.Clone(d.groups[name])
	slices.SortFunc(members, func(a, b *AcceptedJob) int { return strings.Compare(a.Name+"}", b.Name+"}") }) // as splitGroups sorts its words
	var out []string
	for _, a := range members {
		out = append(out, "${needs:"+string(a.Work)+"}")
	}
	return out
}

// shown are the fields that a person must see: those that follow from others are left out.
func (c *Change) shown() []FieldChange {
	if !slices.ContainsFunc(c.Fields, func(f FieldChange) bool { return f.Derived }) {
		return c.Fields
	}
	return slices.DeleteFunc(slices.Clone(c.Fields), func(f FieldChange) bool { return f.Derived })
}
