package plan

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rules of the text: what is dangerous comes first; unchanged jobs are only counted; every value that came from a file
// or from the store is bounded and printed without control characters; the last line counts.

// order is how dangerous an operation is. (Table of values.)
var order = map[Op]int{OpRefused: 0, OpRemove: 1, OpReplace: 2, OpCreate: 3, OpUpdate: 4, OpAdopt: 5, OpWaiting: 6, OpUnchanged: 7}

// colors are the ANSI codes of an operation's line. (Table of values.)
var colors = map[Op]string{OpRefused: "31;1", OpRemove: "31", OpReplace: "35", OpCreate: "32", OpUpdate: "33", OpAdopt: "36", OpWaiting: "2"}

// ranked gives the changes that a reader must see, the dangerous ones first.
func ranked(list []Change) []*Change {
	var out []*Change
	for i := range list {
		if ch := &list[i]; ch.Op != OpUnchanged || len(ch.Warnings) > 0 {
			out = append(out, ch)
		}
	}
	slices.SortStableFunc(out, func(a, b *Change) int { return cmp.Compare(a.rank(), b.rank()) })
	return out
}

// rank is how dangerous a change is, 0 the most.
func (c *Change) rank() int {
	if c.stops() && c.Op == OpAdopt {
		return order[OpReplace]
	}
	return order[c.Op]
}

// Text writes the diff for people: what must not be missed, one block per job that changes, then one line that counts.
func (c *Changes) Text(w io.Writer, color bool) error {
	b := bufio.NewWriter(w)
	alarms := c.alarms()
	for _, a := range alarms {
		b.WriteString(a + "\n")
	}
	if len(alarms) > 0 {
		b.WriteByte('\n')
	}
	var drift strings.Builder
	c.drifts(&drift)
	b.WriteString(drift.String())
	if p := c.Pending; p != nil {
		fmt.Fprintf(b, "Already pending on %s (%s):\n\n", line(p.Ref), line(short(p.Commit)))
		blocks(b, ranked(p.Changes), color)
		b.WriteString("Pending: " + p.Totals.counts() + "\n\nThis commit, beside that:\n\n")
	}
	blocks(b, ranked(c.Changes), color)
	if c.Totals.Bill.Jobs > 1 {
		b.WriteString(c.Totals.Bill.String() + "\n")
	}
	b.WriteString(c.Summary() + "\n")
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}

// blocks writes one block per job, and an empty line behind the last one.
func blocks(b *bufio.Writer, list []*Change, color bool) {
	width := 0
	for _, ch := range list {
		width = max(width, len(ch.Job))
	}
	width = min(width, 40)
	for _, ch := range list {
		line := fmt.Sprintf("%s %-*s  %s", ch.Op.Symbol(), width, printable(ch.Job), ch.works())
		if h := ch.headline(); h != "" {
			line += "  " + h
		}
		line = strings.TrimRight(line, " ")
		if code := colors[ch.Op]; color && code != "" {
			line = "\x1b[" + code + "m" + line + "\x1b[0m"
		}
		b.WriteString(line + "\n")
		for _, d := range ch.details() {
			b.WriteString("    " + d + "\n")
		}
	}
	if len(list) > 0 {
		b.WriteByte('\n')
	}
}

// short is a commit as people write it.
func short(commit string) string { return commit[:min(12, len(commit))] }

func (c *Changes) errors() int {
	n := 0
	for _, p := range c.Problems {
		if p.Severity == Error {
			n++
		}
	}
	return n
}

// Summary is the line that counts: "Plan: 2 to start, 1 to replace, 1 to stop, 14 unchanged".
func (c *Changes) Summary() string { return "Plan: " + c.Totals.counts() }

func (t *Totals) counts() string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(t.Start, "to start")
	add(t.Update, "to update in place")
	add(t.Replace, "to replace")
	add(t.Stop, "to stop")
	add(t.Remove, "to let go")
	add(t.Adopt-t.Moved, "found again")
	add(t.Moved, "moved")
	add(t.Refused, "refused")
	add(t.Waiting, "waiting")
	add(t.Unchanged, "unchanged")
	if len(parts) == 0 {
		return "no jobs"
	}
	return strings.Join(parts, ", ")
}

// works is the digest, or old → new.
func (c *Change) works() string {
	switch {
	case c.OldWork == "" || c.OldWork == c.NewWork:
		return fmt.Sprintf("%-12s", c.NewWork.Short())
	case c.NewWork == "":
		return fmt.Sprintf("%-12s", c.OldWork.Short())
	}
	return c.OldWork.Short() + " → " + c.NewWork.Short()
}

