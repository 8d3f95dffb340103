package ring

import (
	"fmt"
	"reflect"
)

// Bounds of what an agent says of itself: far above any host, and small enough for a report and a record.
const (
	maxClaims = 4096 // entries of one list
	maxWord   = 1024 // bytes of one string
	maxAhead  = 366 * 24 * 60 * 60 * 1000
)

// sane says what is wrong with an inspection as such; "": a guard may look at it.
func (in *Inspection) sane() string {
	if why := small(reflect.ValueOf(*in)); why != "" {
		return why
	}
	ids := map[string]bool{}
	for _, n := range in.Nodes {
		if ids[n.ID] {
			return fmt.Sprintf("it has node %q twice", n.ID)
		}
		ids[n.ID] = true
	}
	return ""
}

// small bounds every string and list in a claim, whatever fields it has.
func small(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return small(v.Elem())
		}
	case reflect.String:
		if v.Len() > maxWord {
			return fmt.Sprintf("a word of %d bytes, at most %d", v.Len(), maxWord)
		}
	case reflect.Slice:
		if v.Len() > maxClaims {
			return fmt.Sprintf("a list of %d, at most %d", v.Len(), maxClaims)
		}
		for i := range v.Len() {
			if why := small(v.Index(i)); why != "" {
				return why
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if why := small(v.Field(i)); why != "" {
				return v.Type().Field(i).Name + ": " + why
			}
		}
	}
	return ""
}

// wrong says why an answer is none to a command; "": it is one. Its words go into the records.
func (a Answer) wrong(c Command) string {
	m := c.Envelope.Meta
	switch {
	case a.Node != m.Node || a.Generation != m.Generation || a.Agent != c.Target.Agent:
		return fmt.Sprintf("it speaks of node %s@%d on %s", clip(a.Node), a.Generation, clip(a.Agent))
	case a.Status != Succeeded && a.Status != Rejected && a.Status != Failed:
		return fmt.Sprintf("its status is %q", clip(string(a.Status)))
	case a.Resource != Absent && a.Resource != Present && a.Resource != Unknown:
		return fmt.Sprintf("its resource state is %q", clip(string(a.Resource)))
	}
	return ""
}
