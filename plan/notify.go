package plan

import (
	"fmt"
	"slices"
)

// Notify is one rule of headway.yaml's notify: which events are sent where, and in which form.
type Notify struct {
	Secret string   // name of the variable of the dispatcher's environment that holds the URL
	Form   string   // slack or json
	On     []string // events of NotifyEvents, sorted
}

// MaxNotify bounds the rules of one headway.yaml.
const MaxNotify = 16

// What a rule may say. (Tables of values.)
var (
	notifyKeys   = []string{"to", "form", "on"}
	notifyForms  = []string{"slack", "json"}
	notifyEvents = []string{"failed", "finished", "parked", "blocked", "orphan"}
)

// notify reads the rules. A rule that could not be read whole is left out; its problem was reported.
func (d *decoder) notify(n *node, f *Field) []Notify {
	rules, _ := list(d, n, f, MaxNotify, "a list such as [{to: {secret: SLACK_WEBHOOK}, form: slack, on: [failed]}]", func(m *node) (Notify, bool) {
		r := Notify{Form: "json"}
		found := d.ps.errors
		ok := d.pairs(m, &Field{Name: "an entry of notify"}, func(k, v *node) {
			switch k.Value {
			case "to":
				r.Secret = d.notifyTo(v)
			case "form":
				r.Form, _ = d.choice(v, &Field{Name: "notify.form", Allowed: notifyForms})
			case "on":
				on := &Field{Name: "notify.on"}
				r.On, _ = list(d, v, on, MaxList, "a list such as [failed, parked]", func(m *node) (string, bool) {
					return d.choice(m, &Field{Name: "notify.on", Allowed: notifyEvents})
				})
				r.On, _ = d.unique(v, on, r.On, true)
				slices.Sort(r.On)
			default:
				d.unknown(k, "notify", notifyKeys)
			}
		})
		if ok && d.ps.errors == found {
			if r.Secret == "" {
				d.refuse(m, "Missing", "an entry of notify says no to", "to: {secret: SLACK_WEBHOOK}, for example", "")
			} else if len(r.On) == 0 {
				d.refuse(m, "Missing", "an entry of notify names no event", "on: ["+notifyEvents[0]+"], for example; any of "+fmt.Sprint(notifyEvents), "")
			}
		}
		return r, ok && d.ps.errors == found
	})
	for i, r := range rules {
		if slices.ContainsFunc(rules[:i], func(o Notify) bool { return o.Secret == r.Secret && o.Form == r.Form && slices.Equal(o.On, r.On) }) {
			d.refuse(n, "Duplicate", "notify has the same rule twice, to "+r.Secret, "each rule once", "")
			break
		}
	}
	return rules
}

// notifyTo reads where a rule sends to: the name of a secret, never its value.
func (d *decoder) notifyTo(n *node) (secret string) {
	if n.Kind == scalarNode {
		if looksSecret(n.Value) == "" { // else it was reported as what it is
			d.refuse(n, "WrongType", "notify.to is written as text", "{secret: SLACK_WEBHOOK}", "whoever knows a webhook's URL can post there: name the variable of the dispatcher's environment that holds it")
		}
		return "-"
	}
	d.pairs(n, &Field{Name: "notify.to"}, func(k, v *node) {
		if k.Value != "secret" {
			d.unknown(k, "notify.to", []string{"secret"})
			return
		}
		s, ok := d.text(v, &Field{Name: "notify.to.secret"})
		if ok && !isVariable(s) {
			d.refuse(v, "BadName", "notify.to.secret is not the name of an environment variable", "a name such as SLACK_WEBHOOK", "name the secret, never write it")
			return
		}
		secret = s
	})
	return secret
}