// headline is what happens, in a few words.
func (c *Change) headline() string {
	verb := map[Op]string{OpCreate: "start", OpUpdate: "update in place", OpReplace: "replace", OpRefused: "refused"}[c.Op]
	if c.Op == OpRemove && !c.stops() {
		verb = "let go"
	}
	out := verb
	if forcing := c.forcing(); c.Op == OpReplace && forcing != "" {
		out += ": " + forcing + " makes other work"
	}
	if c.Reason != "" {
		if out != "" {
			out += ": "
			if strings.Contains(out, "makes other work") {
				out = strings.TrimSuffix(out, ": ") + ", "
			}
		}
		out += line(c.Reason)
	}
	return out
}

// forcing names the identity fields that changed.
func (c *Change) forcing() string {
	var names []string
	for _, f := range c.shown() {
		if f.Sort == Identity {
			names = append(names, f.Field)
		}
	}
	return line(strings.Join(names, ", "))
}

// details are the lines below a job's own.
func (c *Change) details() []string {
	var out []string
	width, fields := 0, c.shown()
	for _, f := range fields {
		width = max(width, min(len(f.Field), 30))
	}
	for _, f := range fields {
		out = append(out, fmt.Sprintf("%-*s  %s → %s  (%s)", width, line(f.Field), orNone(f.Old), orNone(f.New), line(string(f.Sort))))
	}
	if c.Leaving != nil {
		s := c.OldWork.Short() + " is " + c.Leaving.describe()
		if c.Leaving.Live() {
			s += c.fate()
		}
		out = append(out, s)
	}
	if c.Now != nil {
		w := c.NewWork
		if w == "" {
			w = c.OldWork
		}
		out = append(out, w.Short()+" is "+c.Now.describe())
	}
	if c.Op == OpCreate || c.Op == OpReplace {
		out = append(out, line("on "+strings.Join(c.On, ", then "))+": "+line(c.price()))
	}
	out = append(out, c.where()...)
	if c.Next != "" {
		out = append(out, "next: "+line(c.Next))
	}
	for _, w := range c.Environment {
		out = append(out, "environment: "+line(w))
	}
	for _, w := range c.Warnings {
		out = append(out, "warning: "+line(w))
	}
	return out
}

// where says on which rung the job would run now, and why not on those above; nothing where that is plain: the only rung
// takes it, and nothing is known of a price, or there is none.
func (c *Change) where() []string {
	if len(c.Rungs) == 1 && c.Rungs[0].Chosen && c.Rungs[0].WaitS == 0 && c.Rungs[0].PerHour == 0 {
		return nil
	}
	var out []string
	for _, r := range c.Rungs {
		out = append(out, "now: "+line(r.Platform+": "+r.Why))
	}
	return out
}

// fate says how leaving work ends and what it loses.
func (c *Change) fate() string {
	s := ""
	switch c.OnDelete {
	case Drain:
		s = "; drain: it stops after its next milestone"
	case Revoke:
		s = "; revoke: it stops now"
	case Orphan:
		return "; orphan: it may finish"
	}
	var lost []string
	if c.Lost > 0 {
		lost = append(lost, strconv.FormatFloat(c.Lost, 'f', 2, 64)+" GPU-hours")
	}
	if c.LostPaid != "" {
		lost = append(lost, line(c.LostPaid))
	}
	switch what := strings.Join(lost, " and "); {
	case len(lost) == 0:
	case c.OnDelete == Drain:
		s += "; ended before that it would lose " + what + " since its last one"
	default:
		s += ", and would lose " + what + " since its last milestone"
	}
	return s
}

// describe says what is known of a work.
func (o *Observed) describe() string {
	s := line(o.State)
	if o.Platform != "" {
		s += " on " + line(o.Platform)
	}
	if o.Attempt > 0 {
		s += fmt.Sprintf(", attempt %d", o.Attempt)
	}
	if o.Step > 0 {
		s += ", step " + thousands(o.Step)
		if o.Steps > 0 {
			s += " of " + thousands(o.Steps)
		}
	}
	if o.Milestone > 0 {
		s += fmt.Sprintf(", milestone %d at step %s", o.Milestone, thousands(o.MilestoneStep))
	}
	if o.Age > 0 {
		s += ", seen to change " + formatDuration(o.Age.Round(time.Second)) + " ago"
	}
	if o.Reason != "" {
		s += " (" + line(o.Reason) + ")"
	}
	return s
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// line bounds foreign text to one printable line without secrets.
func line(s string) string {
	const most = 300
	s = redact(s)
	if len(s) > most {
		cut := most
		for cut > 0 && s[cut]&0xc0 == 0x80 { // not inside a character
			cut--
		}
		s = s[:cut] + "…"
	}
	return printable(s)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return line(s)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
