package plan

import (
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
	before, err := splitObject(old.Identity)
	if err != nil {
		return // reported with the fields
	}
	var words []string
	for _, m := range before {
		if m.key == "run" && json.Unmarshal(m.raw, &words) != nil {
			return
		}
	}
	now, ok := d.filled(&d.plan.Jobs[i], before)
	c.Fields[run].Derived = ok && slices.Equal(now, words)
}

// explains says that a field's value can stand in a command.
func (f FieldChange) explains() bool {
	return f.Field == "seed" || f.Field == "replica" || strings.HasPrefix(f.Field, "params.") || strings.HasPrefix(f.Field, "needs.")
}

// filled is the job's command with the values of another identity.
func (d *differ) filled(j *Job, identity []member) ([]string, bool) {
	values := map[string]string{"seed": "0", "replica": "0"} // what a command gets where nothing is said
	for _, m := range identity {
		switch m.key {
		case "seed", "replica":
			values[m.key] = string(m.raw)
		case "params":
			var params map[string]string
			if json.Unmarshal(m.raw, &params) != nil {
				return nil, false
			}
			for k, v := range params {
				values["params."+k] = v
			}
		}
	}
	words, why := splitWords(j.Run)
	if why != "" {
		return nil, false
	}
	var out []string
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
			v, ok := values[name]
			return v, ok
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
	return slices.DeleteFunc(slices.Clone(c.Fields), func(f FieldChange) bool { return f.Derived })
}
